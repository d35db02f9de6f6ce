"""A conversation with a personality, on the gateway's own channel, as a page and as the stream that keeps it so.

The page comes with what was said last, so that it can be read without a script; the stream goes on behind that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.domain.sessions import TITLE_CHARS
from gateway.errors import EthosError
from gateway.pipeline.local_channel import CHANNEL, MAX_ATTACHMENT_BYTES, MAX_TEXT_CHARS
from gateway.sdk.models.chat import ChatMessage
from gateway.sdk.models.sessions import Message, Session
from gateway.services.caller import NotFound, Refused
from gateway.services.sessions import Question
from gateway.services.stream import Event
from gateway.web.api.events import EventStreamResponse
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.chat.stream import rendered
from gateway.web.markdown import to_html

RECENT = 20
ROWS = 100
MAX_ROWS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A message as the page has it; `html` for an answer, None for what a person said."""

    message: ChatMessage | Message
    html: Markup | None


class ChatConversation:
    """Reading; what is said goes to `Saying`."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.chat
        self._sessions = context.services.sessions

    async def begin(self, request: Request) -> Response:
        """Choose who answers, say something, or go on with what there is."""
        recent, rest = await self._sessions.find(self._context.caller, Question(channel=CHANNEL), limit=RECENT)
        asked = request.query_params
        return self._context.render(
            request,
            "chat/index.html",
            title="Chat",
            recent=recent,
            seed=secrets.token_hex(8),
            has_more=rest is not None,
            names=await self._context.sources.naming.labels(),
            personalities=self._context.sources.personalities.list(),
            chosen=asked.get("personality") or self._context.sources.config().personality,
            own_channel=CHANNEL,
            has_plain_page=any(one.kind == "web" for one in self._context.sources.config().channels.values()),
        )

    async def show(self, request: Request) -> Response:
        """What was said last, and the box to go on."""
        session = await self._session(request)
        last = _last(request)
        try:
            events = await self._service.recent(self._context.caller, session.id, limit=last)
        except Refused:  # it belongs to another channel; there it can be read, and copied
            return self._context.go(request, f"{BASE}/sessions/{session.id}")
        copied = await self._copied(session)
        said = [event.data for event in events if isinstance(event.data, ChatMessage)]
        return self._context.render(
            request,
            "chat/conversation.html",
            title=session.title or _begun_with(said) or "New conversation",
            trail=[("Chat", f"{BASE}/chat")],
            session=session,
            copied=await asyncio.to_thread(_lines, copied),
            lines=await asyncio.to_thread(_lines, said),
            after=_place(events),
            seed=secrets.token_hex(8),
            earlier=f"{BASE}/chat/{session.id}?last={min(last * 5, MAX_ROWS)}" if len(events) >= last else None,
            commands=[
                {"name": one.name, "usage": one.usage, "description": one.description}
                for one in self._context.sources.commands()
            ],
            max_text_chars=MAX_TEXT_CHARS,
            max_file_bytes=MAX_ATTACHMENT_BYTES,
        )

    async def events(self, request: Request) -> Response:
        """What comes behind `Last-Event-ID`; a page that comes again goes on where it was."""
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else 0
        try:
            found = await self._service.events(self._context.caller, request.path_params["session"], after=after)
        except EthosError as error:
            return JSONResponse({"error": str(error)}, 404)
        return EventStreamResponse(rendered(found))

    async def _session(self, request: Request) -> Session:
        try:
            return await self._sessions.get(self._context.caller, request.path_params["session"])
        except NotFound as error:
            raise HTTPException(404) from error

    async def _copied(self, session: Session) -> Sequence[Message]:
        """What a copy begins with: said elsewhere and so not in the log of this conversation, or not yet."""
        if session.forked_from is None:
            return ()
        messages, _ = await self._sessions.passage(self._context.caller, session.id, limit=ROWS)
        return [one for one in messages if one.at < session.created_at and one.role in ("user", "assistant")]


def _lines(messages: Sequence[ChatMessage | Message]) -> list[Line]:
    shown = (one for one in messages if one.text or not _is_answer(one))
    return [Line(message=one, html=to_html(one.text) if _is_answer(one) else None) for one in shown]


def _begun_with(said: Sequence[ChatMessage]) -> str:
    """What stands for the title until the first turn has given one."""
    first = next((one.text for one in said if one.author == "person"), "")
    return " ".join(first.split())[:TITLE_CHARS]


def _is_answer(message: ChatMessage | Message) -> bool:
    return message.author == "agent" if isinstance(message, ChatMessage) else message.role == "assistant"


def _place(events: Sequence[Event]) -> int:
    return next((event.place for event in reversed(events) if event.place is not None), 0)


def _last(request: Request) -> int:
    asked = request.query_params.get("last", "")
    return min(max(int(asked), 1), MAX_ROWS) if asked.isascii() and asked.isdigit() and len(asked) < 9 else ROWS
