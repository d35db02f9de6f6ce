"""What is said on the dashboard: as a form without a script, as JSON with one; either way once."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.errors import EthosError
from gateway.pipeline.local_channel import MAX_TEXT_CHARS
from gateway.sdk.models.chat import AcceptedMessage, File, SendMessage
from gateway.services.caller import ServiceError
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import TOKEN_FIELD, Form

# The longest text, each character as two \uXXXX, beside the largest files in base64.
MAX_MESSAGE_BYTES = 12 * MAX_TEXT_CHARS + 7 * 1024 * 1024
CHAT = f"{BASE}/chat"


class Said(BaseModel):
    """What the script sends.

    Attributes:
        id: made by the page; the same for a repetition, which then says nothing twice.
    """

    id: str = Field(min_length=1, max_length=64)
    session: str
    text: str
    attachments: tuple[File, ...] = ()
    form_token: str


class Saying:
    """Both ways in."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.chat

    async def send(self, request: Request, form: Form) -> Response:
        """A form: on to the conversation, where the answer comes. What cannot be sent is offered again."""
        text, session_id = form.get("text").strip(), form.get("session") or None
        personality = form.get("personality") or None
        if text == "/new":
            return self._context.go(request, CHAT)
        if not text:
            back = f"{CHAT}/{session_id}" if session_id else CHAT
            return self._context.go(request, back, "There is nothing to send yet: write a message.", is_problem=True)
        try:
            message = SendMessage(session=session_id, personality=personality, text=text)
            sent = await self._send(message, seed=_seed(form))
        except (EthosError, ValidationError) as error:
            return self._context.render(
                request,
                "chat/unsent.html",
                title="The message was not sent",
                problem=_said_of(error),
                fields=form.without(TOKEN_FIELD, "text").fields,
                text=form.get("text"),
                status=409,
            )
        return self._context.go(request, f"{CHAT}/{sent.session}")

    async def stop(self, request: Request, form: Form) -> Response:
        """End the answer that is being written."""
        session_id = form.get("session")
        await self._service.stop(self._context.caller, session_id)
        return self._context.go(request, f"{CHAT}/{session_id}", "The answer is stopped.")

    async def receive(self, request: Request) -> Response:
        """JSON: 202 says that it is committed; anything else, that the page must keep it."""
        try:
            said = Said.model_validate_json(await _body(request))
        except ValidationError as error:
            return _refused(400, _said_of(error))
        if not self._context.has_valid_csrf_token(request, said.form_token):
            return _refused(403, "This page is of a login that has ended; load it again.")
        try:
            if said.text.strip() == "/stop":
                sent = await self._service.stop(self._context.caller, said.session, seed=said.id)
            else:
                message = SendMessage(session=said.session, text=said.text, attachments=said.attachments)
                sent = await self._send(message, seed=said.id)
        except (ServiceError, ValidationError) as error:
            return _refused(400, _said_of(error))
        except EthosError as error:  # it may be taken in a while
            return _refused(503, f"The message could not be kept now: {error}")
        return JSONResponse({"id": sent.message, "session": sent.session}, 202)

    async def _send(self, message: SendMessage, *, seed: str) -> AcceptedMessage:
        sent = await self._service.send(self._context.caller, message, seed=f"dashboard {seed}")
        self._context.live.changed("messages")
        return sent


def _seed(form: Form) -> str:
    """The same text sent twice from one page, by a second press of the button, is one message; another text is not."""
    page = form.get("seed") or secrets.token_hex(8)
    return f"{page} {hashlib.sha256(form.get('text').encode('utf-8', 'replace')).hexdigest()}"


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
