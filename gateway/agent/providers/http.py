"""HTTP to a provider of models: one session for each endpoint, its connections kept alive.

aiohttp, because a request costs it a fifth of what it costs httpx, and no more at 100 requests at once (0.13 ms of CPU
against 0.6 alone and 1.6 at 100; measured 2026-11). Importing it takes a tenth of a second and reads the system's
certificates, so `models.py` imports this module in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from gateway.agent.providers.models import Endpoint

CONNECT_S = 10.0
KEEPALIVE_S = 30.0
# How long the end of a stream is waited for once all has been said: whole, it leaves a connection for the next call.
DRAIN_S = 1.0
# The longest event of a stream that is read, and the most of the body of an error.
EVENT_BYTES = 16 * 1024 * 1024
ERROR_BYTES = 64 * 1024

_USER_AGENT = "ethos-gateway"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def as_json(value: object) -> bytes:
    """JSON in UTF-8; lone surrogates, which no UTF-8 can carry, become question marks."""
    return _encode(value).encode("utf-8", "replace")


class ProviderHttp:
    """Calls one endpoint."""

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str]) -> None:
        """`headers`: for every request, besides those of the key and of JSON."""
        self._endpoint = endpoint
        self._headers = {"content-type": "application/json", "user-agent": _USER_AGENT, **headers}
        if endpoint.api_key:
            self._headers["authorization"] = f"Bearer {endpoint.api_key}"
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, *, content_type: str | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """The answer as soon as its headers are there; leaving the block before its end closes the connection.

        Args:
            content_type: of a body that is no JSON.
        """
        if self._session is None:
            self._session = self._opened()
        headers = None if content_type is None else {"content-type": content_type}
        async with self._session.post(
            _url(self._endpoint.url, path), data=body, headers=headers, allow_redirects=False
        ) as response:
            yield response

    async def get(self, path: str, *, most_bytes: int) -> tuple[int, bytes]:
        """Status and body of an answer, of so many bytes at most.

        Raises:
            aiohttp.ClientError, OSError: there is none.
        """
        if self._session is None:
            self._session = self._opened()
        async with self._session.get(_url(self._endpoint.url, path), allow_redirects=False) as response:
            return response.status, await read_body(response, most_bytes=most_bytes)

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        read_s = self._endpoint.read_timeout_s
        connect_s = min(CONNECT_S, read_s)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_s, sock_read=read_s),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=_proxy(self._endpoint.url),
        )


async def read_body(response: aiohttp.ClientResponse, *, most_bytes: int) -> bytes:
    """All of an answer.

    Raises:
        aiohttp.ClientError, OSError: it broke off, or is longer.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most_bytes:
            raise aiohttp.ClientError("the answer is too long")
    return bytes(body)


async def read_error(response: aiohttp.ClientResponse) -> object:
    """The body of an error, as far as it comes: the status is known. Nothing of what is longer than an error."""
    body = bytearray()
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async for piece in response.content.iter_any():
            body += piece
            if len(body) >= ERROR_BYTES:
                break
    return parsed(bytes(body))


def parsed(body: bytes) -> object:
    """What the JSON of a body holds; its text, where it is none."""
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class EventStream:
    """Cuts server-sent events out of a stream of bytes, and gives their data.

    https://html.spec.whatwg.org/multipage/server-sent-events.html (read 2026-11). Names of events are passed over: both
    formats repeat them in the data. An event at the very end counts without the blank line that some servers leave out.

    Attributes:
        is_over: OpenAI's mark of the end, `[DONE]`, has come; it is no event.
        other: the beginning of what came, until it is clear that events come.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.other = b""
        self._has_events = False
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._held_bytes = 0

    def feed(self, piece: bytes) -> list[str]:
        """The events that end in this piece.

        Raises:
            ValueError: an event is longer than any real one.
        """
        if not self._has_events and len(self.other) < ERROR_BYTES:
            self.other += piece
        self._line.append(piece)
        self._held_bytes += len(piece)
        events: list[str] = []
        if b"\n" in piece:  # a long line is put together once, and not with each of its pieces
            *lines, rest = b"".join(self._line).split(b"\n")
            self._line = [rest]
            events = self._read(lines)
            self._held_bytes = len(rest) + sum(map(len, self._data)) + len(self._data)
        if self._held_bytes > EVENT_BYTES:
            raise ValueError("an event of the stream is too long")
        return events

    def end(self) -> list[str]:
        """The event that the stream ended in, if any."""
        return self.feed(b"\n\n")

    def _read(self, lines: list[bytes]) -> list[str]:
        events = []
        for line in lines:
            text = line.rstrip(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[6:] if text[5:6] == b" " else text[5:])
            elif not text and self._data:
                self._has_events, self.other = True, b""
                event = b"\n".join(self._data).decode("utf-8", "replace")
                self._data.clear()
                if event.startswith("[DONE]"):
                    self.is_over = True
                else:
                    events.append(event)
        return events


async def drain(response: aiohttp.ClientResponse) -> None:
    """Read what is left of an answer that said it is over, so that its connection can serve again."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in response.content.iter_any():
                continue
    except (TimeoutError, aiohttp.ClientError, OSError):  # all was said; the connection is closed then
        response.close()


def _url(base: str, path: str) -> str:
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def _proxy(url: str) -> str | None:
    """That of the environment. It serves the outside world; it cannot know this machine's own ports.

    Raises:
        aiohttp.ClientConnectionError: it is of a kind that the client does not speak.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host) or proxy_bypass(host):
        return None
    proxies: dict[str, str] = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    if "://" not in proxy:  # as curl takes it
        return f"http://{proxy}"
    kind = urlsplit(proxy).scheme
    if kind not in {"http", "https"}:
        raise aiohttp.ClientConnectionError(
            f"the environment names a proxy of the kind {kind}, and only HTTP proxies can be used; set "
            f"{parts.scheme.upper()}_PROXY to one, or name {host} in NO_PROXY"
        )
    return proxy


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
