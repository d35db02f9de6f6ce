"""Checks against pages of others: names, origins and cookies that are not ours, and the headers of every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from gateway.web.auth import Proof

COOKIE_PREFIX = b"ethos_"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
        "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # Under `no-referrer` a browser sends `Origin: null` with the login form (Fetch standard, "append a request Origin
    # header"). The one address with a token in it is answered by a redirect that says `no-referrer`.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def own_cookies(header: bytes) -> bytes:
    """A Cookie header without the cookies of others, and without those in quotes, as which we set none.

    To unquote 60 KB of backslashes, which any stranger can send, keeps Python before 3.11.10 and 3.12.6 busy for 20 s
    (CVE-2024-7592).
    """
    pairs = (pair.strip() for pair in header.split(b";"))
    return b"; ".join(pair for pair in pairs if pair.startswith(COOKIE_PREFIX) and b'"' not in pair)


def hostname(host: str) -> str:
    """The name in a Host header, without its port: `[::1]:8420` is `[::1]`."""
    host = host.strip().lower()
    if host.startswith("["):
        name, _, port = host.partition("]")
        return name + "]" if not port or port.startswith(":") else host
    return host.partition(":")[0].rstrip(".")


def wrong_host(hosts: Sequence[str]) -> str:
    """What is wrong with the Host headers of a request, for people."""
    if len(hosts) != 1:
        return "The request must name one host."
    return (
        f"This gateway does not answer to the name {hostname(hosts[0])!r}. Open it under a name that it knows, or add "
        "this one to web.allowed_hosts in config.yaml."
    )


def is_own_page(scope: Scope, headers: Headers, host: str, proof: Proof) -> bool:
    """Whether a page of ours, or no page at all, made the request.

    SameSite does not suffice: every port of one machine is the same site, and so sends our cookie. A browser tells the
    truth in Origin and Sec-Fetch-Site, which no page can set.
    """
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site", "")
    is_safe = scope["type"] == "http" and scope["method"] in SAFE_METHODS
    if origin is not None:
        parts = urlsplit(origin) if origin != "null" else None
        return parts is not None and parts.scheme in ("http", "https") and parts.netloc.lower() == host.strip().lower()
    if site in ("cross-site", "same-site"):  # a person may follow a link to us; nothing else is loaded from elsewhere
        return is_safe and headers.get("sec-fetch-mode") == "navigate"
    # A browser sends an Origin with all that is unsafe. Without one it is a program, which has no business with a
    # cookie; the applications that are open to the public check their own callers.
    return is_safe or proof != "cookie" or site == "same-origin"


def is_opened_by_a_person(headers: Headers) -> bool:
    """Whether an address was typed, or opened from another program or a page of ours (W3C Fetch Metadata)."""
    site, destination = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-dest", "document")
    return site in ("none", "same-origin") and destination == "document"


def until(ended: Callable[[], Awaitable[object]], receive: Receive) -> Receive:
    """To an application that has the whole request and asks for what comes next, the end looks like a client that left.

    The request itself is passed on as it comes, without a task of its own: most applications ask for nothing else.
    """
    is_whole = False

    async def receive_until_ended() -> Message:
        nonlocal is_whole
        if not is_whole:
            message = await receive()
            is_whole = not message.get("more_body", False)
            return message
        arriving = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(ended())
        try:
            await asyncio.wait({arriving, ending}, return_when=asyncio.FIRST_COMPLETED)
            return arriving.result() if arriving.done() else {"type": "http.disconnect"}
        finally:
            arriving.cancel()
            ending.cancel()

    return receive_until_ended


def with_security_headers(send: Send) -> Send:
    """Add `SECURITY_HEADERS` to an answer, as far as it does not say otherwise itself."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers
