"""The requests of every conversation, answered before they reach FastAPI: a message, its events, the commands.

FastAPI's dependencies, routers and serialization cost more than the message itself, and a third of a stream's memory;
and it takes a third of a second to load, which the terminal does not wait for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette._utils import get_route_path
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import EthosError
from gateway.sdk.models.chat import Command, ConversationName, SendMessage
from gateway.services.caller import Caller
from gateway.services.chat import ChatService
from gateway.web.api.events import PLACE, EventStreamResponse, framed
from gateway.web.api.idempotency import replayed
from gateway.web.api.problems import on_error, on_fault
from gateway.web.auth import CALLER, PROOF

IsInForce = Callable[[Caller], Awaitable[bool]]
"""Whether the caller may still read: a key can be revoked while a stream is open."""

MESSAGES = "/chat/messages"
EVENTS = "/chat/events"
COMMANDS = "/chat/commands"
MAX_LAST = 5_000
"""With so many of the newest messages a stream may begin."""
_JSON = "application/json"
_COMMANDS: TypeAdapter[list[Command]] = TypeAdapter(list[Command])

SessionId = Annotated[str, Field(min_length=1, max_length=64)]
Last = Annotated[int, Field(ge=0, le=MAX_LAST)]


class EventsQuery(BaseModel):
    """What a stream of events is asked for."""

    model_config = ConfigDict(extra="forbid")

    session: SessionId | None = None
    conversation: ConversationName | None = None
    last: Last | None = None


class DirectChat:
    """Answers plain, valid requests of `/chat` by the service that the routes ask, too.

    Every other request goes to those routes unchanged, so refusals and their texts have one place. Its `receive` gives
    the body of a write at once, as `IdempotentWrites` does.
    """

    def __init__(self, routes: ASGIApp, chat: ChatService, is_in_force: IsInForce) -> None:
        self._routes = routes
        self._chat = chat
        self._is_in_force = is_in_force

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        caller = scope.get(CALLER)
        answer: Awaitable[Response] | None = None
        if not isinstance(caller, Caller):
            pass
        elif _is_plain_message(scope) and caller.may("chat:write"):
            body = (await receive())["body"]
            try:
                message = SendMessage.model_validate_json(body)
            except ValidationError:
                receive = replayed(body, receive)
            else:
                answer = self._send(caller, message, Headers(scope=scope).get("idempotency-key"))
        elif _is(scope, "GET", EVENTS) and caller.may("chat:read"):
            answer = self._events(scope, caller)
        elif _is(scope, "GET", COMMANDS) and not scope["query_string"] and caller.may("chat:read"):
            answer = self._commands()
        if answer is None:
            await self._routes(scope, receive, send)
        else:
            response = await _answered(scope, answer)
            await response(scope, receive, send)

    async def _send(self, caller: Caller, message: SendMessage, seed: str | None) -> Response:
        sent = await self._chat.send(caller, message, seed=seed)
        return Response(sent.model_dump_json(by_alias=True), status_code=202, media_type=_JSON)

    def _events(self, scope: Scope, caller: Caller) -> Awaitable[Response] | None:
        """None: the routes say what is wrong with it."""
        pairs = QueryParams(scope["query_string"]).multi_items()
        after = Headers(scope=scope).get("last-event-id")
        if len(pairs) != len(dict(pairs)) or (after is not None and PLACE.fullmatch(after) is None):
            return None
        try:
            return self._stream(caller, EventsQuery.model_validate(dict(pairs)), after)
        except ValidationError:
            return None

    async def _stream(self, caller: Caller, asked: EventsQuery, after: str | None) -> Response:
        place = place_of(after, asked.last)
        found = await self._chat.events(caller, asked.session, asked.conversation, after=place, last=asked.last)
        return EventStreamResponse(framed(found, partial(self._is_in_force, caller)))

    async def _commands(self) -> Response:
        return Response(_COMMANDS.dump_json(await self._chat.commands(), by_alias=True), media_type=_JSON)


def place_of(last_event_id: str | None, last: int | None) -> int | None:
    """Behind which place a stream begins; None: with the newest messages. Without either it begins at the beginning."""
    if last_event_id is not None:
        return int(last_event_id)
    return 0 if last is None else None


async def _answered(scope: Scope, asked: Awaitable[Response]) -> Response:
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
        and scope.get(PROOF) in ("bearer", "key", "socket")
        and Headers(scope=scope).get("content-type") == _JSON
    )


def _is(scope: Scope, method: str, path: str) -> bool:
    return scope["type"] == "http" and scope["method"] == method and get_route_path(scope) == path
