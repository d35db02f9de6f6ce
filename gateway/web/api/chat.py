"""`/chat`: say something, follow what happens, stop it."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import ValidationError
from starlette._utils import get_route_path
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import EthosError
from gateway.sdk.models.chat import AcceptedMessage, SendMessage, StopAnswer
from gateway.services.caller import Caller
from gateway.services.operator_services import OperatorServices
from gateway.web.api.access import WithServices, requires
from gateway.web.api.answers import Answers, problems
from gateway.web.api.events import PLACE, EventStreamResponse, LastEventId, framed
from gateway.web.api.idempotency import replayed
from gateway.web.api.problems import on_error, on_fault
from gateway.web.auth import CALLER, PROOF

router = APIRouter(prefix="/chat", tags=["chat"])

Reader = Annotated[Caller, Depends(requires("chat:read"))]
Writer = Annotated[Caller, Depends(requires("chat:write"))]
Seed = Annotated[str | None, Header(alias="idempotency-key", include_in_schema=False)]
_ANOTHER = "The session belongs to another channel; fork it."
_STREAM: Answers = {
    200: {
        "description": "`message`, `preview`, `tool`, `typing`, `live` and `reset`, each with JSON as its data.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.post(
    "/messages",
    status_code=202,
    responses=problems(not_found="There is no such session or personality.", not_possible=_ANOTHER),
    summary="Send a message",
)
async def send(caller: Writer, services: WithServices, body: SendMessage, seed: Seed = None) -> AcceptedMessage:
    """Send a message, in a session or in a new one. With 202 it is committed, and cannot be lost any more."""
    return await services.chat.send(caller, body, seed=seed)


@router.post(
    "/stop",
    status_code=202,
    responses=problems(not_found="There is no such session.", not_possible=_ANOTHER),
    summary="Stop the answer",
)
async def stop(caller: Writer, services: WithServices, body: StopAnswer, seed: Seed = None) -> AcceptedMessage:
    """End the answer that is being written; what there is of it stays."""
    return await services.chat.stop(caller, body.session, seed=seed)


@router.get(
    "/events",
    response_class=Response,
    responses={**_STREAM, **problems(not_found="There is no such session.", not_possible=_ANOTHER)},
    summary="Stream events",
)
async def events(
    caller: Reader,
    services: WithServices,
    session: Annotated[str, Query(min_length=1, max_length=64, description="Its id, from `/chat/messages`.")],
    last_event_id: LastEventId = None,
) -> Response:
    """All messages of a session behind `Last-Event-ID`, then what happens; a reconnect loses nothing."""
    found = await services.chat.events(caller, session, after=int(last_event_id or 0))
    return EventStreamResponse(framed(found, partial(services.keys.is_in_force, caller)))


MESSAGES = "/chat/messages"
EVENTS = "/chat/events"
_JSON = "application/json"


class DirectChat:
    """Answers the two requests of every conversation, a message and its stream of events, before they reach FastAPI.

    FastAPI's dependencies, routers and serialization cost more than the message itself, and a third of a stream's
    memory. A plain, valid request is answered here by the same service that the routes above ask. Every other request
    goes to those routes unchanged, so refusals and their texts have one place.

    Its `receive` gives the body of a write at once, as `IdempotentWrites` does.
    """

    def __init__(self, app: ASGIApp, services: OperatorServices) -> None:
        self._app = app
        self._services = services

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
        sent = await self._services.chat.send(caller, message, seed=seed)
        return Response(sent.model_dump_json(by_alias=True), status_code=202, media_type=_JSON)

    async def _events(self, caller: Caller, session: str, after: int) -> Response:
        found = await self._services.chat.events(caller, session, after=after)
        return EventStreamResponse(framed(found, partial(self._services.keys.is_in_force, caller)))


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
