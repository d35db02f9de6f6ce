"""Receives Slack's requests over HTTP: Events API, slash commands and interactivity, at one address."""

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


class HttpReceiver:
    """The ASGI application. Nothing is parsed before the signature has been checked.

    While `is_open` is false, Slack is told to send the requests again.
    """

    def __init__(self, bolt: Bolt, signing_secret: str, *, is_open: Callable[[], bool]) -> None:
        self._bolt = bolt
        self._secret = signing_secret
        self._is_open = is_open
        self._now = time.time
        self._expires_at_s: dict[str, float] = {}
        self._closed = asyncio.Event()

    async def open(self) -> None:
        """There is nothing to connect to."""
        self._closed.clear()

    async def run_until_lost(self) -> None:
        """Wait until it is closed."""
        await self._closed.wait()

    async def close(self) -> None:
        """End `run_until_lost`."""
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
            self._expires_at_s[signature] = int(timestamp) + WINDOW_S
        return Response(content, status, media_type=media_type)

    def _is_replayed(self, signature: str) -> bool:
        """The same request was accepted already. Slack signs a redelivery again, with a later time.

        A request that was not accepted may come again with the same signature.
        """
        now_s = self._now()
        while self._expires_at_s and next(iter(self._expires_at_s.values())) < now_s:
            del self._expires_at_s[next(iter(self._expires_at_s))]
        return signature in self._expires_at_s


async def _body(request: Request) -> bytes | None:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
    return body
