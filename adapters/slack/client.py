"""Calls Slack's Web API through the SDK; its errors are translated in `errors.py`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.http_retry.builtin_async_handlers import (
    AsyncConnectionErrorRetryHandler,
    AsyncRateLimitErrorRetryHandler,
)
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from adapters.slack.convert import Installation
from adapters.slack.errors import GONE, Refused, calling, connect_error
from gateway.errors import PermanentSendError, TransientSendError

API_URL = "https://slack.com/api/"
# The SDK logs whole requests and each of its tries; our own errors say what an operator needs to know.
SDK_LOGGER = logging.getLogger("adapters.slack.sdk")
SDK_LOGGER.setLevel(logging.CRITICAL)

# What the manifest in docs/channels/slack.md asks for.
SCOPES = frozenset({
    "app_mentions:read", "channels:history", "channels:read", "chat:write", "commands", "files:read", "files:write",
    "groups:history", "groups:read", "im:history", "im:read", "im:write", "metadata.message:read", "mpim:history",
    "mpim:read", "users:read",
})  # fmt: skip

_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
_PAGE = 200

_T = TypeVar("_T")


class SlackClient:
    """The methods of the Web API that we use.

    The SDK must not repeat calls that write: by default it posts a message again after a broken connection. Calls that
    read may be repeated.
    """

    def __init__(self, bot_token: str, *, app_token: str | None = None, api_url: str = API_URL) -> None:
        self._bot_token = bot_token
        self._app_token = app_token
        self._api_url = api_url
        self._session: aiohttp.ClientSession | None = None
        self._writing: AsyncWebClient | None = None
        self._reading: AsyncWebClient | None = None
        self.missing_scopes: Sequence[str] = ()
        """Those of `SCOPES` that the installation was not granted, as Slack said at the last `open`."""
        self.workspace = ""
        """The name of the workspace, known from the last `open`, as its address is."""
        self.workspace_url: str | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Installation:
        """Ask Slack who we are. Raises as `ChannelAdapter.connect`."""
        await self.close()
        self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        self._writing = self._web(retries=False)
        self._reading = self._web(retries=True)
        try:
            found = await self._writing.auth_test()
            self.workspace, self.workspace_url = str(found.get("team") or found["team_id"]), found.get("url")
            self.missing_scopes = _missing_scopes(found.headers)
            return Installation(
                team=found["team_id"],
                enterprise=found.get("enterprise_id"),
                user=found["user_id"],
                bot=found.get("bot_id"),
                name=str(found.get("user") or "Ethos"),
            )
        except Exception as error:
            await self.close()
            raise connect_error(error, "bot_token") from error

    async def socket_url(self) -> str:
        """A ticket for one WebSocket connection, good for some seconds. Raises as `ChannelAdapter.connect`."""
        try:
            answer = await self.web.apps_connections_open(app_token=self._app_token or "")
            return str(answer["url"])
        except Exception as error:
            raise connect_error(error, "app_token") from error

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        self._writing = self._reading = None
        if session is not None:
            await session.close()

    @property
    def web(self) -> AsyncWebClient:
        """The SDK's client for calls that write."""
        return _opened(self._writing)

    @property
    def _reader(self) -> AsyncWebClient:
        return _opened(self._reading)

    # ---- messages ---------------------------------------------------------------------------------------------------

    async def post(self, channel: str, thread: str | None, content: Mapping[str, Any]) -> str:
        """Post a message; returns its `ts`. Raises as `ChannelAdapter.send`."""
        with calling("chat.postMessage"):
            # No unfurling: the agent's text must not make Slack fetch an address.
            answer = await self.web.chat_postMessage(
                channel=channel, thread_ts=thread, unfurl_links=False, unfurl_media=False, **content
            )
            return str(answer["ts"])

    async def update(self, channel: str, ts: str, content: Mapping[str, Any]) -> None:
        """Replace a message; twice does no harm, so an uncertain end is only transient."""
        with calling("chat.update", is_repeatable=True):
            await self.web.chat_update(channel=channel, ts=ts, **content)

    async def delete(self, channel: str, ts: str) -> None:
        """Delete a message; it may be gone already."""
        try:
            with calling("chat.delete", is_repeatable=True):
                await self.web.chat_delete(channel=channel, ts=ts)
        except Refused as error:
            if error.code not in GONE:
                raise

    # ---- streams ----------------------------------------------------------------------------------------------------

    async def start_stream(self, channel: str, thread: str, recipient: tuple[str, str] | None, text: str) -> str:
        """Open a stream in a thread, for a person of a team; returns its `ts`. Raises as `ChannelAdapter.send`."""
        team, user = recipient or (None, None)
        with calling("chat.startStream"):
            answer = await self.web.chat_startStream(
                channel=channel, thread_ts=thread, recipient_team_id=team, recipient_user_id=user, markdown_text=text
            )
            return str(answer["ts"])

    async def append_stream(self, channel: str, ts: str, text: str) -> None:
        """Add to an open stream. Raises as `ChannelAdapter.send`."""
        with calling("chat.appendStream"):
            await self.web.chat_appendStream(channel=channel, ts=ts, markdown_text=text)

    async def stop_stream(self, channel: str, ts: str, end: Mapping[str, Any]) -> None:
        """Make an ordinary message of a stream. When it was done already, Slack refuses the second try."""
        with calling("chat.stopStream", is_repeatable=True):
            await self.web.chat_stopStream(channel=channel, ts=ts, **end)

    # ---- around messages --------------------------------------------------------------------------------------------

    async def set_status(self, channel: str, thread: str, status: str) -> None:
        """Show what we are doing, for two minutes or until we post."""
        with calling("assistant.threads.setStatus", is_repeatable=True):
            await self.web.assistant_threads_setStatus(channel_id=channel, thread_ts=thread, status=status)

    async def direct_chat(self, user: str) -> str:
        """The id of our direct chat with somebody."""
        with calling("conversations.open", is_repeatable=True):
            answer = await self.web.conversations_open(users=user)
            return str(answer["channel"]["id"])

    async def name_of(self, user: str) -> str:
        """What people call a member. Raises as `history`."""
        with calling("users.info", is_repeatable=True):
            found = (await self._reader.users_info(user=user))["user"]
            profile = found.get("profile") or {}
            return str(profile.get("display_name") or profile.get("real_name") or found.get("name") or user)

    def conversations(self) -> AsyncGenerator[Mapping[str, Any], None]:
        """The conversations that we are a member of. Raises as `history`."""
        types = "public_channel,private_channel,mpim,im"
        return self._pages(
            "users.conversations",
            "channels",
            lambda cursor: self._reader.users_conversations(
                types=types, exclude_archived=True, limit=_PAGE, cursor=cursor
            ),
        )

    async def post_ephemeral(self, channel: str, thread: str | None, user: str, text: str) -> None:
        """Show a text to one person only; Slack may drop it. Raises as `ChannelAdapter.send`."""
        with calling("chat.postEphemeral", is_repeatable=True):
            await self.web.chat_postEphemeral(channel=channel, user=user, thread_ts=thread, text=text)

    def history(self, channel: str, thread: str | None, oldest: str) -> AsyncGenerator[Mapping[str, Any], None]:
        """Messages after `oldest` with their metadata: of a thread oldest first, of a channel newest first.

        Raises TransientSendError or PermanentSendError where they cannot be had.
        """
        asked: dict[str, Any] = {"channel": channel, "oldest": oldest, "limit": _PAGE, "include_all_metadata": True}

        def ask(cursor: str | None) -> Awaitable[AsyncSlackResponse]:
            if thread is None:
                return self._reader.conversations_history(cursor=cursor, **asked)
            return self._reader.conversations_replies(ts=thread, cursor=cursor, **asked)

        return self._pages("conversations.history", "messages", ask)

    async def _pages(
        self, method: str, key: str, ask: Callable[[str | None], Awaitable[AsyncSlackResponse]]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """What all pages of an answer have below a key: https://docs.slack.dev/apis/web-api/pagination."""
        cursor = None
        while True:
            with calling(method, is_repeatable=True):
                page = await ask(cursor)
                entries = list(page[key])
                cursor = (page.get("response_metadata") or {}).get("next_cursor")
            for entry in entries:
                yield entry
            if not cursor:
                return

    # ---- files ------------------------------------------------------------------------------------------------------

    async def download(self, file_id: str, max_bytes: int) -> bytes:
        """The content of a file that came with a message. Raises as `SupportsAttachments.fetch`."""
        with calling("files.info", is_repeatable=True):
            file = (await self._reader.files_info(file=file_id))["file"]
            url = str(file.get("url_private_download") or file["url_private"])
            # Our token goes to Slack's own hosts only, whatever address the file has.
            if urlsplit(url).netloc != urlsplit(self._api_url).netloc and not _is_slack_url(url):
                raise PermanentSendError(f"the file {file_id} is not kept by Slack, so it is not fetched")
            headers = {"Authorization": f"Bearer {self._bot_token}"}
            async with _opened(self._session).get(url, headers=headers, allow_redirects=False) as response:
                if response.status >= 500 or response.status == 429:
                    raise TransientSendError(f"Slack cannot hand out the file now (HTTP {response.status})")
                if response.status != 200:  # Slack redirects to its login page
                    raise PermanentSendError(f"Slack does not hand out the file (HTTP {response.status}): files:read?")
                content = bytearray()
                async for chunk in response.content.iter_any():
                    content += chunk
                    if len(content) > max_bytes:
                        raise PermanentSendError(f"the file is larger than {max_bytes} bytes")
        return bytes(content)

    async def upload(self, filename: str, content: bytes) -> str:
        """Upload a file, which no one sees yet; returns its id. Twice does no harm."""
        with calling("files.getUploadURLExternal", is_repeatable=True):
            ticket = await self.web.files_getUploadURLExternal(filename=filename, length=len(content))
            async with _opened(self._session).post(str(ticket["upload_url"]), data=content) as response:
                if response.status != 200:
                    raise TransientSendError(f"Slack did not take the file (HTTP {response.status})")
            return str(ticket["file_id"])

    async def share(self, file_id: str, title: str, channel: str, thread: str | None) -> None:
        """Show an uploaded file. Raises as `ChannelAdapter.send`."""
        with calling("files.completeUploadExternal"):
            await self.web.files_completeUploadExternal(
                files=[{"id": file_id, "title": title}], channel_id=channel, thread_ts=thread
            )

    async def is_shared(self, file_id: str, channel: str) -> bool:
        """An uploaded file is shown there."""
        with calling("files.info", is_repeatable=True):
            shares = (await self._reader.files_info(file=file_id))["file"].get("shares") or {}
            return any(channel in places for places in shares.values())

    def _web(self, *, retries: bool) -> AsyncWebClient:
        handlers = [AsyncConnectionErrorRetryHandler(), AsyncRateLimitErrorRetryHandler(max_retry_count=3)]
        return AsyncWebClient(
            token=self._bot_token,
            base_url=self._api_url,
            session=self._session,
            logger=SDK_LOGGER,
            retry_handlers=handlers if retries else [],
        )


def _opened(connection: _T | None) -> _T:
    if connection is None:
        raise TransientSendError("the channel to Slack is not open")
    return connection


def _missing_scopes(headers: Mapping[str, str]) -> Sequence[str]:
    """By the header `x-oauth-scopes`: https://docs.slack.dev/authentication/installing-with-oauth; none without it."""
    granted = next((value for name, value in headers.items() if name.lower() == "x-oauth-scopes"), None)
    return () if granted is None else sorted(SCOPES - {scope.strip() for scope in granted.split(",")})


def _is_slack_url(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "https" and (host == "slack.com" or host.endswith(".slack.com"))
