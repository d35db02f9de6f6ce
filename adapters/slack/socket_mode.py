"""How Slack's requests come in: through Bolt, and in Socket Mode over a WebSocket that we open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_internals import send_async_response
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack.client import QUIET, SlackClient
from gateway.errors import AdapterNotReady

Take = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Keeps a request; returns what Slack shows to who made it. If it raises, nothing was kept."""

_CLOSE_S = 1.0
# A connection that was reset is closed without a word to any listener of the SDK's: looking costs no system call.
_LOOK_S = 0.5

_log = logging.getLogger(__name__)


class Bolt:
    """Bolt reads the three shapes of Slack's requests, and answers those that are about the line itself."""

    def __init__(self, take: Take) -> None:
        # Everything is kept in `before_authorize`. What comes behind it acknowledges first and works afterwards, and
        # when `auth.test` fails it acknowledges what nobody has seen. Signatures are checked before Bolt is asked,
        # on the raw bytes: see http_receiver.py.
        self._app = AsyncApp(
            logger=QUIET,
            authorize=_nobody,  # type: ignore[arg-type]  # None means nobody, to Bolt
            before_authorize=_Keep(take),
            request_verification_enabled=False,
            ssl_check_enabled=False,
        )

    async def answer(self, body: str, headers: Mapping[str, str]) -> tuple[int, str, str]:
        """Answer one HTTP request that is authentic: status, content type, body.

        Raises:
            ValueError: it cannot be read.
        """
        try:
            request = AsyncBoltRequest(body=body, headers=dict(headers))
        except (AttributeError, TypeError) as error:  # raised by Bolt where JSON is not of the shape that it looks for
            raise ValueError("not a request of Slack's") from error
        response = await self._app.async_dispatch(request)
        return response.status, response.headers.get("content-type", ["text/plain"])[0], response.body or ""

    async def handle(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Answer one envelope of Socket Mode; what was not kept gets no answer, and comes again."""
        try:
            bolt_request = AsyncBoltRequest(mode="socket_mode", body=request.payload)
        except (AttributeError, TypeError, ValueError):
            _log.warning("an envelope is not as Slack describes it; dropped")
            response = BoltResponse(status=200)  # it would be the same every time that it came again
        else:
            response = await self._app.async_dispatch(bolt_request)
        await send_async_response(client, request, response, 0.0)


class _Keep(AsyncMiddleware):
    """Keeps a request, and answers it with that.

    A plain function would be called with arguments that Bolt fails to find in a request that is not as it should be.
    """

    def __init__(self, take: Take) -> None:
        self._take = take

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002
    ) -> BoltResponse:
        del resp
        if req.body.get("type") == "url_verification":
            return await next()
        return BoltResponse(status=200, body=await self._take(req.body))


class _Socket:
    """One connection of Socket Mode: it ends, and never connects anew by itself.

    The SDK's own reconnecting takes an expired ticket again and again, hides a token that was revoked, and is without
    a connection while it changes from one to the next. So whoever owns this opens the next one, with a new ticket.

    Args:
        ping_s: the time between two signs of life; after four without an answer the connection is dead.
    """

    def __init__(self, bolt: Bolt, web: AsyncWebClient, *, ping_s: float) -> None:
        self._ping_s = ping_s
        self._is_leaving = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._client = _OneConnection("", self._is_leaving, web_client=web, ping_s=ping_s)
        self._client.socket_mode_request_listeners.append(bolt.handle)
        self._client.on_close_listeners.append(self._end)
        self._client.on_error_listeners.append(self._end)

    async def open(self, url: str, timeout_s: float) -> None:
        """Connect with a ticket.

        Raises:
            AdapterNotReady: it was not taken.
        """
        self._client.wss_uri = url
        try:
            async with asyncio.timeout(timeout_s):  # the SDK itself would try for ever
                await self._client.connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            raise AdapterNotReady("Slack did not take the WebSocket connection") from None

    async def leaving(self) -> bool:
        """Wait until the connection is of no use any more.

        Returns:
            True: Slack asks for another one, and keeps this one for some seconds. False: it is lost.
        """
        await self._until(self._is_leaving, self._has_ended)
        return self._is_leaving.is_set()

    async def ended(self) -> None:
        """Wait until the connection is closed, or dead."""
        await self._until(self._has_ended)

    async def close(self) -> None:
        """Hang up."""
        client = self._client
        client.closed = True
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):  # the other side may be gone
            async with asyncio.timeout(_CLOSE_S):
                await client.disconnect()  # type: ignore[no-untyped-call]
        tasks = [client.message_processor, client.message_receiver, client.current_session_monitor]
        await client.close()  # type: ignore[no-untyped-call]
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    async def _until(self, *signs: asyncio.Event) -> None:
        """Wait for one of the signs, or for the connection's death, which the SDK does not tell."""
        waiting = [asyncio.ensure_future(sign.wait()) for sign in signs]
        try:
            while await self._client.is_connected():
                done, _ = await asyncio.wait(waiting, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    break
        finally:
            for each in waiting:
                each.cancel()

    async def _end(self, _: aiohttp.WSMessage) -> None:
        self._has_ended.set()


class SocketLine:
    """Keeps us connected in Socket Mode for as long as Slack lets it.

    Args:
        ping_s: between two signs of life; after four without an answer the connection is dead.
        connect_s: for a connection to be taken.
        linger_s: Slack closes a connection that it has told to go after about ten seconds.
    """

    def __init__(
        self, client: SlackClient, bolt: Bolt, *, ping_s: float = 5.0, connect_s: float = 10.0, linger_s: float = 15.0
    ) -> None:
        self._client = client
        self._bolt = bolt
        self._ping_s, self._connect_s, self._linger_s = ping_s, connect_s, linger_s
        self._socket: _Socket | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect.

        Raises:
            AdapterNotReady: Slack cannot be reached now.
            AdapterAuthFailed: it refused the app-level token.
        """
        url = await self._client.socket_url()
        socket = _Socket(self._bolt, self._client.web, ping_s=self._ping_s)
        try:
            await socket.open(url, self._connect_s)
        except BaseException:
            await socket.close()
            raise
        self._socket = socket

    async def hold(self) -> None:
        """Stay connected; raises as `open` when that is not possible any more."""
        while (socket := self._socket) is not None:
            if not await socket.leaving():
                break
            # The next one first, so that there is never none: https://github.com/slackapi/bolt-python/issues/1071
            await self.open()
            task = asyncio.create_task(self._retire(socket))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        raise AdapterNotReady("the connection to Slack was lost")

    async def close(self) -> None:
        """Hang up."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()
        for task in list(self._retiring):
            task.cancel()
            await asyncio.wait({task})

    async def _retire(self, socket: _Socket) -> None:
        """What Slack has put on the old connection is answered there, until it closes it."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._linger_s):
                    await socket.ended()
        finally:
            await socket.close()


class _OneConnection(SocketModeClient):
    def __init__(self, app_token: str, leave: asyncio.Event, *, web_client: AsyncWebClient, ping_s: float) -> None:
        super().__init__(
            app_token=app_token,
            logger=QUIET,
            web_client=web_client,
            auto_reconnect_enabled=False,
            ping_interval=ping_s,
        )
        self._leave = leave

    async def connect_to_new_endpoint(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 (the SDK's signature)
        """Slack sent `disconnect`: https://docs.slack.dev/apis/events-api/using-socket-mode#disconnect."""
        del force
        self._leave.set()


async def _nobody(**_: Any) -> AuthorizeResult | None:
    """Bolt wants to know who installed us; by then everything is kept, and the answer changes nothing."""
    return None
