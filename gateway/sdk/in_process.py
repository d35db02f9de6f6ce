"""An ASGI application of this process as a transport of httpx: what it answers is read while it is written.

`httpx.ASGITransport` holds the whole answer in memory, and an export may be larger than that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import httpx

Message = MutableMapping[str, Any]
App = Callable[[Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class InProcessTransport(httpx.AsyncBaseTransport):
    """Gives every request to the application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Ask, and return as soon as the answer begins.

        Raises:
            httpx.RemoteProtocolError: it ended without an answer.
        """
        exchange = _Exchange(self._app, request)
        try:
            start = await exchange.next()
        except BaseException:
            await exchange.aclose()
            raise
        if start is None:
            raise httpx.RemoteProtocolError("it ended without an answer; its log says why")
        return httpx.Response(start["status"], headers=start["headers"], stream=exchange)


class _Exchange(httpx.AsyncByteStream):
    """One request and its answer, of which one message waits at most."""

    def __init__(self, app: App, request: httpx.Request) -> None:
        if not isinstance(request.stream, httpx.AsyncByteStream):
            raise TypeError("the body of the request cannot be read without blocking")
        self._body = aiter(request.stream)
        self._is_whole = False
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=1)
        self._left = asyncio.Event()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": None,
            "root_path": "",
        }
        self._answering = asyncio.create_task(self._answer(app, scope), name="request in this process")

    async def next(self) -> Message | None:
        """What the application says next; None: it has ended."""
        return await self._messages.get()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self.next()) is not None:
            yield message.get("body", b"")

    async def aclose(self) -> None:
        """Leave: what is still being answered ends."""
        self._left.set()
        self._answering.cancel()
        await asyncio.wait([self._answering])

    async def _answer(self, app: App, scope: Message) -> None:
        with contextlib.suppress(Exception):  # what it raises it has answered and logged before, as on a socket
            await app(scope, self._receive, self._messages.put)
        await self._messages.put(None)

    async def _receive(self) -> Message:
        if self._is_whole:
            await self._left.wait()
            return {"type": "http.disconnect"}
        body = await anext(self._body, None)
        self._is_whole = body is None
        return {"type": "http.request", "body": body or b"", "more_body": not self._is_whole}
