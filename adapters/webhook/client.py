"""Posts each reply as one signed request. The only file that touches the HTTP client."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx

from gateway.errors import AdapterNotReady, PermanentSendError, SendError, TransientSendError, UncertainSendError

CONNECT_TIMEOUT_S = 10.0
LONGEST_RETRY_AFTER_S = 24 * 3600.0
MAX_DRAINED_BYTES = 64 * 1024
"""Of a response, whose content means nothing to us; when it is read whole, the connection can be used again."""

# All that the client raises; TimeoutError is an OSError.
_ERRORS = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, httpx.CookieConflict, OSError)
_REFUSED_NOW = {
    408: "did not get the request in time",  # RFC 9110, section 15.5.9
    425: "does not take it yet",  # RFC 8470
    429: "asks us to slow down",
    503: "is not ready",
}
_REFUSED = {
    401: "refuses the signature; compare the secrets of both sides, and their clocks",
    403: "refuses the signature; compare the secrets of both sides, and their clocks",
    410: "wants no more replies; change reply_url, or disable the channel",
}


def is_loopback(url: str) -> bool:
    """Whether it is an address of this machine only."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class WebhookClient:
    """Posts to one address; several requests at once, for several conversations, each within `timeout_s`."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._url = url
        # Errors name the host only: the rest of an address often holds a key.
        self._host = urlsplit(url).netloc
        self._timeout_s = timeout_s
        self._transport = transport
        self._now = now
        self._http: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Prepare to post; nothing is sent. Idempotent."""
        if self._http is not None:
            return
        trusting_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # quick to make, for an address without TLS
        is_encrypted = self._url.startswith("https:")
        self._http = httpx.AsyncClient(
            verify=await asyncio.to_thread(httpx.create_ssl_context) if is_encrypted else trusting_nobody,
            timeout=httpx.Timeout(self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # keeps no cookie
            trust_env=not is_loopback(self._url),  # no proxy for this machine's own address
            headers={"user-agent": "ethos-gateway", "content-type": "application/json"},
            transport=self._transport,
        )

    async def post(self, headers: Mapping[str, str], body: bytes) -> None:
        """Send it; returns when the other side has confirmed it. Raises as `ChannelAdapter.send`."""
        if self._http is None:
            raise TransientSendError("the channel is not connected")
        is_out = False
        response: httpx.Response | None = None

        async def watch(event: str, _details: object) -> None:
            nonlocal is_out
            is_out = is_out or ".send_request_headers." in event

        extensions = {"trace": watch}  # https://www.python-httpx.org/advanced/extensions/#trace
        try:
            async with asyncio.timeout(self._timeout_s):
                request = self._http.build_request(
                    "POST", self._url, headers=dict(headers), content=body, extensions=extensions
                )
                response = await self._http.send(request, stream=True)
                async with contextlib.aclosing(response):
                    await _drain(response)
        except _ERRORS as error:
            if response is None:  # else its status counts, even without its body
                raise self._error_of(error, is_out=is_out) from error
        self._raise_for_status(response)

    async def reach(self) -> None:
        """Open a connection to the other side and close it; nothing is sent.

        Raises:
            AdapterNotReady: no program listens there, or its certificate is not trusted.
        """
        parts = urlsplit(self._url)
        is_encrypted = parts.scheme == "https"
        context = await asyncio.to_thread(httpx.create_ssl_context) if is_encrypted else None
        port = parts.port or (443 if is_encrypted else 80)
        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self._timeout_s)):
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
        except ssl.SSLCertVerificationError as error:
            raise AdapterNotReady(f"the certificate of {self._host} is not trusted ({error.verify_message})") from error
        except (OSError, ValueError) as error:  # a TimeoutError is an OSError
            raise AdapterNotReady(f"{self._host} cannot be reached ({type(error).__name__})") from error
        writer.transport.abort()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def _error_of(self, error: Exception, *, is_out: bool) -> SendError:
        """What a request without an answer means: only one that never went out was certainly not taken."""
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol)):
            return PermanentSendError(f"reply_url cannot be used ({type(error).__name__}); correct it")
        if is_out:
            return UncertainSendError(f"{self._host} did not confirm the reply ({reason})")
        return TransientSendError(f"{self._host} cannot be reached ({reason})")

    def _raise_for_status(self, response: httpx.Response) -> None:
        """What the status means: Standard Webhooks, "Delivery success and failure", and RFC 9110."""
        status = response.status_code
        if 200 <= status < 300:
            return
        said = f"{self._host} answered {status}"
        if status in _REFUSED_NOW:
            raise TransientSendError(f"{said}: it {_REFUSED_NOW[status]}", retry_after_s=self._retry_after_s(response))
        if status >= 500:  # it may have kept the reply before it failed
            raise UncertainSendError(f"{said}: it failed")
        if 300 <= status < 400:
            raise PermanentSendError(f"{said}: redirects are not followed; set reply_url to the last address")
        raise PermanentSendError(f"{said}: it {_REFUSED.get(status, 'refuses the reply')}")

    def _retry_after_s(self, response: httpx.Response) -> float | None:
        """Seconds, or a date, of RFC 9110, section 10.2.3; None where there is neither."""
        value = response.headers.get("retry-after", "").strip()
        if value.isascii() and value.isdigit():
            return min(float(value[:9]), LONGEST_RETRY_AFTER_S)
        try:
            moment = email.utils.parsedate_to_datetime(value)
        except ValueError:
            return None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return min(max(0.0, (moment - self._now()).total_seconds()), LONGEST_RETRY_AFTER_S)


async def _drain(response: httpx.Response) -> None:
    """Read the response's body, up to a limit."""
    read_bytes = 0
    async for chunk in response.aiter_raw():
        read_bytes += len(chunk)
        if read_bytes > MAX_DRAINED_BYTES:
            return
