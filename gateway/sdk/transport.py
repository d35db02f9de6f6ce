"""The two ways to a gateway: one that waits in an event loop, one that blocks; for a third see `in_process.py`.

Only this file knows httpx. Both ways have the same `async` methods. Those of the blocking one never wait in the sense
of asyncio, so code over them runs to its end in one go, without an event loop: see `gateway.sdk.styles.run`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from gateway.files.unix_socket import short_path
from gateway.sdk.errors import APIConnectionError, APIResponseValidationError, APITimeoutError
from gateway.sdk.request import Response

if TYPE_CHECKING:  # httpx takes a tenth of a second to load; only a client that is made needs it
    import httpx
    from httpx_sse import ServerSentEvent

CONNECT_TIMEOUT_S = 5.0
PIECE_BYTES = 1 << 18
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
USER_AGENT = "ethos-gateway-sdk"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request, ready to be sent; `upload` and `download` are files, which pass through in pieces.

    Attributes:
        socket: the Unix socket on which the gateway is reached, in place of the URL's host.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None
    timeout_s: float
    upload: Path | None = None
    download: Path | None = None
    socket: Path | None = None


class SentEvent(Protocol):
    """A server-sent event."""

    @property
    def event(self) -> str:
        """Its name."""

    @property
    def data(self) -> str:
        """Its lines."""


@dataclass(frozen=True, slots=True)
class EventSource:
    """A stream that was opened; where the status is not 200 there are no events, and `response` says why."""

    response: Response
    events: AsyncIterator[SentEvent]


class Transport(Protocol):
    """Sends, waits, and is closed."""

    async def send(self, request: HttpRequest) -> Response:
        """Send a request, and read all of its answer.

        Raises:
            APIConnectionError: no whole answer came.
        """

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[EventSource]:
        """Open a stream of events; raises as `send`, also from within `events`."""

    async def pause(self, seconds: float) -> None:
        """Wait."""

    async def close(self) -> None:
        """Close the connections."""


class AsyncTransport:
    """For programs with an event loop."""

    def __init__(self) -> None:
        self._clients: dict[Path | bool, httpx.AsyncClient] = {}
        self._kept = ExitStack()

    async def send(self, request: HttpRequest) -> Response:
        """Send; see `Transport`."""
        arguments = dict(_arguments(request))
        if request.upload is not None:
            arguments["content"] = read_in_thread(request.upload)
        with _translated_errors(request):
            async with self._client(request).stream(**arguments) as response:
                answer = Response(status=response.status_code, headers=response.headers, body=b"")
                if request.download is None or not response.is_success:
                    return replace(answer, body=await response.aread())
                with complete_file(request.download) as file:
                    async for piece in response.aiter_bytes(PIECE_BYTES):
                        await asyncio.to_thread(file.write, piece)
                return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[EventSource]:
        """Open a stream; see `Transport`."""
        import httpx_sse  # noqa: PLC0415 (see above)

        with _translated_errors(request):
            async with self._client(request).stream(**_arguments(request)) as response:
                body = b"" if response.status_code == 200 else await response.aread()
                answer = Response(status=response.status_code, headers=response.headers, body=body)
                yield EventSource(answer, httpx_sse.EventSource(response).aiter_sse())

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()
        self._kept.close()

    def _client(self, request: HttpRequest) -> httpx.AsyncClient:
        import httpx  # noqa: PLC0415 (see above)

        way = request.socket or _is_loopback(request.url)
        if way not in self._clients:
            transport: httpx.AsyncBaseTransport | None = None
            if request.socket is not None:
                socket = self._kept.enter_context(short_path(request.socket))
                transport = httpx.AsyncHTTPTransport(uds=socket, verify=False)
            self._clients[way] = httpx.AsyncClient(transport=transport, trust_env=not way)
        return self._clients[way]


class SyncTransport:
    """For programs without one; may be used by several threads."""

    def __init__(self) -> None:
        self._clients: dict[Path | bool, httpx.Client] = {}
        self._kept = ExitStack()
        self._lock = Lock()

    async def send(self, request: HttpRequest) -> Response:
        """Send; see `Transport`."""
        arguments = dict(_arguments(request))
        if request.upload is not None:
            arguments["content"] = _read(request.upload)
        with _translated_errors(request), self._client(request).stream(**arguments) as response:
            answer = Response(status=response.status_code, headers=response.headers, body=b"")
            if request.download is None or not response.is_success:
                return replace(answer, body=response.read())
            with complete_file(request.download) as file:
                for piece in response.iter_bytes(PIECE_BYTES):
                    file.write(piece)
            return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[EventSource]:
        """Open a stream; see `Transport`."""
        import httpx_sse  # noqa: PLC0415 (see above)

        with _translated_errors(request), self._client(request).stream(**_arguments(request)) as response:
            body = b"" if response.status_code == 200 else response.read()
            answer = Response(status=response.status_code, headers=response.headers, body=body)
            yield EventSource(answer, _as_async(httpx_sse.EventSource(response).iter_sse()))

    async def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: ASYNC251 (that it blocks is its purpose)

    async def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()
            self._kept.close()

    def _client(self, request: HttpRequest) -> httpx.Client:
        import httpx  # noqa: PLC0415 (see above)

        way = request.socket or _is_loopback(request.url)
        with self._lock:
            if way not in self._clients:
                transport = None
                if request.socket is not None:
                    socket = self._kept.enter_context(short_path(request.socket))
                    transport = httpx.HTTPTransport(uds=socket, verify=False)
                self._clients[way] = httpx.Client(transport=transport, trust_env=not way)
            return self._clients[way]


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


async def read_in_thread(path: Path) -> AsyncGenerator[bytes, None]:
    """A file piece by piece."""
    file = await asyncio.to_thread(path.open, "rb")
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


@contextmanager
def complete_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only once it is whole."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            yield file
            file.close()
            Path(file.name).replace(path)
        finally:
            Path(file.name).unlink(missing_ok=True)


async def _as_async(events: Iterator[ServerSentEvent]) -> AsyncIterator[ServerSentEvent]:
    for event in events:
        yield event


def _arguments(request: HttpRequest) -> Mapping[str, Any]:
    import httpx  # noqa: PLC0415 (see above)

    return {
        "method": request.method,
        "url": request.url,
        "headers": {"user-agent": USER_AGENT, **request.headers},
        "content": request.content,
        "timeout": httpx.Timeout(request.timeout_s, connect=min(CONNECT_TIMEOUT_S, request.timeout_s)),
        "follow_redirects": False,  # the key goes to no other host
    }


def _is_loopback(url: str) -> bool:
    """Whether it is this machine, which is reached without a proxy."""
    return urlsplit(url).hostname in LOOPBACK


@contextmanager
def _translated_errors(request: HttpRequest) -> Iterator[None]:
    """Turn httpx's errors into ours, which name the socket or the address."""
    import httpx  # noqa: PLC0415 (see above)
    import httpx_sse  # noqa: PLC0415 (see above)

    unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
    try:
        yield
    except (httpx_sse.SSEError, httpx.DecodingError) as error:
        raise APIResponseValidationError(f"{_place(request)} does not answer as Ethos Gateway does: {error}") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        what = str(error) or type(error).__name__
        arrived = not isinstance(error, (*unsent, httpx.InvalidURL))
        kind = APITimeoutError if isinstance(error, httpx.TimeoutException) else APIConnectionError
        raise kind(f"{_place(request)} does not answer: {what}", may_have_arrived=arrived) from error


def _place(request: HttpRequest) -> str:
    parts = urlsplit(request.url)
    return f"{parts.scheme}://{parts.netloc}" if request.socket is None else str(request.socket)
