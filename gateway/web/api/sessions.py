"""`/sessions`: found, read, forked, tidied."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response

from gateway.sdk.models.schema import Page
from gateway.sdk.models.sessions import ForkSession, FoundMessage, Session, Transcript, UpdateSession, Versions
from gateway.services.caller import Caller
from gateway.services.sessions import SessionQuery
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import Answers, problems
from gateway.web.api.naming import PersonalityParam, UserParam
from gateway.web.api.paging import Cursor, Limit, cursor_of, number_of, place_of
from gateway.web.downloads import session_file

router = APIRouter(prefix="/sessions", tags=["sessions"])

Reader = Annotated[Caller, Depends(Requires("sessions:read"))]
Writer = Annotated[Caller, Depends(Requires("sessions:write"))]
SessionId = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="Id of the session.")]
Words = Annotated[
    str | None,
    Query(
        alias="q", min_length=1, max_length=1000, description='Words that a message must have; `"a phrase"`, `begin*`.'
    ),
]
_NO_USER = problems(not_found="There is no such user.")
_NO_SESSION = problems(not_found="There is no such session.")
_EXPORT: Answers = {
    200: {"description": "The whole session.", "content": {"text/markdown": {"schema": {"type": "string"}}}}
}


@router.get("", responses=_NO_USER, summary="List or search sessions")
async def list_(
    *,
    caller: Reader,
    services: WithServices,
    words: Words = None,
    personality: PersonalityParam = None,
    user: UserParam = None,
    channel: Annotated[str | None, Query(min_length=1, max_length=200, description="Of one channel only.")] = None,
    pinned: Annotated[bool | None, Query(description="Only pinned sessions, or only others.")] = None,
    title: Annotated[
        str | None, Query(min_length=1, max_length=200, description="Words that stand so in the title.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Session]:
    """The newest first; with `q` those that hold its words, the best match first, with the passages."""
    asked = SessionQuery(user=user, personality=personality, channel=channel, is_pinned=pinned, title=title)
    kind = "sessions" if words is None else "found sessions"
    place = place_of(kind, cursor, int, int)
    after = None if place is None else (int(place[0]), int(place[1]))
    if words is None:
        found, rest = await services.sessions.find(caller, asked, limit=limit, after=after)
    else:
        found, rest = await services.sessions.search(caller, words, asked, limit=limit, after=after)
    return Page(items=tuple(found), next_cursor=None if rest is None else cursor_of(kind, rest))


@router.get("/messages", responses=_NO_USER, summary="Search messages")
async def search(
    *,
    caller: Reader,
    services: WithServices,
    words: Annotated[str, Query(alias="q", min_length=1, max_length=1000, description="As for sessions.")],
    user: UserParam = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="At most so many.")] = 20,
) -> Page[FoundMessage]:
    """Messages that have all the words, the best match first, in one page."""
    return Page(items=tuple(await services.sessions.passages(caller, words, user, limit=limit)))


@router.get("/{session}", responses=_NO_SESSION, summary="Get a session")
async def get(
    caller: Reader, services: WithServices, session: SessionId, limit: Limit = 200, cursor: Cursor = None
) -> Transcript:
    """A session with its messages, oldest first."""
    after = number_of("messages", cursor) or 0
    transcript, rest = await services.sessions.transcript(caller, session, limit=limit, after=after)
    return transcript.model_copy(update={"next_cursor": None if rest is None else cursor_of("messages", (rest,))})


@router.get(
    "/{session}/export", responses={**_NO_SESSION, **_EXPORT}, response_model=Transcript, summary="Export a session"
)
async def export(
    caller: Reader,
    services: WithServices,
    session: SessionId,
    form: Annotated[Literal["markdown", "json"], Query(alias="format", description="Form of the file.")] = "markdown",
) -> Response:
    """The whole session, as Markdown for people or JSON for programs."""
    return await session_file(services.sessions, caller, session, is_json=form == "json")


@router.get("/{session}/versions", responses=_NO_SESSION, summary="List versions")
async def versions(caller: Reader, services: WithServices, session: SessionId) -> Page[Versions]:
    """The messages of a session that were edited or answered again, with the sessions of their versions; one page."""
    return Page(items=tuple(await services.sessions.versions(caller, session)))


@router.post(
    "/{session}/fork",
    status_code=201,
    responses=problems(not_found="There is no such session or message."),
    summary="Fork a session",
)
async def fork(caller: Writer, services: WithServices, session: SessionId, body: ForkSession) -> Session:
    """Copy it up to and including a message or a turn; `/chat/messages` continues in the copy."""
    return await services.sessions.fork(caller, session, body)


@router.patch("/{session}", responses=_NO_SESSION, summary="Change a session")
async def update(caller: Writer, services: WithServices, session: SessionId, body: UpdateSession) -> Session:
    """Change the title, or pin."""
    return await services.sessions.update(caller, session, body)


@router.delete("/{session}", status_code=204, responses=_NO_SESSION, summary="Delete a session")
async def delete(caller: Writer, services: WithServices, session: SessionId) -> None:
    """Delete it, with all its messages. What its channel shows is not changed."""
    await services.sessions.delete(caller, session)
