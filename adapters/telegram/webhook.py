"""The webhook: Telegram calls us, and repeats the call until we answer 200, which we do after the commit.

https://core.telegram.org/bots/api#setwebhook
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from adapters.telegram.client import TelegramClient
from adapters.telegram.polling import HandleUpdate, OnCaughtUp
from gateway.errors import AdapterNotReady

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 (the header's name)
MAX_UPDATE_BYTES = 2 * 1024 * 1024
_CHECK_S = 300.0

_log = logging.getLogger(__name__)


class Webhook:
    """Takes updates from HTTP requests while `run` does."""

    def __init__(self, client: TelegramClient, *, url: str, secret: str, check_s: float = _CHECK_S) -> None:
        """`url` is the public address of `app`; every `check_s` it is checked that Telegram still calls it."""
        self._client = client
        self._url = url
        self._secret = secret.encode()
        self._check_s = check_s
        self._handle: HandleUpdate | None = None
        self._in_progress: set[asyncio.Future[None]] = set()

    async def prepare(self) -> None:
        """Register the address."""
        await self._client.set_webhook(self._url, self._secret.decode())

    async def run(self, handle: HandleUpdate, caught_up: OnCaughtUp) -> None:
        """Answer calls until cancelled, until another process changes the address, or Telegram cannot be asked."""
        self.take(handle)
        try:
            while True:
                await caught_up()
                await asyncio.sleep(self._check_s)
                if await self._client.webhook_url() != self._url:
                    raise AdapterNotReady("another process has changed the bot's webhook; stop it")
        finally:
            self.stop()

    def take(self, handle: HandleUpdate) -> None:
        """Answer calls from now on."""
        self._handle = handle

    def stop(self) -> None:
        """Answer 503 from now on, also to the calls in progress; Telegram repeats them."""
        self._handle = None
        for task in self._in_progress:
            task.cancel()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            status = await self._answer(request)
        except ClientDisconnect:
            return
        # By another connection the next call may reach another worker, which has the channel.
        headers = {"connection": "close"} if status == 503 else None
        await Response(status_code=status, headers=headers)(scope, receive, send)

    async def _answer(self, request: Request) -> int:
        if self._handle is None:
            return 503
        if request.method != "POST":
            return 405
        # Before the body is read: without the secret a caller costs us nothing.
        given = request.headers.get(SECRET_HEADER, "").encode("latin-1")
        if not hmac.compare_digest(given, self._secret):
            return 401
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_UPDATE_BYTES:
                return 413
        update = _parsed(body)
        if update is None:
            return 400
        return 200 if await self.is_handled(update) else 503

    async def is_handled(self, update: dict[str, Any]) -> bool:
        """Whether an update, called with here or at another worker, is committed now; else it must come again."""
        if self._handle is None:
            return False
        task = asyncio.ensure_future(self._handle(update))
        self._in_progress.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._in_progress.discard(task)
            task.cancel()
        if task.cancelled():
            return False
        error = task.exception()
        if error is not None:
            _log.warning("a message was not taken, and will come again: %s", error)
        return error is None


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        update = json.loads(body)
    except ValueError:
        return None
    return update if isinstance(update, dict) else None
