"""The way to an ASGI application of this process: a gateway that does not run, or one that runs beside the client.

It is a `Transport` without a connection, and loads no HTTP client. An answer is read while it is written, so a file of
any size passes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from gateway.sdk.address import API_PATH, Address
from gateway.sdk.errors import APIConnectionError, APITimeoutError
from gateway.sdk.request import Response
from gateway.sdk.request_sender import RequestSender
from gateway.sdk.transport import EventSource, HttpRequest, complete_file, read_in_thread

Message = MutableMapping[str, Any]
App = Callable[[Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class _Event(NamedTuple):
    """A server-sent event."""

    event: str
    data: str


class InProcessTransport:
    """Gives every request to the application; see `Transport`.

    Args:
        raises_faults: raise what the application raised, in place of its answer that a log says why.
    """

    def __init__(self, app: App, *, raises_faults: bool = False) -> None:
        self._app = app
        self._raises_faults = raises_faults

    async def send(self, request: HttpRequest) -> Response:
        """Send; see `Transport`."""
        try:
            async with asyncio.timeout(request.timeout_s), aclosing(self._exchange(request)) as exchange:
                answer = await exchange.begun()
                if request.download is None or not 200 <= answer.status < 300:
                    body = b"".join([piece async for piece in exchange.pieces()])
                    return Response(status=answer.status, headers=answer.headers, body=body)
                with complete_file(request.download) as file:
                    async for piece in exchange.pieces():
                        await asyncio.to_thread(file.write, piece)
                return answer
        except TimeoutError as error:
            raise APITimeoutError("the gateway takes too long", may_have_arrived=True) from error

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[EventSource]:
        """Open a stream; see `Transport`."""
        async with aclosing(self._exchange(request)) as exchange:
            try:
                answer = await asyncio.wait_for(exchange.begun(), request.timeout_s)
            except TimeoutError as error:
                raise APITimeoutError("the gateway takes too long", may_have_arrived=True) from error
            if answer.status != 200:
                body = b"".join([piece async for piece in exchange.pieces()])
                answer = Response(status=answer.status, headers=answer.headers, body=body)
            yield EventSource(answer, _events(exchange.pieces(), request.timeout_s))

    def _exchange(self, request: HttpRequest) -> _Exchange:
        return _Exchange(self._app, request, raises_faults=self._raises_faults)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """There is no connection."""


def sender_to_app(app: App, *, timeout_s: float, raises_faults: bool = False) -> RequestSender:
    """Sends requests to an application of this process, each once."""
    address = Address(url=f"http://localhost{API_PATH}")
    transport = InProcessTransport(app, raises_faults=raises_faults)
    return RequestSender(transport, lambda: address, timeout_s=timeout_s, max_retries=0)


class _Exchange:
    """One request and its answer, of which one message waits at most."""

    def __init__(self, app: App, request: HttpRequest, *, raises_faults: bool) -> None:
        self._raises_faults = raises_faults
        self._fault: Exception | None = None
        self._body = _body_of(request)
        self._is_whole = False
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=1)
        self._left = asyncio.Event()
        self._answering = asyncio.create_task(self._answer(app, _scope_of(request)), name="request in this process")

    async def begun(self) -> Response:
        """The head of the answer.

        Raises:
            APIConnectionError: the application ended without one.
        """
        start = await self._messages.get()
        if start is None:
            raise self._broken("the gateway gave no answer; its log says why")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        return Response(status=start["status"], headers=headers, body=b"")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """What follows the head.

        Raises:
            APIConnectionError: the application ended before its answer was whole.
        """
        is_whole = False
        while (message := await self._messages.get()) is not None:
            yield message.get("body", b"")
            is_whole = not message.get("more_body", False)
        if not is_whole or (self._raises_faults and self._fault is not None):
            raise self._broken("the gateway broke its answer off; its log says why")

    def _broken(self, what: str) -> Exception:
        if self._raises_faults and self._fault is not None:
            return self._fault
        return APIConnectionError(what, may_have_arrived=True)

    async def aclose(self) -> None:
        """Leave: what is still being answered ends, and no file that was being sent stays open."""
        self._left.set()
        self._answering.cancel()
        await asyncio.wait([self._answering])
        await self._body.aclose()

    async def _answer(self, app: App, scope: Message) -> None:
        try:
            await app(scope, self._receive, self._messages.put)
        except Exception as fault:  # noqa: BLE001 (it has answered and logged it before, as on a socket)
            self._fault = fault
        await self._messages.put(None)

    async def _receive(self) -> Message:
        if self._is_whole:
            await self._left.wait()
            return {"type": "http.disconnect"}
        body = await anext(self._body, None)
        self._is_whole = body is None
        return {"type": "http.request", "body": body or b"", "more_body": not self._is_whole}


async def _body_of(request: HttpRequest) -> AsyncGenerator[bytes, None]:
    if request.content is not None:
        yield request.content
    if request.upload is not None:
        async with aclosing(read_in_thread(request.upload)) as pieces:
            async for piece in pieces:
                yield piece


def _scope_of(request: HttpRequest) -> Message:
    parts = urlsplit(request.url)
    headers = {"host": parts.netloc, **{name.lower(): value for name, value in request.headers.items()}}
    if request.upload is not None:
        headers["content-length"] = str(request.upload.stat().st_size)
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "scheme": parts.scheme,
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "server": (parts.hostname, parts.port),
        "client": None,
        "root_path": "",
    }


async def _events(pieces: AsyncGenerator[bytes, None], silence_s: float) -> AsyncGenerator[_Event, None]:
    """The events of a stream (WHATWG HTML, section 9.2), as `gateway.web.api.events` writes them."""
    rest = b""
    while True:
        try:
            async with asyncio.timeout(silence_s):
                piece = await anext(pieces, None)
        except TimeoutError as error:
            raise APITimeoutError("the gateway sends nothing more", may_have_arrived=True) from error
        if piece is None:
            return
        *frames, rest = (rest + piece).split(b"\n\n")
        for frame in frames:
            fields = dict(line.split(": ", 1) for line in frame.decode().split("\n") if ": " in line[1:])
            if "data" in fields:
                yield _Event(fields.get("event", "message"), fields["data"])
