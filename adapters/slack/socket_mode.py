"""Receives Slack's requests over Socket Mode, and reads them, here and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_internals import send_async_response
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack.client import SDK_LOGGER, SlackClient
from gateway.errors import AdapterNotReady

HandleRequest = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Accepts a request; returns what Slack shows to the person who made it. If it raises, nothing was accepted."""

_CLOSE_S = 1.0
# The SDK tells no listener that a connection was reset, so it is asked; that costs no system call.
_CHECK_INTERVAL_S = 0.5

_log = logging.getLogger(__name__)


class Bolt:
    """Reads the three shapes of Slack's requests as Bolt does, and answers those about the connection.

    Bolt's own `AsyncApp` is not used: it acknowledges a request before it is handled, even when `auth.test` fails.
    """

    def __init__(self, handle_request: HandleRequest) -> None:
        self._handle_request = handle_request

    async def answer(self, body: str, headers: Mapping[str, str]) -> tuple[int, str, str]:
        """Answer one HTTP request that is authentic: status, content type, body.

        Raises:
            ValueError: it cannot be read.
        """
        try:
            request = AsyncBoltRequest(body=body, headers=dict(headers))
        except (AttributeError, TypeError) as error:  # raised by Bolt where JSON is not of the shape that it looks for
            raise ValueError("not a request of Slack's") from error
        response = await self._respond(request)
        return response.status, response.headers.get("content-type", ["text/plain"])[0], response.body or ""

    async def handle(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Answer one envelope of Socket Mode. One that was not accepted gets no answer, so Slack sends it again."""
        try:
            bolt_request = AsyncBoltRequest(mode="socket_mode", body=request.payload)
        except (AttributeError, TypeError, ValueError):
            _log.warning("an envelope is not as Slack describes it; dropped")
            response = BoltResponse(status=200)  # a redelivery would be no better
        else:
            response = await self._respond(bolt_request)
        await send_async_response(client, request, response, 0.0)

    async def _respond(self, request: AsyncBoltRequest) -> BoltResponse:
        if request.body.get("type") == "url_verification":  # https://docs.slack.dev/reference/events/url_verification
            return BoltResponse(status=200, body={"challenge": request.body.get("challenge")})
        try:
            return BoltResponse(status=200, body=await self._handle_request(request.body))
        except Exception:  # noqa: BLE001 (`Inbound.handle` has logged it)
            return BoltResponse(status=500)


class _Connection(SocketModeClient):
    """One connection of Socket Mode, which never reconnects on its own.

    The SDK's own reconnecting uses an expired ticket again and again, hides a revoked token, and has no connection
    while it changes from one to the next. So the owner of this one opens the next, with a new ticket.

    Args:
        ping_s: between two pings; after four without an answer the connection is dead.
    """

    def __init__(self, bolt: Bolt, web: AsyncWebClient, *, ping_s: float) -> None:
        super().__init__(
            app_token="", logger=SDK_LOGGER, web_client=web, auto_reconnect_enabled=False, ping_interval=ping_s
        )
        self._should_disconnect = asyncio.Event()
        self._has_ended = asyncio.Event()
        self.socket_mode_request_listeners.append(bolt.handle)
        self.on_close_listeners.append(self._end)
        self.on_error_listeners.append(self._end)

    async def connect_to_new_endpoint(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 (the SDK's signature)
        """Slack sent `disconnect`: https://docs.slack.dev/apis/events-api/using-socket-mode#disconnect."""
        del force
        self._should_disconnect.set()

    async def open(self, url: str, timeout_s: float) -> None:
        """Connect with a ticket. Raises AdapterNotReady where it is not taken."""
        self.wss_uri = url
        try:
            async with asyncio.timeout(timeout_s):  # the SDK would try for ever
                await self.connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            raise AdapterNotReady("Slack did not take the WebSocket connection") from None

    async def wait_for_disconnect(self) -> bool:
        """Wait until the connection ends.

        Returns:
            True: Slack wants us to open another, and closes this one in some seconds. False: it is lost.
        """
        await self._until(self._should_disconnect, self._has_ended)
        return self._should_disconnect.is_set()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, or dead."""
        await self._until(self._has_ended)

    async def close(self) -> None:
        self.closed = True
        tasks = [self.message_processor, self.message_receiver, self.current_session_monitor]
        try:
            with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):  # the other side may be gone
                async with asyncio.timeout(_CLOSE_S):
                    await self.disconnect()  # type: ignore[no-untyped-call]
        finally:  # a cancelled caller leaves no session open
            await super().close()  # type: ignore[no-untyped-call]
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    async def _until(self, *events: asyncio.Event) -> None:
        """Wait for one of the events, or for the loss of the connection, which the SDK does not tell."""
        waiting = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            while await self.is_connected():
                done, _ = await asyncio.wait(waiting, timeout=_CHECK_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    break
        finally:
            for each in waiting:
                each.cancel()

    async def _end(self, _: aiohttp.WSMessage) -> None:
        self._has_ended.set()


class SocketModeReceiver:
    """Stays connected in Socket Mode."""

    def __init__(self, client: SlackClient, bolt: Bolt) -> None:
        self._client = client
        self._bolt = bolt
        self._ping_s, self._connect_s = 5.0, 10.0
        self._drain_s = 15.0  # after `disconnect`; Slack closes the connection after about ten seconds
        self._socket: _Connection | None = None
        self._draining: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect. Raises as `ChannelAdapter.connect`."""
        url = await self._client.socket_url()
        socket = _Connection(self._bolt, self._client.web, ping_s=self._ping_s)
        try:
            await socket.open(url, self._connect_s)
        except BaseException:
            await socket.close()
            raise
        self._socket = socket

    async def run_until_lost(self) -> None:
        """Stay connected; raises as `open`."""
        while (socket := self._socket) is not None:
            if not await socket.wait_for_disconnect():
                break
            # Open the next one first, so that we stay connected: https://github.com/slackapi/bolt-python/issues/1071
            await self.open()
            task = asyncio.create_task(self._drain(socket))
            self._draining.add(task)
            task.add_done_callback(self._draining.discard)
        raise AdapterNotReady("the connection to Slack was lost")

    async def close(self) -> None:
        """Hang up."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()
        for task in list(self._draining):
            task.cancel()
            await asyncio.wait({task})

    async def _drain(self, socket: _Connection) -> None:
        """Answer what Slack still sends over the old connection, until it is closed."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._drain_s):
                    await socket.wait_closed()
        finally:
            await socket.close()
