"""Chat: the operator talks with any personality, and goes on in sessions that were begun or copied here.

The page comes with what was said last, so that it can be read without a script; the stream goes on behind that.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import structlog
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from gateway.config import OFFLINE
from gateway.domain.personalities import Found, Personality
from gateway.domain.sessions import TITLE_CHARS
from gateway.errors import EthosError, PersonalityError
from gateway.pipeline.local_channel import MAX_ATTACHMENT_BYTES, MAX_TEXT_CHARS
from gateway.sdk.models.chat import MAX_FILES, AcceptedMessage, ChatMessage, File, SendMessage, StopAnswer
from gateway.sdk.models.sessions import Session
from gateway.services.caller import Refused, ServiceError
from gateway.web.api.events import EventStreamResponse
from gateway.web.dashboard.chats import chats
from gateway.web.dashboard.lines import Told, line_of, lines_of, rendered
from gateway.web.dashboard.page import BASE, Page, reaches
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.sessions import session_of
from gateway.web.forms import TOKEN_FIELD, Form, read_body, whole_number

PAGE = Page(name="chat", title="Chat", icon="chat", position=12, least="guest")

_log = structlog.get_logger(__name__)

LINE = "chat/line.html"
ROWS = 100
MAX_ROWS = 5_000


@PAGE.route()
async def begin(context: PageContext, request: Request) -> Response:
    """Choose who answers and begin a conversation, or go on with one of the list."""
    chosen = request.query_params.get("personality") or context.sources.config.current.personality
    return await _page(
        context, request, "chat/index.html", title="Chat", session=None, lines=(), personality=chosen, current=None
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
    copied: Sequence[ChatMessage] = ()
    has_earlier_copied = False
    if session.forked_from is not None:
        copied, has_earlier_copied = await context.services.chat.copied(context.caller, session.id, limit=last)
    said = [event.data for event in events if isinstance(event.data, ChatMessage)]
    told = await _told(context, session, [*copied, *said])
    return await _page(
        context,
        request,
        "chat/conversation.html",
        title=session.title or _begun_with(said) or "New conversation",
        trail=[(PAGE.title, PAGE.path)],
        session=session,
        current=session,
        personality=session.personality,
        copied=await asyncio.to_thread(lines_of, copied, told),
        lines=await asyncio.to_thread(lines_of, said, told),
        after=next((event.place for event in reversed(events) if event.place is not None), 0),
        has_earlier=has_earlier or has_earlier_copied,
        earlier=f"{PAGE.path}/{session.id}?last={min(last * 5, MAX_ROWS)}",
        is_branched="branched" in request.query_params,
    )


async def _page(
    context: PageContext, request: Request, template: str, *, current: Session | None, personality: str, **values: Any
) -> Response:
    config = context.sources.config.current
    personalities = await asyncio.to_thread(_offered, context)
    models = {one.id: (one.model if isinstance(one, Personality) else None) or config.model for one in personalities}
    return context.render(
        request,
        template,
        seed=secrets.token_hex(8),
        commands=[one.model_dump() for one in await context.services.chat.commands()],
        max_text_chars=MAX_TEXT_CHARS,
        max_file_bytes=MAX_ATTACHMENT_BYTES,
        max_files=MAX_FILES,
        chats=await chats(context, request.query_params.get("q", ""), current),
        here=request.url.path,
        personality=personality,
        models=models,
        is_offline={name: config.models[model].provider == OFFLINE for name, model in models.items()},
        **values,
    )


@PAGE.route("/{session}/events")
async def events(context: PageContext, request: Request) -> Response:
    """What comes behind `Last-Event-ID`; a page that comes again goes on where it was. Without it, the newest."""
    after, session_id = whole_number(request.headers.get("last-event-id", "")), request.path_params["session"]
    try:
        found = await context.services.chat.events(context.caller, session_id, after=after, last=ROWS)
    except EthosError as error:
        return JSONResponse({"error": str(error)}, 404)

    async def article(message: ChatMessage) -> str:
        models = await context.services.chat.models(context.caller, session_id, {message.turn})
        line = await asyncio.to_thread(line_of, message, Told(models=models))
        return context.piece(LINE, line=line, session_id=session_id)

    return EventStreamResponse(rendered(found, article))


async def _told(context: PageContext, session: Session, messages: Sequence[ChatMessage]) -> Told:
    turns = {one.turn for one in messages if one.author == "agent"}
    versions = await context.services.sessions.versions(context.caller, session.id)
    models = await context.services.chat.models(context.caller, session.id, turns)
    return Told(models=models, versions={one.turn: one for one in versions})


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


@PAGE.form("/personality", back=PAGE.path)
async def choose(context: PageContext, request: Request, form: Form) -> Response:
    """Another one answers from now on, as `/personality` has it."""
    session_id, wanted = form.get("session"), form.get("personality")
    message = SendMessage(session=session_id, text=f"/personality {wanted}")
    await _send(context, message, seed=secrets.token_hex(16))
    return context.go(request, f"{PAGE.path}/{session_id}", f"{wanted} is asked to answer from now on.")


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
