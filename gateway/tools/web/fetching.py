"""Fetches one page: public addresses only, few redirects, not for long, and not too much of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp
from aiohappyeyeballs import AddrInfoType
from yarl import URL

from gateway.tools.contract import ToolError, ToolUnavailable
from gateway.tools.web.addresses import NotPublic, public_socket

PORTS = frozenset({80, 443})
MAX_BYTES = 5 << 20
MAX_REDIRECTS = 5
TIMEOUT_S = 20.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK_BYTES = 1 << 16
_MAX_ADDRESS_CHARS = 4_000
_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; EthosGateway; +https://github.com/ethos-gateway)",
    "Accept": "text/html,application/xhtml+xml,text/plain,application/json,application/pdf;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What an address gave.

    Attributes:
        address: where it came from in the end, after redirects.
        media_type: as the server says, without parameters, in small letters.
        charset: as the server says; None where it does not.
        is_cut: there was more than may be read.
    """

    address: str
    media_type: str
    charset: str | None
    data: bytes
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRules:
    """What the operator allows besides.

    Attributes:
        ports: besides 80 and 443.
        private_hosts: names or addresses inside that may be fetched.
    """

    ports: Collection[int] = ()
    private_hosts: Collection[str] = ()
    timeout_s: float = TIMEOUT_S
    max_bytes: int = MAX_BYTES


@dataclass(slots=True)
class Fetcher:
    """Its connections end with each page: nothing is kept open to a server that a page named."""

    rules: WebRules = field(default_factory=WebRules)

    async def fetch(self, address: str, *, headers: Mapping[str, str] = _HEADERS) -> Fetched:
        """Get a page.

        Raises:
            ToolError: the address is none that may be fetched, or the server refuses it.
            ToolUnavailable: the server is not reached, or does not answer in time.
        """
        try:
            async with asyncio.timeout(self.rules.timeout_s):
                return await self._follow(self.checked(address), headers)
        except TimeoutError as error:
            raise ToolUnavailable(f"{_host(address)} did not answer within {self.rules.timeout_s:g} s") from error

    def checked(self, address: str) -> URL:
        """The address in its parts.

        Raises:
            ToolError: it is none that may be fetched; says why.
        """
        if len(address) > _MAX_ADDRESS_CHARS:
            raise ToolError(f"the address is longer than {_MAX_ADDRESS_CHARS} characters")
        try:
            url = URL(address.strip())
            host, port = url.host, url.port
        except ValueError as error:
            raise ToolError(f"{address!r} is not an address; use one such as https://example.org/page") from error
        if url.scheme not in ("http", "https") or not host:
            raise ToolError(f"{address!r} is not a web address; use one such as https://example.org/page")
        if url.user is not None or url.password is not None:
            raise ToolError("the address holds a user or a password; use it without")
        if port not in PORTS and port not in self.rules.ports:
            raise ToolError(f"port {port} is not allowed; only 80, 443 and those that the operator allows are")
        return url.with_fragment(None)

    async def _follow(self, url: URL, headers: Mapping[str, str]) -> Fetched:
        """No error holds anything that a server says: it is no result, so it would not count as words of others."""
        who = first = url.host or ""
        for _ in range(MAX_REDIRECTS + 1):
            async with self._asked(url, headers, who) as response:
                if response.status in _REDIRECTS and "Location" in response.headers:
                    try:
                        url = self.checked(_joined(url, response.headers["Location"]))
                    except ToolError as error:
                        raise ToolError(f"{first} redirects to an address that may not be fetched") from error
                    who = f"the server to which {first} redirects"
                    continue
                if response.status >= 400:
                    what = ToolUnavailable if response.status >= 500 else ToolError
                    raise what(f"{who} answered {response.status} {_phrase(response.status)}".strip())
                return await self._read(url, response)
        raise ToolError(f"{first} makes more than {MAX_REDIRECTS} redirects")

    @contextlib.asynccontextmanager
    async def _asked(self, url: URL, headers: Mapping[str, str], who: str) -> AsyncIterator[aiohttp.ClientResponse]:
        refused: list[NotPublic] = []

        def made(info: AddrInfoType) -> socket.socket:
            try:
                return public_socket(info)
            except NotPublic as error:
                refused.append(error)
                raise

        is_inside = (url.host or "").lower() in {name.lower() for name in self.rules.private_hosts}
        connector = aiohttp.TCPConnector(
            socket_factory=None if is_inside else made, use_dns_cache=False, force_close=True
        )
        jar = aiohttp.DummyCookieJar()
        try:
            async with (
                aiohttp.ClientSession(connector=connector, cookie_jar=jar, trust_env=False) as session,
                session.get(url, headers=headers, allow_redirects=False) as response,
            ):
                yield response
        except aiohttp.ClientConnectorError as error:
            if refused:
                raise ToolError(f"{who} is not on the public internet") from error
            raise ToolUnavailable(f"{who} is not reached: {error.os_error.strerror or 'no connection'}") from error
        except aiohttp.ClientError as error:
            raise ToolUnavailable(f"{who} answered badly: {type(error).__name__}") from error

    async def _read(self, url: URL, response: aiohttp.ClientResponse) -> Fetched:
        data = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            data += chunk
            if len(data) > self.rules.max_bytes:
                break
        return Fetched(
            address=str(url),
            media_type=response.content_type.lower(),
            charset=response.charset,
            data=bytes(data[: self.rules.max_bytes]),
            is_cut=len(data) > self.rules.max_bytes,
        )


def _phrase(status: int) -> str:
    """The standard's own words, since a server may say anything there."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else ""


def _joined(url: URL, target: str) -> str:
    try:
        return str(url.join(URL(target)))
    except ValueError:
        return target  # which is no address, and is refused as one


def _host(address: str) -> str:
    with contextlib.suppress(ValueError):
        return URL(address).host or address[:100]
    return address[:100]
