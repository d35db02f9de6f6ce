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

from gateway.domain.personalities import Found
from gateway.domain.sessions import TITLE_CHARS
from gateway.errors import EthosError, PersonalityError
from gateway.pipeline.local_channel import CHANNEL, MAX_ATTACHMENT_BYTES, MAX_TEXT_CHARS
from gateway.sdk.models.chat import AcceptedMessage, ChatMessage, Choice, File, Preview, SendMessage, StopAnswer, Tool
from gateway.sdk.models.sessions import Message, Session
from gateway.services.caller import Refused, ServiceError
from gateway.services.sessions import SessionQuery
from gateway.services.stream import Event
from gateway.web.api.events import HEARTBEAT, EventStreamResponse
from gateway.web.dashboard.page import BASE, Page, reaches
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.sessions import session_of
from gateway.web.forms import TOKEN_FIELD, Form, read_body, whole_number
from gateway.web.markdown import to_html

PAGE = Page(name="chat", title="Chat", icon="chat", position=12, least="guest")

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


RECENT = 20
ROWS = 100
MAX_ROWS = 5_000


@PAGE.route()
async def begin(context: PageContext, request: Request) -> Response:
    """Choose who answers and begin a conversation, or go on with one."""
    recent, rest = await _recent(context)
    return await _page(
        context,
        request,
        "chat/index.html",
        title="Chat",
        session=None,
        lines=(),
        recent=recent,
        has_more=rest is not None,
        names=await context.names(),
        personalities=_offered(context),
        chosen=request.query_params.get("personality") or context.sources.config.current.personality,
    )


def _offered(context: PageContext) -> Found:
    """The personalities that may be chosen; a guest talks with the one that answers everybody."""
    found = context.sources.personalities.list()
    if reaches(context.caller, "member"):
        return found
    return [one for one in found if one.id == context.sources.config.current.personality]


@PAGE.route("/{session}")
async def show(context: PageContext, request: Request) -> Response:
    """What was said last, and the box to go on."""
    session = await session_of(context, request)
    asked = whole_number(request.query_params.get("last", ""))
    last = ROWS if asked is None else min(max(asked, 1), MAX_ROWS)
    try:
        events, has_earlier = await context.services.chat.recent(context.caller, session.id, limit=last)
    except Refused:  # it belongs to another channel; there it can be read, and copied
        return context.go(request, f"{BASE}/sessions/{session.id}")
    copied = await _copied(context, session)
    said = [event.data for event in events if isinstance(event.data, ChatMessage)]
    recent, _ = await _recent(context)
    return await _page(
        context,
        request,
        "chat/conversation.html",
        title=session.title or _begun_with(said) or "New conversation",
        trail=[(PAGE.title, PAGE.path)],
        session=session,
        chosen=session.personality,
        recent=recent,
        copied=await asyncio.to_thread(_lines, copied),
        lines=await asyncio.to_thread(_lines, said),
        after=next((event.place for event in reversed(events) if event.place is not None), 0),
        has_earlier=has_earlier,
        earlier=f"{PAGE.path}/{session.id}?last={min(last * 5, MAX_ROWS)}",
    )


async def _page(context: PageContext, request: Request, template: str, **values: Any) -> Response:
    return context.render(
        request,
        template,
        seed=secrets.token_hex(8),
        commands=[one.model_dump() for one in await context.services.chat.commands()],
        max_text_chars=MAX_TEXT_CHARS,
        max_file_bytes=MAX_ATTACHMENT_BYTES,
        own_channel=CHANNEL,
        **values,
    )


async def _recent(context: PageContext) -> tuple[Sequence[Session], object | None]:
    """The conversations of this channel, newest first; and something where there are more."""
    asked = SessionQuery(channel=CHANNEL, user=context.caller.speaks_as)
    return await context.services.sessions.find(context.caller, asked, limit=RECENT)


@PAGE.route("/{session}/events")
async def events(context: PageContext, request: Request) -> Response:
    """What comes behind `Last-Event-ID`; a page that comes again goes on where it was. Without it, the newest."""
    after = whole_number(request.headers.get("last-event-id", ""))
    try:
        found = await context.services.chat.events(
            context.caller, request.path_params["session"], after=after, last=ROWS
        )
    except EthosError as error:
        return JSONResponse({"error": str(error)}, 404)
    return EventStreamResponse(rendered(found, lambda line: context.piece(LINE, line=line)))


async def _copied(context: PageContext, session: Session) -> Sequence[Message]:
    """What a copy begins with: said elsewhere and so not in the log of this conversation, or not yet."""
    if session.forked_from is None:
        return ()
    messages, _ = await context.services.sessions.passage(context.caller, session.id, limit=ROWS)
    return [one for one in messages if one.at < session.created_at and one.role in ("user", "assistant")]


def _lines(messages: Sequence[ChatMessage | Message]) -> list[Line]:
    return [line_of(one) for one in messages if one.text]


def _begun_with(said: Sequence[ChatMessage]) -> str:
    """What stands for the title until the first turn has given one."""
    first = next((one.text for one in said if one.author == "person"), "")
    return " ".join(first.split())[:TITLE_CHARS]


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


@PAGE.form("/send")
async def send(context: PageContext, request: Request, form: Form) -> Response:
    """A form: on to the conversation, where the answer comes. What cannot be sent is offered again."""
    text, session_id = (form.get("choice") or form.get("text")).strip(), form.get("session") or None
    personality = form.get("personality") or None
    if text == "/new":
        return context.go(request, PAGE.path)
    if not text:
        back = f"{PAGE.path}/{session_id}" if session_id else PAGE.path
        return context.go(request, back, "There is nothing to send yet: write a message.", is_problem=True)
    try:
        message = SendMessage(session=session_id, personality=personality, text=text)
        sent = await _send(context, message, seed=_seed(form, text))
    except (EthosError, ValidationError) as error:
        return context.render(
            request,
            "chat/unsent.html",
            title="The message was not sent",
            problem=_said_of(error),
            fields=form.without(TOKEN_FIELD, "text", "choice").fields,
            text=text,
            status=409,
        )
    return context.go(request, f"{PAGE.path}/{sent.session}")


@PAGE.form("/stop")
async def stop(context: PageContext, request: Request, form: Form) -> Response:
    """End the answer that is being written."""
    session_id = form.get("session")
    try:
        wanted = StopAnswer(session=session_id)
    except ValidationError as error:
        raise HTTPException(400, "The form names no conversation.") from error
    await context.services.chat.stop(context.caller, wanted)
    return context.go(request, f"{PAGE.path}/{session_id}", "The answer is stopped.")


@PAGE.route("/messages", method="POST")
async def receive(context: PageContext, request: Request) -> Response:
    """JSON: 202 says that it is committed; anything else, that the page must keep it."""
    try:
        too_large = "The message is too long."
        body = await read_body(request, "message", "application/json", max_bytes=MAX_MESSAGE_BYTES, too_large=too_large)
        sent = await _take(context, request, Said.model_validate_json(body))
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


async def _take(context: PageContext, request: Request, said: Said) -> AcceptedMessage:
    if not context.has_valid_csrf_token(request, said.form_token):
        raise HTTPException(403, "This page is of a login that has ended; load it again.")
    if said.session is not None and said.text.strip() == "/stop":
        return await context.services.chat.stop(context.caller, StopAnswer(session=said.session), seed=said.id)
    message = SendMessage(
        session=said.session, personality=said.personality, text=said.text, attachments=said.attachments
    )
    return await _send(context, message, seed=said.id)


async def _send(context: PageContext, message: SendMessage, *, seed: str) -> AcceptedMessage:
    sent = await context.services.chat.send(context.caller, message, seed=f"dashboard {seed}")
    context.live.changed("messages")
    return sent


def _seed(form: Form, text: str) -> str:
    """The same text sent twice from one page, by a second press of the button, is one message; another text is not."""
    page = form.get("seed") or secrets.token_hex(8)
    return f"{page} {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def _refused(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)


def _said_of(error: Exception) -> str:
    """What is wrong, for people; without the text itself."""
    if not isinstance(error, ValidationError):
        return str(error)
    faults: list[Any] = list(error.errors(include_url=False, include_input=False))
    return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
