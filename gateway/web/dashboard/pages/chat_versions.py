"""What a person does with one message of a conversation: edit, have it answered again, branch, see its files."""

from __future__ import annotations

import base64
import secrets
from urllib.parse import quote

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.sdk.models.chat import EditMessage
from gateway.sdk.models.sessions import ForkSession
from gateway.services.caller import NotFound
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.chat import PAGE
from gateway.web.dashboard.pages.sessions import session_of
from gateway.web.forms import TOKEN_FIELD, Form, whole_number
from gateway.web.pages import Fields

# Pictures that every browser shows, by how they begin; SVG is none, since it may hold a script.
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"RIFF": "image/webp",
}
_OTHER = "application/octet-stream"


@PAGE.route("/{session}/edit")
async def ask(context: PageContext, request: Request) -> Response:
    """The text of a message, to be changed; the page's script does it in its place."""
    session, turn = await session_of(context, request), request.query_params.get("turn", "")
    try:
        text = await context.services.chat.original(context.caller, session.id, turn)
    except NotFound as error:
        return context.go(request, f"{PAGE.path}/{session.id}", str(error), is_problem=True)
    fields = [("session", session.id), ("turn", turn), ("seed", secrets.token_hex(8))]
    return _box(context, request, title="Edit the message", fields=fields, text=text)


def _box(
    context: PageContext, request: Request, *, title: str, fields: Fields, text: str, problem: str | None = None
) -> Response:
    back, status = f"{PAGE.path}/{dict(fields).get('session', '')}", 409 if problem else 200
    trail = [(PAGE.title, PAGE.path)]
    return context.render(
        request,
        "chat/edit.html",
        title=title,
        trail=trail,
        fields=fields,
        text=text,
        problem=problem,
        back=back,
        status=status,
    )


@PAGE.form("/edit")
async def edit(context: PageContext, request: Request, form: Form) -> Response:
    """Send a message again, edited, or without a text as it was: on to the version that begins with it."""
    session_id, turn, text = form.get("session"), form.get("turn"), form.get("text") if form.has("text") else None
    try:
        wanted = EditMessage(session=session_id, turn=turn, text=text)
        sent = await context.services.chat.edit(
            context.caller, wanted, seed=f"dashboard {form.get('seed')} {turn} {text}"
        )
    except (EthosError, ValidationError) as error:
        problem = str(error) if isinstance(error, EthosError) else "A message needs a text."
        if text is None:
            return context.go(request, f"{PAGE.path}/{session_id}", problem, is_problem=True)
        fields = form.without(TOKEN_FIELD, "text").fields
        return _box(context, request, title="The message was not sent", fields=fields, text=text, problem=problem)
    context.live.changed("messages")
    return context.go(request, f"{PAGE.path}/{sent.session}?branched")


@PAGE.form("/branch")
async def branch(context: PageContext, request: Request, form: Form) -> Response:
    """A conversation of its own that has all up to an answer."""
    session_id = form.get("session")
    try:
        copy = await context.services.sessions.fork(context.caller, session_id, ForkSession(turn=form.get("turn")))
    except (NotFound, ValidationError):
        text = "This answer is no part of the session, so no conversation can branch from it. Take another one."
        return context.go(request, f"{PAGE.path}/{session_id}", text, is_problem=True)
    context.live.changed("messages")
    text = "This is a copy. What is said here does not reach the conversation that it was copied from."
    return context.go(request, f"{PAGE.path}/{copy.id}", text)


@PAGE.route("/{session}/files/{turn}/{number}")
async def file(context: PageContext, request: Request) -> Response:
    """A file that a person sent: a picture to look at, anything else only to be saved."""
    number = whole_number(request.path_params["number"])
    session_id, turn = request.path_params["session"], request.path_params["turn"]
    try:
        found = await context.services.chat.file(context.caller, session_id, turn, -1 if number is None else number)
    except NotFound as error:
        raise HTTPException(404) from error
    data = base64.b64decode(found.ref)
    media_type = next((name for begin, name in _PICTURES.items() if data.startswith(begin)), _OTHER)
    headers = {"cache-control": "private, max-age=31536000, immutable", "content-security-policy": "sandbox"}
    kind = "inline" if media_type != _OTHER else "attachment"
    headers["content-disposition"] = f"{kind}; filename*=UTF-8''{quote(found.filename or 'file', safe='')}"
    return Response(data, media_type=media_type, headers=headers)
