"""Slack, as far as its documentation tells how it behaves, on a free port of this machine.

Each rule has the page that it comes from. Faults are ordered with `fail`, and happen once each, in that order.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

TEAM, ENTERPRISE, BOT_USER, BOT_ID, APP = "T0HOME", None, "U0BOT", "B0BOT", "A0APP"
BOT_TOKEN, APP_TOKEN = "xoxb-a-secret-of-the-bot", "xapp-a-secret-of-the-app"
ADA, DIRECT, GENERAL = "U0ADA", "D0ADA", "C0GENERAL"

# "Bot token" under "Scopes" on https://docs.slack.dev/reference/methods/<method>; any one of them is enough.
METHOD_SCOPES: dict[str, set[str]] = {
    "auth.test": set(),
    "apps.connections.open": set(),  # an app-level token with connections:write
    "chat.postMessage": {"chat:write"},
    "chat.update": {"chat:write"},
    "chat.startStream": {"chat:write"},
    "chat.appendStream": {"chat:write"},
    "chat.stopStream": {"chat:write"},
    "chat.delete": {"chat:write"},
    "assistant.threads.setStatus": {"chat:write"},
    "conversations.open": {"im:write"},
    "conversations.history": {"channels:history", "groups:history", "im:history", "mpim:history"},
    "chat.postEphemeral": {"chat:write"},
    "users.info": {"users:read"},
    "users.conversations": {"channels:read", "groups:read", "im:read", "mpim:read"},
    "conversations.replies": {"channels:history", "groups:history", "im:history", "mpim:history"},
    "files.info": {"files:read"},
    "files.getUploadURLExternal": {"files:write"},
    "files.completeUploadExternal": {"files:write"},
}
# https://docs.slack.dev/reference/events
EVENT_SCOPES = {
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
}
# https://docs.slack.dev/interactivity/implementing-slash-commands, https://docs.slack.dev/messaging/message-metadata
OTHER_SCOPES = {"commands", "metadata.message:read"}
ALL_SCOPES = {scope for scopes in METHOD_SCOPES.values() for scope in scopes} | OTHER_SCOPES | {"app_mentions:read"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with one call.

    Attributes:
        drop: the connection breaks, `before` or `after` Slack has done what was asked.
        gate: Slack does what was asked when this is set.
    """

    error: str = ""
    status: int = 200
    retry_after_s: int | None = None
    html: bool = False
    drop: str = ""
    gate: asyncio.Event | None = None


class FakeSlack:
    """One workspace with one app installed.

    Attributes:
        channels: their messages, by `ts`.
        calls: (method, arguments), in order.
        acknowledged: envelope id to the payload that came with the acknowledgement.
        statuses: (channel, thread, text) that were shown.
        tickets: for the WebSocket; each is good once.
        handshakes: (ticket, was it good), in order.
        refused_handshakes: so many of the next ones fail, whatever their ticket.
        is_deaf: pings get no answer.
        raw: the address of every call.
        unknown_methods: those that this Slack does not have.
        left: channels that the app is no member of.
        shared: channels that are shared with other organisations.
        whispers: (channel, user, text) that one person sees.
    """

    def __init__(self) -> None:
        self.channels: dict[str, dict[str, dict[str, Any]]] = {DIRECT: {}, GENERAL: {}, "C0OTHER": {}}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.raw: list[str] = []
        self.acknowledged: dict[str, Any] = {}
        self.statuses: list[tuple[str, str, str]] = []
        self.files: dict[str, dict[str, Any]] = {}
        self.scopes = set(ALL_SCOPES)
        self.names = {ADA: "Ada Lovelace"}
        self.tickets: set[str] = set()
        self.handshakes: list[tuple[str, bool]] = []
        self.refused_handshakes = 0
        self.is_deaf = False
        self.page_size = 200
        self.unknown_methods: set[str] = set()
        self.left: set[str] = set()
        self.shared: set[str] = set()
        self.whispers: list[tuple[str, str, str]] = []
        self._stream_calls: dict[str, deque[float]] = defaultdict(deque)
        self.bot_token, self.app_token = BOT_TOKEN, APP_TOKEN
        self.sockets: list[web.WebSocketResponse] = []
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._numbers = count(1)
        self._start_s = int(time.time())
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._pongs: dict[bytes, asyncio.Event] = {}
        self.port = 0

    # ---- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/api/{method}", self._api)
        application.router.add_get("/link", self._link)
        application.router.add_get("/files/{id}", self._download)
        application.router.add_get("/login", self._login)
        application.router.add_post("/upload/{id}", self._upload)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        self.hang_up()
        if runner is not None:
            await runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/"

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(is_so)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # ---- the script -------------------------------------------------------------------------------------------------

    def fail(self, method: str, *faults: Fault) -> None:
        """Let the next calls of the method fail."""
        self._faults[method].extend(faults)

    def recover(self) -> None:
        """Nothing fails any more."""
        self._faults.clear()

    def called(self, method: str) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.calls if name == method]

    def new_ts(self) -> str:
        """https://docs.slack.dev/messaging/retrieving-messages: unique in its channel, and in order."""
        return f"{self._start_s}.{next(self._numbers):06d}"

    def write(self, channel: str, text: str, *, user: str = ADA, **more: Any) -> dict[str, Any]:
        """Somebody writes; nothing is delivered by that."""
        message = {"type": "message", "user": user, "text": text, "ts": self.new_ts(), "team": TEAM, **more}
        self.channels[channel][message["ts"]] = message
        return message

    def ours(self, channel: str = DIRECT) -> list[dict[str, Any]]:
        """The bot's messages, in order."""
        return [message for message in self.channels[channel].values() if message.get("bot_id") == BOT_ID]

    def event(self, message: Mapping[str, Any], channel: str = DIRECT, **envelope: Any) -> dict[str, Any]:
        """https://docs.slack.dev/apis/events-api#callback-field"""
        kind = "im" if channel.startswith("D") else "channel"
        inner = {"channel": channel, "channel_type": kind, "event_ts": message["ts"], **message}
        return {
            "token": "deprecated",
            "team_id": TEAM,
            "api_app_id": APP,
            "type": "event_callback",
            "event_id": f"Ev{next(self._numbers)}",
            "event_time": self._start_s,
            "authorizations": [{"enterprise_id": ENTERPRISE, "team_id": TEAM, "user_id": BOT_USER, "is_bot": True}],
            "is_ext_shared_channel": False,
            "event": inner,
            **envelope,
        }

    def command(self, text: str, *, channel: str = GENERAL, user: str = ADA) -> dict[str, Any]:
        """https://docs.slack.dev/interactivity/implementing-slash-commands#app_command_handling"""
        return {
            "token": "deprecated", "team_id": TEAM, "team_domain": "home", "channel_id": channel,
            "channel_name": "general", "user_id": user, "user_name": "ada", "command": "/ethos", "text": text,
            "api_app_id": APP, "is_enterprise_install": "false", "response_url": f"{self.url}/respond",
            "trigger_id": f"{next(self._numbers)}.2.3",
        }  # fmt: skip

    async def deliver(self, payload: Mapping[str, Any], *, kind: str = "events_api", socket: int = -1) -> str:
        """Send an envelope over a WebSocket; returns its id.

        https://docs.slack.dev/apis/events-api/using-socket-mode#events
        """
        await self.until(lambda: self.sockets)
        envelope_id = f"envelope-{next(self._numbers)}"
        envelope = {"envelope_id": envelope_id, "type": kind, "accepts_response_payload": kind != "events_api"}
        await self.sockets[socket].send_json({**envelope, "payload": payload})
        return envelope_id

    async def acknowledgement(self, envelope_id: str) -> Any:
        await self.until(lambda: envelope_id in self.acknowledged)
        return self.acknowledged[envelope_id]

    async def ping(self) -> None:
        """Return once the other side has read, and answered, all that was sent to it so far."""
        for socket in list(self.sockets):
            key = f"settle-{next(self._numbers)}".encode()
            pong = self._pongs[key] = asyncio.Event()
            await socket.ping(key)
            async with asyncio.timeout(60):
                await pong.wait()

    async def ask_to_leave(self, reason: str = "refresh_requested", socket: int = -1) -> None:
        """https://docs.slack.dev/apis/events-api/using-socket-mode#disconnect"""
        await self.sockets[socket].send_json({"type": "disconnect", "reason": reason, "debug_info": {}})

    def hang_up(self) -> None:
        """Break every WebSocket without a word."""
        for socket in self.sockets:
            transport = socket._req.transport if socket._req else None  # type: ignore[union-attr]
            if transport is not None:
                transport.abort()
        self.sockets.clear()

    # ---- Socket Mode ------------------------------------------------------------------------------------------------

    async def _link(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query["ticket"]
        is_good = ticket in self.tickets and not self.refused_handshakes
        self.handshakes.append((ticket, is_good))
        self.refused_handshakes = max(0, self.refused_handshakes - 1)
        self.tickets.discard(ticket)  # a WebSocket URL is good for one connection
        await self._notify()
        if not is_good:
            return web.Response(status=408)
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        # https://docs.slack.dev/apis/events-api/using-socket-mode#connect
        await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": APP}})
        self.sockets.append(socket)
        await self._notify()
        try:
            async for message in socket:
                if message.type == WSMsgType.PING and not self.is_deaf:
                    await socket.pong(message.data)
                elif message.type == WSMsgType.PONG and bytes(message.data) in self._pongs:
                    self._pongs.pop(bytes(message.data)).set()
                elif message.type == WSMsgType.TEXT:
                    answer = json.loads(message.data)
                    self.acknowledged[answer["envelope_id"]] = answer.get("payload")
                await self._notify()
        finally:
            if socket in self.sockets:
                self.sockets.remove(socket)
            await self._notify()
        return socket

    # ---- Web API ----------------------------------------------------------------------------------------------------

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        self.raw.append(str(request.rel_url))
        arguments: dict[str, Any] = dict(request.query)
        if request.content_type == "application/json":
            arguments |= await request.json()
        else:
            arguments |= dict(await request.post())
        self.calls.append((method, arguments))
        fault = self._faults[method].popleft() if self._faults[method] else None
        if fault is not None and fault.drop == "before":
            return _break(request)
        if fault is not None and (fault.error or fault.status != 200) and not fault.drop:
            await self._notify()
            return _failed(fault)
        if self._is_too_often(method):
            return _failed(Fault(status=429, error="ratelimited", retry_after_s=30))
        if fault is not None and fault.gate is not None:
            await self._notify()
            await fault.gate.wait()
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            answer = {"ok": True, **self._do(method, arguments, token)}
        except _Refusal as refusal:
            answer = {"ok": False, "error": str(refusal)}
        await self._notify()
        if fault is not None and fault.drop == "after":
            return _break(request)
        # What was granted stands in a header: https://docs.slack.dev/authentication/installing-with-oauth
        return web.json_response(answer, headers={"x-oauth-scopes": ",".join(sorted(self.scopes))})

    def _do(self, method: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
        wanted = self.app_token if method == "apps.connections.open" else self.bot_token
        if token != wanted:
            raise _Refusal("invalid_auth")
        if method in self.unknown_methods:
            raise _Refusal("unknown_method")
        scopes = METHOD_SCOPES[method]
        if scopes and not scopes & self.scopes:
            raise _Refusal("missing_scope")
        channel = arguments.get("channel") or arguments.get("channel_id")
        if channel is not None and channel not in self.channels:
            raise _Refusal("channel_not_found")
        answer: dict[str, Any] = getattr(self, "_" + method.replace(".", "_"))(arguments)
        return answer

    def _auth_test(self, _: dict[str, Any]) -> dict[str, Any]:
        """https://docs.slack.dev/reference/methods/auth.test"""
        names = {"url": self.url, "team": "Home", "user": "ethos"}
        return {"team_id": TEAM, "user_id": BOT_USER, "bot_id": BOT_ID, **names}

    def _apps_connections_open(self, _: dict[str, Any]) -> dict[str, Any]:
        ticket = f"ticket-{next(self._numbers)}"
        self.tickets.add(ticket)
        return {"url": f"ws://127.0.0.1:{self.port}/link?ticket={ticket}"}

    def _chat_postMessage(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 (the method's name)
        message = self._content(arguments)
        message |= {"type": "message", "user": BOT_USER, "bot_id": BOT_ID, "ts": self.new_ts()}
        if arguments.get("thread_ts"):
            message["thread_ts"] = arguments["thread_ts"]
        self.channels[arguments["channel"]][message["ts"]] = message
        return {"channel": arguments["channel"], "ts": message["ts"], "message": message}

    def _chat_update(self, arguments: dict[str, Any]) -> dict[str, Any]:
        message = self.channels[arguments["channel"]].get(arguments["ts"])
        if message is None:
            raise _Refusal("message_not_found")
        if message.get("bot_id") != BOT_ID:
            raise _Refusal("cant_update_message")
        if message.get("streaming_state") == "in_progress":
            raise _Refusal("streaming_state_conflict")
        message |= self._content(arguments)
        return {"channel": arguments["channel"], "ts": arguments["ts"]}

    def _chat_delete(self, arguments: dict[str, Any]) -> dict[str, Any]:
        message = self.channels[arguments["channel"]].get(arguments["ts"])
        if message is None:
            raise _Refusal("message_not_found")
        if message.get("streaming_state") == "in_progress":
            raise _Refusal("cant_delete_message")
        del self.channels[arguments["channel"]][arguments["ts"]]
        return {}

    # ---- streams ----------------------------------------------------------------------------------------------------

    def end_streams(self) -> None:
        """They die about five minutes after their start, also when they are written to.

        https://github.com/slackapi/python-slack-sdk/issues/1859
        """
        for messages in self.channels.values():
            for message in messages.values():
                if "streaming_state" in message:
                    message["streaming_state"] = "completed"

    def open_streams(self) -> list[dict[str, Any]]:
        found = (each for messages in self.channels.values() for each in messages.values())
        return [each for each in found if each.get("streaming_state") == "in_progress"]

    def _chat_startStream(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """https://docs.slack.dev/reference/methods/chat.startStream, "Arguments" and "Errors"."""
        if not arguments.get("thread_ts"):
            raise _Refusal("invalid_arguments")
        if not arguments["channel"].startswith("D"):
            for name in ("team", "user"):
                if not arguments.get(f"recipient_{name}_id"):
                    raise _Refusal(f"missing_recipient_{name}_id")
        message = {
            "type": "message", "user": BOT_USER, "bot_id": BOT_ID, "ts": self.new_ts(), "is_markdown": True,
            "blocks": [], "thread_ts": arguments["thread_ts"], "streaming_state": "in_progress",
            "text": _streamed(arguments, is_needed=True),
        }  # fmt: skip
        self.channels[arguments["channel"]][message["ts"]] = message
        return {"channel": arguments["channel"], "ts": message["ts"]}

    def _chat_appendStream(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """https://docs.slack.dev/reference/methods/chat.appendStream"""
        message = self._stream(arguments)
        message["text"] += _streamed(arguments, is_needed=True)
        return {"channel": arguments["channel"], "ts": message["ts"]}

    def _chat_stopStream(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """https://docs.slack.dev/reference/methods/chat.stopStream: the blocks come below the text."""
        message = self._stream(arguments)
        message["text"] += _streamed(arguments, is_needed=False)
        message["streaming_state"] = "completed"
        message["blocks"] = arguments.get("blocks") or []
        if "metadata" in arguments:
            message["metadata"] = arguments["metadata"]
        return {"channel": arguments["channel"], "ts": message["ts"], "message": message}

    def _stream(self, arguments: dict[str, Any]) -> dict[str, Any]:
        message = self.channels[arguments["channel"]].get(arguments["ts"])
        if message is None:
            raise _Refusal("message_not_found")
        if message.get("streaming_state") != "in_progress":
            raise _Refusal("message_not_in_streaming_state")
        return message

    def _is_too_often(self, method: str) -> bool:
        """Starting and stopping are Tier 2, "20+ per minute": https://docs.slack.dev/apis/web-api/rate-limits."""
        if method not in ("chat.startStream", "chat.stopStream"):
            return False
        calls, now = self._stream_calls[method], time.monotonic()
        while calls and now - calls[0] > 60:
            calls.popleft()
        calls.append(now)
        return len(calls) > 20

    def _content(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """https://docs.slack.dev/reference/methods/chat.postMessage, "Arguments" and "Errors"."""
        markdown, text, blocks = (arguments.get(key) for key in ("markdown_text", "text", "blocks"))
        if markdown and (text or blocks):
            raise _Refusal("markdown_text_conflict")
        shown = markdown or text or ""
        if not shown.strip() and not blocks:
            raise _Refusal("no_text")
        if markdown and max(len(markdown), len(markdown.encode("utf-16-le")) // 2) > 12_000:
            raise _Refusal("msg_too_long")
        payload = (arguments.get("metadata") or {}).get("event_payload", {})
        assert all(isinstance(value, str | int | bool) for value in payload.values()), "metadata holds plain values"
        return {
            "text": shown,
            "is_markdown": bool(markdown),
            "blocks": blocks or [],
            **({"metadata": arguments["metadata"]} if "metadata" in arguments else {}),
        }

    def _assistant_threads_setStatus(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        self.statuses.append((arguments["channel_id"], arguments["thread_ts"], arguments["status"]))
        return {}

    def _conversations_open(self, arguments: dict[str, Any]) -> dict[str, Any]:
        channel = f"D{arguments['users'][1:]}"
        self.channels.setdefault(channel, {})
        return {"channel": {"id": channel}}

    def _users_info(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """https://docs.slack.dev/reference/methods/users.info"""
        user = arguments["user"]
        if user not in self.names:
            raise _Refusal("user_not_found")
        return {"user": {"id": user, "name": user.lower(), "profile": {"display_name": self.names[user]}}}

    def _users_conversations(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """https://docs.slack.dev/reference/methods/users.conversations: each of the types asked for needs its scope."""
        needed = {"public_channel": "channels", "private_channel": "groups", "mpim": "mpim", "im": "im"}
        if any(f"{needed[each]}:read" not in self.scopes for each in arguments["types"].split(",")):
            raise _Refusal("missing_scope")
        listed = [self._listed(each) for each in self.channels if each not in self.left]
        start, end = int(arguments.get("cursor") or 0), int(arguments.get("cursor") or 0) + self.page_size
        return {
            "channels": listed[start:end],
            "response_metadata": {"next_cursor": str(end) if end < len(listed) else ""},
        }

    def _listed(self, channel: str) -> dict[str, Any]:
        """https://docs.slack.dev/reference/objects/conversation-object"""
        if channel.startswith("D"):
            return {"id": channel, "is_im": True, "user": ADA}
        return {"id": channel, "is_channel": True, "is_private": False, "is_ext_shared": channel in self.shared}

    def _chat_postEphemeral(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """https://docs.slack.dev/reference/methods/chat.postEphemeral"""
        self.whispers.append((arguments["channel"], arguments["user"], arguments["text"]))
        return {"message_ts": self.new_ts()}

    def _conversations_history(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """https://docs.slack.dev/reference/methods/conversations.history: newest first, no replies."""
        messages = self.channels[arguments["channel"]].values()
        found = [each for each in messages if each.get("thread_ts") in (None, each["ts"])]
        return self._page(found[::-1], arguments)

    def _conversations_replies(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """https://docs.slack.dev/reference/methods/conversations.replies: the parent first, then oldest first."""
        messages = self.channels[arguments["channel"]].values()
        return self._page(
            [each for each in messages if arguments["ts"] in (each["ts"], each.get("thread_ts"))], arguments
        )

    def _page(self, found: list[dict[str, Any]], arguments: dict[str, Any]) -> dict[str, Any]:
        found = [each for each in found if each["ts"] > arguments.get("oldest", "0")]
        start = int(arguments.get("cursor") or 0)
        end = start + min(self.page_size, int(arguments["limit"]))
        shown = [dict(each) for each in found[start:end]]
        if not (arguments.get("include_all_metadata") and "metadata.message:read" in self.scopes):
            for each in shown:
                each.pop("metadata", None)
        cursor = str(end) if end < len(found) else ""
        return {"messages": shown, "has_more": bool(cursor), "response_metadata": {"next_cursor": cursor}}

    # ---- files ------------------------------------------------------------------------------------------------------

    def add_file(self, content: bytes, **more: Any) -> dict[str, Any]:
        """A file as its event shows it: https://docs.slack.dev/reference/objects/file-object"""
        file_id = f"F{next(self._numbers)}"
        shown = {
            "id": file_id, "name": "notes.txt", "mimetype": "text/plain", "size": len(content), "mode": "hosted",
            "url_private": f"{self.url}/files/{file_id}", "url_private_download": f"{self.url}/files/{file_id}", **more,
        }  # fmt: skip
        self.files[file_id] = {"content": content, "shown": shown, "shares": {}}
        return shown

    def _files_info(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["file"] not in self.files:
            raise _Refusal("file_not_found")
        file = self.files[arguments["file"]]
        return {"file": {**file["shown"], "shares": file["shares"]}}

    def _files_getUploadURLExternal(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """https://docs.slack.dev/messaging/working-with-files#upload"""
        shown = self.add_file(b"", name=arguments["filename"], size=int(arguments["length"]))
        return {"upload_url": f"{self.url}/upload/{shown['id']}", "file_id": shown["id"]}

    def _files_completeUploadExternal(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        files = arguments["files"]
        for file in json.loads(files) if isinstance(files, str) else files:
            channel = arguments["channel_id"]
            ts, thread = self.new_ts(), arguments.get("thread_ts")
            self.files[file["id"]]["shares"] = {"private": {channel: [{"ts": ts}]}}
            self.channels[channel][ts] = {
                "type": "message", "user": BOT_USER, "bot_id": BOT_ID, "ts": ts, "text": "",
                "files": [{"id": file["id"]}], **({"thread_ts": thread} if thread else {}),
            }  # fmt: skip
        return {"files": []}

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """Who may not have the file is led to the page where people log in."""
        may = request.headers.get("Authorization") == f"Bearer {self.bot_token}"
        if not may or request.match_info["id"] not in self.files:
            return web.Response(status=302, headers={"Location": f"{self.url}/login"})
        return web.Response(body=self.files[request.match_info["id"]]["content"])

    async def _login(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>Log in to your workspace</html>", content_type="text/html")

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        assert "Authorization" not in request.headers, "an upload address needs no token"
        self.files[request.match_info["id"]]["content"] = await request.read()
        return web.Response(text="OK - 1")


class _Refusal(Exception):
    """`{"ok": false, "error": …}`"""


def _streamed(arguments: Mapping[str, Any], *, is_needed: bool) -> str:
    text = str(arguments.get("markdown_text") or "")
    if is_needed and not text:
        raise _Refusal("no_text")
    if len(text) > 12_000:
        raise _Refusal("msg_too_long")
    return text


def read(message: Mapping[str, Any]) -> str:
    """What people read: Slack decodes these three, and no others.

    https://docs.slack.dev/messaging/formatting-message-text#escaping
    """
    return str(message["text"]).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def escaped(text: str) -> str:
    """What a person typed, as events have it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _break(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _failed(fault: Fault) -> web.StreamResponse:
    """https://docs.slack.dev/apis/web-api/rate-limits: 429 with `Retry-After`, in seconds."""
    headers = {"Retry-After": str(fault.retry_after_s)} if fault.retry_after_s is not None else {}
    if fault.html:
        return web.Response(status=fault.status, text="<html>Bad gateway</html>", content_type="text/html")
    return web.json_response({"ok": False, "error": fault.error}, status=fault.status, headers=headers)
