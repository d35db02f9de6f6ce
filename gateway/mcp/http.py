"""The transport to a server at an address: the SDK's, over a client that says what became of each request.

The SDK lets a connection that is refused end everything, and cannot tell an error of HTTP from one of the server. So
each failure of a request becomes an error of JSON-RPC here, with a code of ours, which reaches the very call.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from gateway.mcp.errors import MoreWanted, SignInFailed
from gateway.mcp.stdio import MAX_LINE_BYTES

NOT_REACHED, REFUSED, BROKEN, SESSION_GONE = -31_001, -31_002, -31_003, -31_004
NO_TOKEN, MORE_WANTED = -31_005, -31_006
"""Codes of ours, outside the range that JSON-RPC keeps for itself. Not reached, refused: it has not run. Broken: it may
have. Session gone: the server was restarted, and it has not run. No token: nobody is signed in, and it has not run.
More wanted: somebody is, and has allowed too little; it has not run."""
_CONNECT_S, _READ_S = 10.0, 660.0
_SESSION = "mcp-session-id"

Authorize = Callable[[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport]
"""Wraps a transport."""


@asynccontextmanager
async def http_streams(
    url: str, headers: Mapping[str, str], authorize: Authorize = lambda inner: inner
) -> AsyncIterator[TransportStreams]:
    """Messages from a server and to it; nothing is connected before the first. `authorize` adds what proves us."""
    timeout = httpx2.Timeout(_CONNECT_S, read=_READ_S)
    transport = _Telling(authorize(httpx2.AsyncHTTPTransport()))
    async with (
        httpx2.AsyncClient(transport=transport, headers=dict(headers), timeout=timeout) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_LINE_BYTES) as streams,
    ):
        yield streams


class _Telling(httpx2.AsyncBaseTransport):
    """Turns failures of requests into answers."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request; only those that carry a message are answered by us."""
        try:
            response = await self._inner.handle_async_request(request)
        except SignInFailed as error:
            return _failed(request, MORE_WANTED if isinstance(error, MoreWanted) else NO_TOKEN, str(error))
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            is_early = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.UnsupportedProtocol)
            return _failed(request, NOT_REACHED if is_early else BROKEN, str(error) or type(error).__name__)
        code = await _code_of(request, response) if request.method == "POST" else None
        if code is not None:
            await response.aclose()
            return _failed(request, code, f"HTTP {response.status_code}")
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            response.stream = Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _failed(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    answer = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    headers = {"content-type": "application/json"}
    return httpx2.Response(503, headers=headers, content=json.dumps(answer).encode(), request=request)


async def _code_of(request: httpx2.Request, response: httpx2.Response) -> int | None:
    """What a status means to a message; None where the body says it."""
    kind = response.headers.get("content-type", "").lower().partition(";")[0]
    if response.status_code in (401, 403):
        return REFUSED
    if _SESSION in request.headers and (response.status_code == 404 or await _is_answer_to_nothing(response)):
        return SESSION_GONE
    if response.status_code >= 500 and kind != "application/json":
        return BROKEN
    is_no_answer = response.status_code == 200 and kind not in ("application/json", "text/event-stream")
    return BROKEN if is_no_answer else None


async def _is_answer_to_nothing(response: httpx2.Response) -> bool:
    """Whether the server refused the request before it read the message: 400, and an error that names no message.

    The protocol wants 404 for a session that is not known. Servers made after an example of its TypeScript SDK answer
    400, server-everything 2026.8.31 among them.
    """
    if response.status_code != 400:
        return False
    response.stream = Bounded(response.stream)
    try:
        said = json.loads(await response.aread())
    except (ValueError, httpx2.TransportError):
        return False
    return isinstance(said, dict) and "error" in said and said.get("id") is None


class Bounded(httpx2.AsyncByteStream):
    """A body of 8 MB at most."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for piece in self._inner:  # type: ignore[attr-defined]
            seen += len(piece)
            if seen > MAX_LINE_BYTES:
                raise httpx2.ReadError(f"it answered with more than {MAX_LINE_BYTES >> 20} MB")
            yield piece

    async def aclose(self) -> None:
        """End it early."""
        await self._inner.aclose()  # type: ignore[attr-defined]
