"""Chat: the operator talks with any personality, and goes on in sessions that were begun or copied here.

The page comes with what was said last, so that it can be read without a script; the stream goes on behind that.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from markupsafe import Markup
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.domain.sessions import TITLE_CHARS
from gateway.errors import EthosError, PersonalityError
from gateway.pipeline.local_channel import CHANNEL, MAX_ATTACHMENT_BYTES, MAX_TEXT_CHARS
from gateway.sdk.models.chat import AcceptedMessage, ChatMessage, Choice, File, Preview, SendMessage, StopAnswer, Tool
from gateway.sdk.models.sessions import Message, Session
from gateway.services.caller import NotFound, Refused, ServiceError
from gateway.services.sessions import SessionQuery
from gateway.services.stream import Event
from gateway.web.api.events import HEARTBEAT, EventStreamResponse
from gateway.web.dashboard.page import BASE, Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import TOKEN_FIELD, Form
from gateway.web.markdown import to_html

_log = structlog.get_logger(__name__)

PREVIEW_REST = 9
"""After a preview there is a rest of this many times what it took to render, so at most a tenth of the time goes there.
What comes meanwhile is not lost: of several previews the stream keeps the newest, and messages are in the log."""
MAX_REST_S = 1.0
LINE = "chat/line.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A message as the page has it.

    Attributes:
        key: who wrote it, and its id; empty for one that is not in the log of this conversation.
        text: as it was written.
        html: of an answer; None for what a person said.
    """

    is_answer: bool
    text: str
    html: Markup | None
    at: datetime
    key: str = ""
    choices: Sequence[Choice] = ()
    has_failed: bool = False


def line_of(message: ChatMessage | Message) -> Line:
    """Its Markdown rendered, which takes a while for a long one."""
    if isinstance(message, Message):
        is_answer = message.role == "assistant"
        html = to_html(message.text) if is_answer else None
        return Line(is_answer=is_answer, text=message.text, html=html, at=message.at)
    is_answer = message.author == "agent"
    return Line(
        is_answer=is_answer,
        text=message.text,
        html=to_html(message.text) if is_answer else None,
        at=message.at,
        key=f"{message.author}:{message.id}",
        choices=message.choices,
        has_failed=message.has_failed,
    )


async def rendered(events: AsyncIterator[Event | None], render: Callable[[Line], str]) -> AsyncIterator[bytes]:
    """Frames for the wire (WHATWG HTML, section 9.2); those of the log carry their place as the id.

    A `message` has the `html` of the whole article, empty for an answer that was stopped before its first word; a
    `preview` that of the answer so far, empty where it is withdrawn.

    Args:
        render: makes the article.
    """
    shown: dict[str, str] = {}
    async with contextlib.aclosing(events) as each:  # type: ignore[type-var]
        async for event in each:
            if event is None:
                yield HEARTBEAT
                continue
            began_s = time.monotonic()
            match event.data:
                case Preview() as preview:
                    shown[preview.id] = preview.shown(shown.get(preview.id, ""))
                    data = {"id": preview.id, "html": await asyncio.to_thread(to_html, shown[preview.id])}
                case ChatMessage() as message:
                    shown.pop(message.id, None)
                    html = await asyncio.to_thread(_article, message, render) if message.text else ""
                    data = {"id": message.id, "author": message.author, "html": html}
                case Tool() as tool:
                    data = {"tool": tool.tool, "state": tool.state}
                case _:
                    data = {}
            yield _frame(event.name, data, event.place)
            if isinstance(event.data, Preview):
                await asyncio.sleep(min(PREVIEW_REST * (time.monotonic() - began_s), MAX_REST_S))


def _article(message: ChatMessage, render: Callable[[Line], str]) -> str:
    return render(line_of(message))


def _frame(name: str, data: Mapping[str, str], place: int | None) -> bytes:
    """JSON in ASCII has no line end in it, and lets a lone surrogate do no harm."""
    head = "" if place is None else f"id: {place}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")


CHAT = f"{BASE}/chat"
RECENT = 20
ROWS = 100
MAX_ROWS = 5_000


class ChatConversation:
    """Reading; what is said goes to `Saying`."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.chat
        self._sessions = context.services.sessions

    async def begin(self, request: Request) -> Response:
        """Choose who answers and begin a conversation, or go on with one."""
        recent, rest = await self._recent()
        return await self._page(
            request,
            "chat/index.html",
            title="Chat",
            session=None,
            lines=(),
            recent=recent,
            has_more=rest is not None,
            names=await self._context.sources.naming.labels(),
            personalities=self._context.sources.personalities.list(),
            chosen=request.query_params.get("personality") or self._context.sources.config.current.personality,
        )

    async def show(self, request: Request) -> Response:
        """What was said last, and the box to go on."""
        session = await self._session(request)
        last = _last(request)
        try:
            events, has_earlier = await self._service.recent(self._context.caller, session.id, limit=last)
        except Refused:  # it belongs to another channel; there it can be read, and copied
            return self._context.go(request, f"{BASE}/sessions/{session.id}")
        copied = await self._copied(session)
        said = [event.data for event in events if isinstance(event.data, ChatMessage)]
        recent, _ = await self._recent()
        return await self._page(
            request,
            "chat/conversation.html",
            title=session.title or _begun_with(said) or "New conversation",
            trail=[("Chat", CHAT)],
            session=session,
            chosen=session.personality,
            recent=recent,
            copied=await asyncio.to_thread(_lines, copied),
            lines=await asyncio.to_thread(_lines, said),
            after=_place(events),
            has_earlier=has_earlier,
            earlier=f"{CHAT}/{session.id}?last={min(last * 5, MAX_ROWS)}",
        )

    async def _page(self, request: Request, template: str, **values: Any) -> Response:
        return self._context.render(
            request,
            template,
            seed=secrets.token_hex(8),
            commands=[one.model_dump() for one in await self._service.commands()],
            max_text_chars=MAX_TEXT_CHARS,
            max_file_bytes=MAX_ATTACHMENT_BYTES,
            own_channel=CHANNEL,
            **values,
        )

    async def _recent(self) -> tuple[Sequence[Session], object | None]:
        """The conversations of this channel, newest first; and something where there are more."""
        return await self._sessions.find(self._context.caller, SessionQuery(channel=CHANNEL), limit=RECENT)

    async def events(self, request: Request) -> Response:
        """What comes behind `Last-Event-ID`; a page that comes again goes on where it was. Without it, the newest."""
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
        try:
            found = await self._service.events(
                self._context.caller, request.path_params["session"], after=after, last=ROWS
            )
        except EthosError as error:
            return JSONResponse({"error": str(error)}, 404)
        return EventStreamResponse(rendered(found, self._article))

    def _article(self, line: Line) -> str:
        return self._context.piece(LINE, line=line)

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
    return [line_of(one) for one in messages if one.text]


def _begun_with(said: Sequence[ChatMessage]) -> str:
    """What stands for the title until the first turn has given one."""
    first = next((one.text for one in said if one.author == "person"), "")
    return " ".join(first.split())[:TITLE_CHARS]


def _place(events: Sequence[Event]) -> int:
    return next((event.place for event in reversed(events) if event.place is not None), 0)


def _last(request: Request) -> int:
    asked = request.query_params.get("last", "")
    return min(max(int(asked), 1), MAX_ROWS) if asked.isascii() and asked.isdigit() and len(asked) < 9 else ROWS


# The longest text, each character as two \uXXXX, and the largest files in base64.
MAX_MESSAGE_BYTES = 12 * MAX_TEXT_CHARS + 7 * 1024 * 1024


class Said(BaseModel):
    """What the script sends.

    Attributes:
        id: made by the page; the same for a repetition, which then says nothing twice.
        session: None begins one.
        personality: that answers in a new session.
    """

    id: str = Field(min_length=1, max_length=64)
    session: str | None = None
    personality: str | None = None
    text: str
    attachments: tuple[File, ...] = ()
    form_token: str


class Saying:
    """Takes messages, from the form and from the script."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.chat

    async def send(self, request: Request, form: Form) -> Response:
        """A form: on to the conversation, where the answer comes. What cannot be sent is offered again."""
        text, session_id = (form.get("choice") or form.get("text")).strip(), form.get("session") or None
        personality = form.get("personality") or None
        if text == "/new":
            return self._context.go(request, CHAT)
        if not text:
            back = f"{CHAT}/{session_id}" if session_id else CHAT
            return self._context.go(request, back, "There is nothing to send yet: write a message.", is_problem=True)
        try:
            message = SendMessage(session=session_id, personality=personality, text=text)
            sent = await self._send(message, seed=_seed(form, text))
        except (EthosError, ValidationError) as error:
            return self._context.render(
                request,
                "chat/unsent.html",
                title="The message was not sent",
                problem=_said_of(error),
                fields=form.without(TOKEN_FIELD, "text", "choice").fields,
                text=text,
                status=409,
            )
        return self._context.go(request, f"{CHAT}/{sent.session}")

    async def stop(self, request: Request, form: Form) -> Response:
        """End the answer that is being written."""
        session_id = form.get("session")
        await self._service.stop(self._context.caller, StopAnswer(session=session_id))
        return self._context.go(request, f"{CHAT}/{session_id}", "The answer is stopped.")

    async def receive(self, request: Request) -> Response:
        """JSON: 202 says that it is committed; anything else, that the page must keep it."""
        try:
            sent = await self._take(request, Said.model_validate_json(await _body(request)))
        except HTTPException as error:
            return _refused(error.status_code, error.detail)
        except (ServiceError, PersonalityError, ValidationError) as error:
            return _refused(400, _said_of(error))
        except EthosError as error:  # it may be taken in a while
            return _refused(503, f"The message could not be kept now: {error}")
        except ClientDisconnect:  # there is no reader any more, and the page keeps the message
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, the page must hear that it has to keep the message)
            _log.error("message not kept", exc_info=error)
            return _refused(503, "The message could not be kept now; the gateway's log says why.")
        return JSONResponse({"id": sent.message, "session": sent.session}, 202)

    async def _take(self, request: Request, said: Said) -> AcceptedMessage:
        if not self._context.has_valid_csrf_token(request, said.form_token):
            raise HTTPException(403, "This page is of a login that has ended; load it again.")
        if said.session is not None and said.text.strip() == "/stop":
            return await self._service.stop(self._context.caller, StopAnswer(session=said.session), seed=said.id)
        message = SendMessage(
            session=said.session, personality=said.personality, text=said.text, attachments=said.attachments
        )
        return await self._send(message, seed=said.id)

    async def _send(self, message: SendMessage, *, seed: str) -> AcceptedMessage:
        sent = await self._service.send(self._context.caller, message, seed=f"dashboard {seed}")
        self._context.live.changed("messages")
        return sent


def _seed(form: Form, text: str) -> str:
    """The same text sent twice from one page, by a second press of the button, is one message; another text is not."""
    page = form.get("seed") or secrets.token_hex(8)
    return f"{page} {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


async def _body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Send the message as application/json.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_MESSAGE_BYTES:
            raise HTTPException(413, "The message is too long.")
    return bytes(body)


def _refused(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)


def _said_of(error: Exception) -> str:
    """What is wrong, for people; without the text itself."""
    if not isinstance(error, ValidationError):
        return str(error)
    faults: list[Any] = list(error.errors(include_url=False, include_input=False))
    return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)


def _routes(context: PageContext) -> Sequence[Route]:
    conversation, saying = ChatConversation(context), Saying(context)
    return [
        Route("/chat", conversation.begin),
        Route("/chat/send", context.form_handler(saying.send), methods=["POST"]),
        Route("/chat/stop", context.form_handler(saying.stop), methods=["POST"]),
        Route("/chat/messages", saying.receive, methods=["POST"]),
        Route("/chat/{session}", conversation.show),
        Route("/chat/{session}/events", conversation.events),
    ]


PAGE = Page(name="chat", title="Chat", icon="chat", position=12, routes=_routes)
