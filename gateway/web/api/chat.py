"""`/chat`: say something, follow what happens, stop it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from gateway.sdk.models.chat import (
    AcceptedMessage,
    CommandList,
    ConversationName,
    EditMessage,
    SendMessage,
    StopAnswer,
)
from gateway.services.caller import Caller
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import Answers, problems
from gateway.web.api.direct_chat import Last, SessionId, place_of
from gateway.web.api.events import PLACE, EventStreamResponse, framed

router = APIRouter(prefix="/chat", tags=["chat"])

Reader = Annotated[Caller, Depends(Requires("chat:read"))]
Writer = Annotated[Caller, Depends(Requires("chat:write"))]
Seed = Annotated[str | None, Header(alias="idempotency-key", include_in_schema=False)]
LastEventId = Annotated[
    str | None,
    Header(pattern=PLACE.pattern, description="The `id` of the last event that the reader has; it goes on behind it."),
]
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
    "/edit",
    status_code=202,
    responses=problems(not_found="There is no such session or message.", not_possible=_ANOTHER),
    summary="Edit a message",
)
async def edit(caller: Writer, services: WithServices, body: EditMessage, seed: Seed = None) -> AcceptedMessage:
    """Send a message again, edited or as it was, in a new session that has all that was said before it."""
    return await services.chat.edit(caller, body, seed=seed)


@router.post(
    "/stop",
    status_code=202,
    responses=problems(not_found="There is no such session.", not_possible=_ANOTHER),
    summary="Stop the answer",
)
async def stop(caller: Writer, services: WithServices, body: StopAnswer, seed: Seed = None) -> AcceptedMessage:
    """End the answer that is being written; what there is of it stays."""
    return await services.chat.stop(caller, body, seed=seed)


@router.get(
    "/events",
    response_class=Response,
    responses={**_STREAM, **problems(not_found="There is no such session.", not_possible=_ANOTHER)},
    summary="Stream events",
)
async def events(
    *,
    caller: Reader,
    services: WithServices,
    session: Annotated[SessionId | None, Query(description="Its id, from `/chat/messages`.")] = None,
    conversation: Annotated[
        ConversationName | None, Query(description="In place of `session`: the caller's conversation of this name.")
    ] = None,
    last: Annotated[
        Last | None,
        Query(description="Begin with so many of the newest messages, where `Last-Event-ID` does not say where."),
    ] = None,
    last_event_id: LastEventId = None,
) -> Response:
    """All messages of a session behind `Last-Event-ID`, then what happens; a reconnect loses nothing."""
    after = place_of(last_event_id, last)
    found = await services.chat.events(caller, session, conversation, after=after, last=last)
    return EventStreamResponse(framed(found, partial(services.keys.is_in_force, caller)))


@router.get("/commands", summary="List commands")
async def commands(_caller: Reader, services: WithServices) -> CommandList:
    """The commands that a message may be, on every channel."""
    return CommandList(tuple(await services.chat.commands()))
