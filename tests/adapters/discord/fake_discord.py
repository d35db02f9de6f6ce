"""Discord on loopback: the REST API and the gateway, scripted, rule by rule from the vendor's documentation.

The documentation is at https://docs.discord.com/developers/; each rule names its page there.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import discord
import yarl
from aiohttp import web

from gateway.testing.adapters import soon
from tests.adapters.discord.fake_gateway import Gateway
from tests.adapters.discord.world import (
    ADA,
    APPLICATION,
    BOT,
    BOT_USER,
    DM,
    GUILD,
    GUILD_OBJECT,
    HALL,
    OTHER_DM,
    ROOM,
    TOKEN,
    user,
)

Payload = dict[str, Any]


@dataclass
class Outcome:
    """What happens to one request: `before` the effect or `after` it.

    Attributes:
        status: answered instead; None: the line is reset.
    """

    status: int | None = None
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    is_after: bool = False
    gate: asyncio.Event | None = None


@dataclass
class Script:
    method: str
    path: re.Pattern[str]
    outcomes: list[Outcome]


@dataclass
class Channel:
    guild: str | None
    messages: dict[str, Payload] = field(default_factory=dict)
    refusal: tuple[int, int] | None = None
    is_history_hidden: bool = False


class FakeDiscord:
    """One bot, one server with two channels, two direct chats.

    Attributes:
        requests: (method, path, body) of all that came to the REST API.
        callbacks: the first answers to interactions, by id: (type, data).
        commands: each list that was registered.
        files: of the CDN, by path.
        intents_allowed: those that are switched on in the portal.
    """

    def __init__(self) -> None:
        self.token = TOKEN
        self.channels = {DM: Channel(None), OTHER_DM: Channel(None), ROOM: Channel(GUILD), HALL: Channel(GUILD)}
        self.requests: list[tuple[str, str, Any]] = []
        self.callbacks: dict[str, tuple[int, Payload]] = {}
        self.answers: dict[str, str] = {}
        self.commands: list[list[Payload]] = []
        self.files: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.typing: list[str] = []
        self.sent_content: dict[str, str] = {}
        self.edits: list[tuple[str, str]] = []
        self.gateway = Gateway(self)
        self.intents_allowed = ~0
        self.application: Payload = {"flags": 1 << 19, "approximate_guild_count": 1}
        """As the portal has it (/resources/application#application-object-application-flags)."""
        self._nonces: dict[tuple[str, str], str] = {}
        self._deleted: set[str] = set()
        self._scripts: list[Script] = []
        self._changed = asyncio.Condition()
        self._ids = count(1)
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._before: dict[str, Any] = {}

    # ---- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.come_up()
        base = f"http://127.0.0.1:{self._port}"
        self._before = {
            "route": discord.http.Route.BASE,
            "gateway": discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY,
            "cdn": discord.asset.Asset.BASE,
        }
        discord.http.Route.BASE = f"{base}/api/v10"
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(f"ws://127.0.0.1:{self._port}/gw")
        discord.asset.Asset.BASE = f"{base}/cdn"

    async def close(self) -> None:
        await self.go_down()
        discord.http.Route.BASE = self._before["route"]
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = self._before["gateway"]
        discord.asset.Asset.BASE = self._before["cdn"]

    async def come_up(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/gw", self.gateway.serve)
        app.router.add_get("/cdn/{path:.*}", self._cdn)
        app.router.add_route("*", "/api/v10/{path:.*}", self._rest)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def go_down(self) -> None:
        if self._runner is not None:
            self.gateway.drop()
            await self._runner.cleanup()
            self._runner = None

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}{path}"

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self._port}/gw"

    # ---- what people do --------------------------------------------------------------------------------------------

    def snowflake(self) -> str:
        """The milliseconds since 2015 in the upper 42 bits, a counter below (/reference#snowflakes)."""
        milliseconds = int(datetime.now(UTC).timestamp() * 1000) - 1_420_070_400_000
        return str((milliseconds << 22) + next(self._ids))

    def write(self, channel: str, text: str, *, author: Payload = ADA, **fields: Any) -> Payload:
        """A message is there; nobody is told yet. In the form of /resources/message#message-object."""
        identifier = fields.pop("id", None) or self.snowflake()
        message = {
            "id": identifier,
            "channel_id": channel,
            "author": author,
            "content": text,
            "timestamp": datetime.now(UTC).isoformat(),
            "edited_timestamp": None,
            "type": 0,
            **dict.fromkeys(("tts", "mention_everyone", "pinned"), False),
            **{key: [] for key in ("mentions", "mention_roles", "attachments", "embeds")},
            **fields,
        }
        self.channels[channel].messages[identifier] = message
        return message

    def say(self, channel: str, text: str, **fields: Any) -> Payload:
        """A person writes, and the gateway says so."""
        message = self.write(channel, text, **fields)
        self.announce(message)
        return message

    def announce(self, message: Payload) -> None:
        """MESSAGE_CREATE names the server, as the object does not (/events/gateway-events#message-create)."""
        guild = self.channels[message["channel_id"]].guild
        extra = {} if guild is None else {"guild_id": guild, "member": {"nick": None, "roles": []}}
        self.gateway.dispatch("MESSAGE_CREATE", {**message, **extra})

    def interact(self, channel: str, data: Payload, *, kind: int = 2, author: Payload = ADA, **fields: Any) -> Payload:
        """A person chooses a command (/interactions/receiving-and-responding#interaction-object)."""
        guild = self.channels[channel].guild
        who = {"user": author} if guild is None else {"guild_id": guild, "member": {"user": author, "nick": None}}
        payload = {
            "id": self.snowflake(), "application_id": APPLICATION, "type": kind, "data": data, "channel_id": channel,
            "token": f"interaction-token-{next(self._ids)}", "version": 1, **who, **fields,
        }  # fmt: skip
        self.answers[payload["token"]] = channel
        self.gateway.dispatch("INTERACTION_CREATE", payload)
        return payload

    def of_bot(self, channel: str = DM) -> list[Payload]:
        """What the bot has written there, as it stands."""
        return [each for each in self.channels[channel].messages.values() if each["author"]["id"] == BOT]

    def texts(self, channel: str = DM) -> list[str]:
        return [each["content"] for each in self.of_bot(channel)]

    def count(self, method: str, path: str) -> int:
        return sum(1 for done, where, _ in self.requests if done == method and re.search(path, where))

    def guild(self) -> Payload:
        """As GUILD_CREATE has it: each channel names its last message (/resources/channel#channel-object).

        Channels that the bot may not see are among them; their overwrites say so (/topics/permissions).
        """
        channels = []
        for each in GUILD_OBJECT["channels"]:
            place = self.channels[each["id"]]
            denied = [{"id": GUILD, "type": 0, "allow": "0", "deny": str(1 << 10)}] if place.is_history_hidden else []
            last = max(place.messages, key=int, default=None)
            channels.append({**each, "last_message_id": last, "permission_overwrites": denied})
        return {**GUILD_OBJECT, "channels": channels}

    # ---- what goes wrong -------------------------------------------------------------------------------------------

    def script(self, method: str, path: str, *outcomes: Outcome) -> None:
        """The next requests of this kind end so."""
        self._scripts.append(Script(method, re.compile(path), list(outcomes)))

    def end_scripts(self) -> None:
        """All is well from now on."""
        self._scripts.clear()

    def forget_nonces(self) -> None:
        """The past few minutes are over."""
        self._nonces.clear()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(is_so)

        await soon(wait())

    async def tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # ---- REST ------------------------------------------------------------------------------------------------------

    async def _rest(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        body, files = await _body(request)
        self.requests.append((request.method, path, body))
        outcome = self._outcome(request.method, path)
        if outcome is not None and outcome.gate is not None:
            await self.tell()
            await outcome.gate.wait()
        if outcome is not None and not outcome.is_after and (outcome.status is not None or outcome.gate is None):
            answer = _scripted(request, outcome)
        else:
            answer = self._authorized(request, path, body, files)
            if outcome is not None and outcome.is_after:
                answer = _scripted(request, outcome)
        await self.tell()
        return answer

    def _outcome(self, method: str, path: str) -> Outcome | None:
        for script in self._scripts:
            if script.outcomes and script.method == method and script.path.search(path):
                return script.outcomes.pop(0)
        return None

    def _authorized(self, request: web.Request, path: str, body: Any, files: dict[str, bytes]) -> web.Response:
        """A bot's requests carry its token, an interaction's only the interaction's own (/reference#authentication)."""
        is_open = path.startswith(("/interactions/", "/webhooks/"))
        if not is_open and request.headers.get("Authorization") != f"Bot {self.token}":
            return problem(401, 0, "401: Unauthorized")
        for method, pattern, handler in self._routes():
            match = re.fullmatch(pattern, path)
            if method == request.method and match is not None:
                return handler(*match.groups(), body=body, query=request.query, files=files)
        return problem(404, 0, "404: Not Found")

    def _routes(self) -> list[tuple[str, str, Callable[..., web.Response]]]:
        message = r"/channels/(\d+)/messages/(\d+)"
        return [
            ("GET", "/users/@me", lambda **_: answer(BOT_USER)),
            ("GET", "/oauth2/applications/@me", lambda **_: answer({**_application(), **self.application})),
            ("GET", r"/channels/(\d+)/messages", self._history),
            ("POST", r"/channels/(\d+)/messages", self._create),
            ("GET", message, self._get),
            ("PATCH", message, self._edit),
            ("DELETE", message, self._delete),
            ("POST", r"/channels/(\d+)/typing", self._typing),
            ("PUT", r"/applications/(\d+)/commands", self._register),
            ("POST", r"/interactions/(\d+)/([^/]+)/callback", self._callback),
            ("PATCH", r"/webhooks/(\d+)/([^/]+)/messages/@original", self._answer),
            ("POST", r"/webhooks/(\d+)/([^/]+)", self._follow_up),
        ]

    def _history(self, channel: str, *, query: Any, **_: Any) -> web.Response:
        """Newest first, 50 by default, 100 at most (/resources/message#get-channel-messages).

        Without READ_MESSAGE_HISTORY: nothing is returned there; without VIEW_CHANNEL: 50001.
        """
        place = self.channels.get(channel)
        if place is None:
            return problem(404, 10003, "Unknown Channel")
        if place.is_history_hidden:
            return problem(403, 50001, "Missing Access")
        after, limit = int(query.get("after", 0)), int(query.get("limit", 50))
        found = sorted(int(each) for each in place.messages if int(each) > after)[:limit]
        return answer([place.messages[str(each)] for each in reversed(found)])

    def _get(self, channel: str, message: str, **_: Any) -> web.Response:
        found = self._find(channel, message)
        return found if isinstance(found, web.Response) else answer(found)

    def _find(self, channel: str, message: str) -> Payload | web.Response:
        place = self.channels.get(channel)
        if place is None:
            return problem(404, 10003, "Unknown Channel")
        if message not in place.messages:
            return problem(404, 10008, "Unknown Message")
        return place.messages[message]

    def _create(self, channel: str, *, body: Payload, files: dict[str, bytes], **_: Any) -> web.Response:
        """/resources/message#create-message.

        `enforce_nonce`: a message of the same author with the same nonce, from the past few minutes, is returned.
        One that was deleted since is answered with 404 (discord.py's documentation of `Messageable.send`).
        """
        place = self.channels.get(channel)
        if place is None:
            return problem(404, 10003, "Unknown Channel")
        if place.refusal is not None:
            return problem(*place.refusal, "Missing Access")
        wrong = _wrong_voice(body, files) if body.get("flags", 0) & 8192 else _wrong_content(body, files)
        if wrong is not None:
            return wrong
        nonce = str(body.get("nonce", ""))
        if len(nonce) > 25:
            return problem(400, 50035, "nonce: must be 25 or fewer in length")
        if body.get("enforce_nonce") and (channel, nonce) in self._nonces:
            known = self._nonces[channel, nonce]
            return problem(404, 10008, "Unknown Message") if known in self._deleted else answer(place.messages[known])
        message = self._keep(channel, body, files, nonce=nonce)
        self._nonces[channel, nonce] = message["id"]
        return answer(message)

    def _keep(self, channel: str, body: Payload, files: dict[str, bytes], **fields: Any) -> Payload:
        """White space around a text is taken away; `@everyone` counts only if `allowed_mentions` says so."""
        message = self.write(channel, body.get("content", "").strip(), author=BOT_USER, **fields)
        message["flags"] = body.get("flags", 0)
        message["components"] = body.get("components", [])
        if "message_reference" in body:
            message["type"], message["message_reference"] = 19, {"channel_id": channel, **body["message_reference"]}
        message["mention_everyone"] = "@everyone" in message["content"] and "everyone" in body.get(
            "allowed_mentions", {"parse": ["everyone"]}
        ).get("parse", [])
        message["attachments"] = self._attached(channel, message["id"], body, files)
        self.sent_content[message["id"]] = body.get("content", "")
        self.announce(message)
        return message

    def _attached(self, channel: str, message: str, body: Payload, files: dict[str, bytes]) -> list[Payload]:
        attached = []
        for number, description in enumerate(body.get("attachments", ())):
            content = files.get(f"files[{number}]")
            if content is not None:
                name = description["filename"]
                self.uploads[name] = content
                path = f"/cdn/attachments/{channel}/{message}/{name}"
                attached.append({"id": self.snowflake(), "filename": name, "size": len(content), "url": self.url(path),
                                 "proxy_url": self.url(path)})  # fmt: skip
        return attached

    def _edit(self, channel: str, message: str, *, body: Payload, files: dict[str, bytes], **_: Any) -> web.Response:
        """/resources/message#edit-message: only what is given changes."""
        found = self._find(channel, message)
        if isinstance(found, web.Response):
            return found
        wrong = _wrong_content(body, files) if "content" in body else None
        if wrong is not None:
            return wrong
        if "content" in body:
            found["content"] = body["content"].strip()
            self.sent_content[message] = body["content"]
            self.edits.append((message, body["content"]))
        found["edited_timestamp"] = datetime.now(UTC).isoformat()
        if "components" in body:
            found["components"] = body["components"]
        if "attachments" in body:
            found["attachments"] = self._attached(channel, message, body, files)
        self.gateway.dispatch("MESSAGE_UPDATE", found)
        return answer(found)

    def _delete(self, channel: str, message: str, **_: Any) -> web.Response:
        found = self._find(channel, message)
        if isinstance(found, web.Response):
            return found
        del self.channels[channel].messages[message]
        self._deleted.add(message)
        return web.Response(status=204)

    def _typing(self, channel: str, **_: Any) -> web.Response:
        if channel not in self.channels:
            return problem(404, 10003, "Unknown Channel")
        self.typing.append(channel)
        return web.Response(status=204)

    def _register(self, _application: str, *, body: list[Payload], **_: Any) -> web.Response:
        """Takes the place of all commands there were (/interactions/application-commands#bulk-overwrite-...)."""
        for command in body:
            if not re.fullmatch(r"[-_\w]{1,32}", command["name"]) or not 1 <= len(command["description"]) <= 100:
                return problem(400, 50035, "Invalid Form Body")
        self.commands.append(body)
        return answer(body)

    def _callback(self, interaction: str, token: str, *, body: Payload, **_: Any) -> web.Response:
        """Once, and within 3 s (/interactions/receiving-and-responding#create-interaction-response)."""
        if token not in self.answers:
            return problem(404, 10062, "Unknown interaction")
        if interaction in self.callbacks:
            return problem(400, 40060, "Interaction has already been acknowledged.")
        self.callbacks[interaction] = (body["type"], body.get("data") or {})
        return answer({"interaction": {"id": interaction, "type": 2, "response_message_ephemeral": False,
                                       "response_message_loading": True}})  # fmt: skip

    def _answer(
        self, _application: str, token: str, *, body: Payload, files: dict[str, bytes], **_more: Any
    ) -> web.Response:
        """The answer in place of "is thinking": /interactions/receiving-and-responding#followup-messages."""
        if token not in self.answers:
            return problem(401, 50027, "Invalid Webhook Token")
        channel, _separator, original = self.answers[token].partition("/")
        if original:
            return self._edit(channel, original, body=body, files=files)
        kept = self._keep(channel, body, files, application_id=APPLICATION, webhook_id=APPLICATION)
        self.answers[token] = f"{channel}/{kept['id']}"
        return answer(kept)

    def _follow_up(
        self, _application: str, token: str, *, body: Payload, files: dict[str, bytes], **_: Any
    ) -> web.Response:
        if token not in self.answers:
            return problem(401, 50027, "Invalid Webhook Token")
        return answer(self._keep(self.answers[token].partition("/")[0], body, files, webhook_id=APPLICATION))

    async def _cdn(self, request: web.Request) -> web.Response:
        content = self.files.get(request.match_info["path"])
        return web.Response(status=404) if content is None else web.Response(body=content)


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """JSON with exactly this content type; the SDK takes anything else for text."""
    return web.Response(
        status=status, body=json.dumps(value).encode(), headers={"Content-Type": "application/json", **(headers or {})}
    )


def problem(status: int, code: int, text: str) -> web.Response:
    """An error (/reference#error-messages)."""
    return answer({"message": text, "code": code}, status)


def limited(retry_after_s: float, *, has_via: bool = True) -> Outcome:
    """429 (/topics/rate-limits#exceeding-a-rate-limit); those of Discord itself came through its proxy."""
    headers = {"Retry-After": str(retry_after_s), "X-RateLimit-Scope": "user"}
    if has_via:
        headers["Via"] = "1.1 google"
    body: Payload = {"message": "You are being rate limited.", "retry_after": retry_after_s, "global": False}
    return Outcome(429, body, headers)


def _application() -> Payload:
    return {
        "id": APPLICATION, "name": "Ethos", "description": "", "bot_public": True, "bot_require_code_grant": False,
        "icon": None, "verify_key": "", "team": None, "flags": 0,
        "owner": user("9", "owner"),
    }  # fmt: skip


def _wrong_voice(body: Payload, files: dict[str, bytes]) -> web.Response | None:
    """/resources/message#message-object-message-flags: one audio file with its length and waveform, and no content."""
    described = body.get("attachments", [])
    if len(files) != 1 or len(described) != 1 or not {"duration_secs", "waveform"} <= described[0].keys():
        return problem(400, 50161, "Voice messages must have a single audio attachment.")
    if body.get("content") or not 0 < len(base64.b64decode(described[0]["waveform"])) <= 256:
        return problem(400, 50160, "Voice messages do not support additional content.")
    return None


def _wrong_content(body: Payload, files: dict[str, bytes]) -> web.Response | None:
    """2000 characters; never nothing at all (/resources/message#create-message)."""
    if len(body.get("content") or "") > 2000:
        return problem(400, 50035, "content: Must be 2000 or fewer in length.")
    if not (body.get("content") or "").strip() and not files:
        return problem(400, 50006, "Cannot send an empty message")
    return None


async def _body(request: web.Request) -> tuple[Any, dict[str, bytes]]:
    """JSON, or a form with files (/reference#uploading-files)."""
    if request.content_type != "multipart/form-data":
        raw = await request.read()
        return (json.loads(raw) if raw else None), {}
    form = await request.post()
    files = {name: part.file.read() for name, part in form.items() if isinstance(part, web.FileField)}
    return json.loads(str(form["payload_json"])), files


def _scripted(request: web.Request, outcome: Outcome) -> web.StreamResponse:
    if outcome.status is not None:
        return answer(outcome.body or {"message": "scripted", "code": 0}, outcome.status, outcome.headers)
    transport = request.transport
    assert transport is not None
    with suppress(OSError):  # with this the peer gets a reset, errno 104
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    return web.Response()
