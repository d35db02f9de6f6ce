"""Answers the two requests of every conversation, a message and its stream of events, before they reach FastAPI.

FastAPI's dependencies, routers and serialization cost more than the message itself, and a third of a stream's memory.
A plain, valid request is answered here by the same service that the routes in `chat` ask. Every other request goes to
those routes unchanged, so refusals and their texts have one place.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from pydantic import ValidationError
from starlette._utils import get_route_path
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import EthosError
from gateway.sdk.models.chat import SendMessage
from gateway.services.caller import Caller
from gateway.services.operator_services import OperatorServices
from gateway.web.api.events import PLACE, EventStreamResponse, framed
from gateway.web.api.idempotency import replayed
from gateway.web.api.problems import on_error, on_fault
from gateway.web.auth import CALLER, PROOF

MESSAGES = "/chat/messages"
EVENTS = "/chat/events"
_JSON = "application/json"


class DirectChat:
    """Stands before the application; its `receive` gives the body of a write at once, as `IdempotentWrites` does."""

    def __init__(self, app: ASGIApp, services: OperatorServices) -> None:
        self._app = app
        self._desks = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        caller = scope.get(CALLER)
        if not isinstance(caller, Caller):
            await self._app(scope, receive, send)
        elif _is_plain_message(scope) and caller.may("chat:write"):
            body = (await receive())["body"]
            try:
                message = SendMessage.model_validate_json(body)
            except ValidationError:
                await self._app(scope, replayed(body, receive), send)
                return
            response = await _answer(scope, self._send(caller, message, Headers(scope=scope).get("idempotency-key")))
            await response(scope, receive, send)
        elif _is_plain_stream(scope) and caller.may("chat:read"):
            after = int(Headers(scope=scope).get("last-event-id", "0"))
            session = QueryParams(scope["query_string"])["session"]
            response = await _answer(scope, self._events(caller, session, after))
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _send(self, caller: Caller, message: SendMessage, seed: str | None) -> Response:
        sent = await self._desks.chat.send(caller, message, seed=seed)
        return Response(sent.model_dump_json(by_alias=True), status_code=202, media_type=_JSON)

    async def _events(self, caller: Caller, session: str, after: int) -> Response:
        found = await self._desks.chat.events(caller, session, after=after)
        return EventStreamResponse(framed(found, partial(self._desks.keys.is_in_force, caller)))


async def _answer(scope: Scope, asked: Awaitable[Response]) -> Response:
    try:
        return await asked
    except EthosError as error:
        return await on_error(Request(scope), error)
    except Exception as error:  # noqa: BLE001 (a fault of ours: the log has it all, the caller nothing of it)
        return await on_fault(Request(scope), error)


def _is_plain_message(scope: Scope) -> bool:
    return (
        _is(scope, "POST", MESSAGES)
        and not scope["query_string"]
        and scope.get(PROOF) in ("bearer", "key")
        and Headers(scope=scope).get("content-type") == _JSON
    )


def _is_plain_stream(scope: Scope) -> bool:
    if not _is(scope, "GET", EVENTS):
        return False
    asked = QueryParams(scope["query_string"]).multi_items()
    return (
        [name for name, _ in asked] == ["session"]
        and 1 <= len(asked[0][1]) <= 64
        and PLACE.fullmatch(Headers(scope=scope).get("last-event-id", "0")) is not None
    )


def _is(scope: Scope, method: str, path: str) -> bool:
    return scope["type"] == "http" and scope["method"] == method and get_route_path(scope) == path
