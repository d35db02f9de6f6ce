"""Slack's requests over HTTP: Events API, slash commands and interactivity, on one address."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from adapters.slack.socket_mode import Bolt

WINDOW_S = 300
MAX_BODY_BYTES = 1024 * 1024
_LONGEST_TIMESTAMP = 12


def is_authentic(secret: str, timestamp: str, body: bytes, signature: str, now_s: float) -> bool:
    """Slack signed these bytes, at most five minutes ago.

    https://docs.slack.dev/authentication/verifying-requests-from-slack. The SDK's own check decodes the body first, and
    raises on a timestamp or a signature that cannot be one.
    """
    if not (timestamp.isascii() and timestamp.isdigit()) or len(timestamp) > _LONGEST_TIMESTAMP:
        return False
    if abs(now_s - int(timestamp)) > WINDOW_S:
        return False
    signed = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256)
    return hmac.compare_digest(f"v0={signed.hexdigest()}".encode(), signature.encode("latin-1", "replace"))


class HttpLine:
    """The ASGI application. Nothing is parsed before the signature has been checked.

    Args:
        is_open: requests can be kept now; else Slack is asked to come again.
        now: seconds since 1970.
    """

    def __init__(
        self, bolt: Bolt, signing_secret: str, *, is_open: Callable[[], bool], now: Callable[[], float] = time.time
    ) -> None:
        self._bolt = bolt
        self._secret = signing_secret
        self._is_open = is_open
        self._now = now
        self._kept: dict[str, float] = {}
        self._closed = asyncio.Event()

    async def open(self) -> None:
        """There is nothing to reach: Slack comes to us."""
        self._closed.clear()

    async def hold(self) -> None:
        """Wait until it is closed."""
        await self._closed.wait()

    async def close(self) -> None:
        """End `hold`."""
        self._closed.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            response = await self._answer(Request(scope, receive))
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:  # noqa: PLR0911 (one return for each reason to refuse)
        if request.method == "GET" and request.query_params.get("ssl_check") == "1":
            return PlainTextResponse("")  # Slack looks at our certificate
        if request.method != "POST":
            return PlainTextResponse("Slack posts here.", 405, headers={"allow": "POST"})
        body = await _body(request)
        if body is None:
            return PlainTextResponse("The request is too large.", 413)
        timestamp = request.headers.get("x-slack-request-timestamp", "")
        signature = request.headers.get("x-slack-signature", "")
        if not is_authentic(self._secret, timestamp, body, signature, self._now()) or self._is_replayed(signature):
            return PlainTextResponse("The request is not signed by Slack, or it is old.", 401)
        if not self._is_open():
            return PlainTextResponse("The channel is not running; come again.", 503, headers={"retry-after": "5"})
        try:
            status, media_type, content = await self._bolt.answer(body.decode(), request.headers)
        except ValueError:
            return PlainTextResponse("The request cannot be read.", 400)
        if status == 200:
            self._kept[signature] = int(timestamp) + WINDOW_S
        return Response(content, status, media_type=media_type)

    def _is_replayed(self, signature: str) -> bool:
        """The very same request was kept already. Slack signs anew when it delivers again, at least in a new second.

        What was not kept may come with the same signature.
        """
        now_s = self._now()
        while self._kept and next(iter(self._kept.values())) < now_s:
            del self._kept[next(iter(self._kept))]
        return signature in self._kept


async def _body(request: Request) -> bytes | None:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
    return body
