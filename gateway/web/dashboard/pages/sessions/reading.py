"""One session as it was: who wrote what, when and where, what the tools did, and what comes while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.pipeline.local_channel import CHANNEL
from gateway.sdk.models.sessions import Message, Session
from gateway.services.caller import NotFound
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext
from gateway.web.markdown import to_html

ROWS = 100
AROUND = 30
"""How many messages stand in front of the one that a search found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Some messages in their order, and whether there are others around them."""

    messages: Sequence[Message]
    has_earlier: bool
    has_later: bool

    @property
    def last_id(self) -> int:
        """Behind which the news begin."""
        return self.messages[-1].id if self.messages else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message as the page has it.

    Attributes:
        who: the person's name, or the personality.
        html: an answer, rendered; None for all else.
        result: what the tool returned to this call; its own row is left out.
    """

    message: Message
    who: str
    channel: str
    html: Markup | None = None
    result: Message | None = None


class ReadingSession:
    """A session's own page."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.sessions

    async def show(self, request: Request) -> Response:
        """Its newest messages; `before` and `after` lead to others, `at` to the one that a search found."""
        session = await self._session(request)
        passage = await self._passage(request, session.id)
        names = await self._context.sources.naming.labels()
        return self._context.render(
            request,
            "sessions/session.html",
            title=session.title or "Session without a title",
            trail=[("Sessions", f"{BASE}/sessions")],
            session=session,
            passage=passage,
            messages=await self._shown(session, passage.messages, names),
            names=names,
            here=f"{BASE}/sessions/{session.id}",
            is_ours=session.channel == CHANNEL,
        )

    async def news(self, request: Request) -> Response:
        """What came behind a message, for the open page; it takes the place of its last, empty row."""
        session = await self._session(request)
        after = _number(request, "after") or 0
        transcript, rest = await self._service.transcript(self._context.caller, session.id, limit=ROWS, after=after)
        passage = Passage(messages=transcript.messages, has_earlier=True, has_later=rest is not None)
        return self._context.render(
            request,
            "sessions/news.html",
            title=session.title,
            session=session,
            passage=passage,
            after=passage.last_id or after,
            messages=await self._shown(session, passage.messages, await self._context.sources.naming.labels()),
        )

    async def export(self, request: Request) -> Response:
        """All of it, as a file."""
        session = await self._session(request)
        caller = self._context.caller
        if request.query_params.get("format") == "json":
            transcript = await self._service.export(caller, session.id)
            text, media_type, ending = transcript.model_dump_json(by_alias=True, indent=2), "application/json", "json"
        else:
            text, media_type, ending = await self._service.markdown(caller, session.id), "text/markdown", "md"
        headers = {"content-disposition": f'attachment; filename="{session.id}.{ending}"'}
        return Response(text.encode("utf-8", "replace"), media_type=media_type, headers=headers)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _session(self, request: Request) -> Session:
        try:
            return await self._service.get(self._context.caller, request.path_params["session"])
        except NotFound as error:
            raise HTTPException(404) from error

    async def _passage(self, request: Request, session_id: str) -> Passage:
        before, after, at = (_number(request, name) for name in ("before", "after", "at"))
        caller = self._context.caller
        if at is not None:
            earlier, has_earlier = await self._service.passage(caller, session_id, limit=AROUND, before=at)
            later, rest = await self._service.transcript(caller, session_id, limit=ROWS - AROUND, after=at - 1)
            messages = (*earlier, *later.messages)
            return Passage(messages=messages, has_earlier=has_earlier, has_later=rest is not None)
        if after is not None:
            later, rest = await self._service.transcript(caller, session_id, limit=ROWS, after=after)
            return Passage(messages=later.messages, has_earlier=after > 0, has_later=rest is not None)
        messages_before, has_earlier = await self._service.passage(caller, session_id, limit=ROWS, before=before)
        return Passage(messages=messages_before, has_earlier=has_earlier, has_later=before is not None)

    async def _shown(self, session: Session, messages: Sequence[Message], names: Mapping[str, str]) -> Sequence[Shown]:
        """A call and its result as one; an answer in HTML. A page of long answers takes time, so a thread does it."""
        channels = await self._service.channels(self._context.caller, messages)
        return await asyncio.to_thread(_rows, session, messages, channels, names)


def _rows(
    session: Session, messages: Sequence[Message], channels: Mapping[str, str], names: Mapping[str, str]
) -> list[Shown]:
    calls = {(one.turn, one.tool_call) for one in messages if one.role == "tool_call"}
    results = {(one.turn, one.tool_call): one for one in messages if one.role == "tool_result"}
    return [
        Shown(
            message=one,
            who=(one.author or names.get(one.user, one.user)) if one.role == "user" else one.personality,
            channel=channels.get(one.turn, session.channel),
            html=to_html(one.text) if one.role == "assistant" else None,
            result=results.get((one.turn, one.tool_call)) if one.role == "tool_call" else None,
        )
        for one in messages
        if one.role != "tool_result" or (one.turn, one.tool_call) not in calls
    ]


def _number(request: Request, name: str) -> int | None:
    value = request.query_params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
