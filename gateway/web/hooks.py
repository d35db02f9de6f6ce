"""`/hooks/NAME`: a service calls, and a turn begins.

What the answers say of a hook they say only to who has shown its secret: without it, a hook that is there and one that
is not are answered alike.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.errors import EthosError
from gateway.web.pages import problem_response

if TYPE_CHECKING:
    from gateway.schedules.calls import Hooks

PATH = "/hooks"
MAX_BODY_BYTES = 100_000
BODY_TIMEOUT_S = 10.0
PAUSED_S, BUSY_S, NOT_READY_S = 600, 60, 30
_FORM = "application/x-www-form-urlencoded"
_TEXTS = re.compile(r"text/.+|application/(.+\+)?(json|xml|yaml)|application/(x-yaml|x-ndjson)")
_NOT_PROVED = (
    "There is no such hook, or the call does not show its secret. docs/hooks.md says how a call is signed: the body "
    "exactly as it is sent, with the secret of this hook."
)
_NOTHING = "There is nothing at this address."

_log = structlog.get_logger(__name__)


class _Refusal(Exception):
    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class HookEndpoint:
    """All hooks. It answers 202 when the call is on disk; after any other answer the service must keep it."""

    def __init__(self, hooks: Callable[[], Hooks], *, body_timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._hooks = hooks
        self._body_timeout_s = body_timeout_s
        self._keeping: set[asyncio.Task[str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            response = await self._take(request)
        except _Refusal as refusal:
            response = problem_response(scope, refusal.status, str(refusal))
            response.headers.update(refusal.headers)
        await response(scope, receive, send)

    async def _take(self, request: Request) -> Response:
        from gateway.domain.hook_proofs import Call, NotProved  # noqa: PLC0415 (loaded with the first call)

        path = request.scope["path"].removeprefix(request.scope.get("root_path", "")).strip("/")
        name, _, token = path.partition("/")
        if not name or "/" in token:
            raise _Refusal(404, _NOTHING)
        if request.method != "POST":
            raise _Refusal(405, "A service posts here.", allow="POST")
        hooks, body = self._hooks(), await self._body(request)
        call = Call(header=request.headers.getlist, body=body, token=token, at_s=hooks.now().timestamp())
        try:
            delivery = hooks.delivery(name, call)
        except NotProved as error:
            if token:
                raise _Refusal(404, _NOTHING) from None
            raise _Refusal(401, error.hint or _NOT_PROVED, www_authenticate="Hook") from None
        text = _text(request.headers.get("content-type", ""), body)
        return _answer(await self._kept(hooks, name, delivery, text), delivery)

    async def _kept(self, hooks: Hooks, name: str, delivery: str, text: str) -> str:
        """Have it committed, also if the service goes away meanwhile; what became of it."""
        keeping: asyncio.Task[str] = asyncio.create_task(hooks.take(name, delivery, text), name=name)
        self._keeping.add(keeping)
        keeping.add_done_callback(self._kept_or_not)
        try:
            return await asyncio.shield(keeping)
        except EthosError as error:
            text = "The call could not be kept now; send it again. The gateway's log says why."
            raise _Refusal(503, text, retry_after=str(NOT_READY_S)) from error

    def _kept_or_not(self, keeping: asyncio.Task[str]) -> None:
        self._keeping.discard(keeping)
        if not keeping.cancelled() and (error := keeping.exception()) is not None:
            fault = None if isinstance(error, EthosError) else error
            _log.warning("hook_not_taken", hook=keeping.get_name(), error=str(error), exc_info=fault)

    async def settled(self) -> None:
        """Wait until the calls of services that went away are committed, or are not; for the end of the server."""
        while self._keeping:
            await asyncio.wait(self._keeping)

    async def _body(self, request: Request) -> bytes:
        too_large = _Refusal(413, f"The body is too large: {MAX_BODY_BYTES} bytes at most.", connection="close")
        announced = request.headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > MAX_BODY_BYTES:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_timeout_s):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        raise too_large
        except TimeoutError as error:
            raise _Refusal(408, "The body did not come in time.", connection="close") from error
        return bytes(body)


def _answer(taken: str, delivery: str) -> Response:
    if taken == "full":
        text = "Calls of this hook wait already, as many as may; send it again later."
        raise _Refusal(429, text, retry_after=str(BUSY_S))
    if taken == "paused":
        raise _Refusal(503, "This hook is paused; send it again later.", retry_after=str(PAUSED_S))
    if taken == "gone":
        raise _Refusal(401, _NOT_PROVED, www_authenticate="Hook")
    return JSONResponse({"id": delivery, "new": taken == "new"}, status_code=202)


def _text(content_type: str, body: bytes) -> str:
    """What was sent, as a model reads it; a form as lines."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        kind, text = "other bytes", ""
    if "\0" in text or not (kind in ("", _FORM) or _TEXTS.fullmatch(kind)):
        raise _Refusal(415, "A hook takes JSON, text and forms, in UTF-8; files go nowhere.")
    if kind != _FORM:
        return text
    try:
        fields = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=1_000, errors="strict"
        )
    except ValueError:
        raise _Refusal(415, "The body is no form, and its content type says that it is one.") from None
    return "\n".join(f"{name}: {value}" for name, value in fields)
