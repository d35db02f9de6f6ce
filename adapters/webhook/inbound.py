"""Receives signed messages: an ASGI application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from adapters.webhook.convert import BadMessage, to_inbound
from adapters.webhook.signature import BadSignature, Signer, read_headers
from gateway.errors import EthosError
from gateway.messages import InboundMessage
from gateway.protocols import Accept

BODY_TIMEOUT_S = 10.0
RETRY_AFTER_S = 5

_NOT_KEPT = "The message could not be kept now; send it again. The gateway's log says why."

_log = structlog.get_logger(__name__)


class Refusal(Exception):
    """The request is refused; the text is for its sender."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class WebhookEndpoint:
    """One address. It answers 202 when the message is committed; after any other answer the sender must keep it.

    It checks in this order: the channel is running, the headers are well-formed, the body is small, the signature
    matches its bytes; only then the body is parsed. `realm` says whose user ids come here.
    """

    def __init__(
        self,
        channel: str,
        signer: Signer,
        *,
        realm: str,
        max_body_bytes: int,
        clock: Callable[[], float] = time.time,
        body_timeout_s: float = BODY_TIMEOUT_S,
    ) -> None:
        self._channel = channel
        self._signer = signer
        self._realm = realm
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._body_timeout_s = body_timeout_s
        self._accept: Accept | None = None
        self._accepting: set[asyncio.Future[None]] = set()

    def open(self, accept: Accept) -> None:
        """Accept messages from now on."""
        self._accept = accept

    def close(self) -> None:
        """Answer 503 from now on, also to requests whose message is just being accepted."""
        self._accept = None
        for accepting in self._accepting:
            accepting.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            event_id = await self._receive(request)
        except Refusal as refusal:
            response: Response = JSONResponse({"error": str(refusal)}, refusal.status, refusal.headers)
        except ClientDisconnect:
            response = Response(status_code=400)  # the sender is gone
        else:
            response = JSONResponse({"id": event_id}, status_code=202)
        await response(scope, receive, send)

    async def _receive(self, request: Request) -> str:
        """Have the message accepted; returns its event id once it is committed."""
        if request.scope["path"].removeprefix(request.scope.get("root_path", "")) not in ("", "/"):
            raise Refusal(404, "There is nothing at this address; post to the one of the channel.")
        if request.method != "POST":
            raise Refusal(405, "Post a message here.", allow="POST")
        if self._accept is None:
            raise _unavailable("The channel is not running.")
        now_s = self._clock()
        try:
            headers = read_headers(request.headers.getlist, now_s=now_s)
            body = await self._body(request)
            self._signer.check(headers, body)
        except BadSignature as error:
            _log.debug("webhook_refused", channel=self._channel, reason=str(error))  # anybody can cause this
            raise Refusal(401, str(error), www_authenticate="Standard-Webhooks") from error
        try:
            message = to_inbound(
                body,
                channel=self._channel,
                realm=self._realm,
                event_id=headers.id,
                received_at=datetime.fromtimestamp(now_s, UTC),
            )
        except BadMessage as error:
            _log.warning("webhook_not_understood", channel=self._channel, event_id=headers.id, reason=str(error))
            raise Refusal(400, str(error)) from error
        await self._hand_over(message)
        return headers.id

    async def _body(self, request: Request) -> bytes:
        too_large = Refusal(413, f"The body is too large: {self._max_body_bytes} bytes at most.")
        announced = request.headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > self._max_body_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_timeout_s):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self._max_body_bytes:
                        raise too_large
        except TimeoutError as error:
            raise Refusal(408, "The body did not come in time.", connection="close") from error
        return bytes(body)

    async def _hand_over(self, message: InboundMessage) -> None:
        """Have the message accepted while the channel is open; if that fails, the sender is told to send it again."""
        if self._accept is None:
            raise _unavailable(_NOT_KEPT)
        accepting = asyncio.ensure_future(self._accept(message))
        self._accepting.add(accepting)
        try:
            await asyncio.wait({accepting})
        finally:
            self._accepting.discard(accepting)
            accepting.cancel()
        if accepting.cancelled():  # the channel is stopping
            raise _unavailable(_NOT_KEPT)
        error = accepting.exception()  # whatever it is, an acknowledgement would lose the message
        if isinstance(error, EthosError):
            _log.warning("webhook_not_accepted", channel=self._channel, event_id=message.event_id, reason=str(error))
        elif error is not None:
            _log.error("webhook_not_accepted", channel=self._channel, event_id=message.event_id, exc_info=error)
        if error is not None:
            raise _unavailable(_NOT_KEPT) from error


def _unavailable(text: str) -> Refusal:
    return Refusal(503, text, retry_after=str(RETRY_AFTER_S))
