"""The HTTP side: the page, its files, its messages and its event streams."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from adapters.web.conversations import DEFAULT_CONVERSATION, Conversations
from adapters.web.convert import BadMessage, is_conversation_id, to_inbound, too_long
from adapters.web.stream import PAGE_ENTRIES, Audience, EventStream
from gateway.errors import EthosError
from gateway.messages import ConversationRef
from gateway.protocols import Accept, AdapterServices

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_DRAINED_BYTES = 64 * 1024 * 1024
"""How much of a refused message is read and thrown away: a browser shows our answer only after it has sent all."""
MAX_HISTORY_ENTRIES = 5_000
LAST_WORD_S = 0.5

_HERE = Path(__file__).parent
_log = structlog.get_logger(__name__)


class ChatPages:
    """The application; it answers 503 while the channel does not run.

    Args:
        take: commits a message; if it raises, the page keeps it.
    """

    def __init__(
        self,
        services: AdapterServices,
        audience: Audience,
        *,
        account: str,
        display_name: str,
        max_text_chars: int,
        take: Accept,
        is_running: Callable[[], bool],
    ) -> None:
        self._services = services
        self._audience = audience
        self._account = account
        self._display_name = display_name
        self._max_text_chars = max_text_chars
        self._take = take
        self._conversations = Conversations(services.state_dir)
        pages = Starlette(
            routes=[
                Route("/", self._show_default),
                Route("/c/{conversation}", self._show),
                Route("/new", self._begin),
                Route("/messages", self._receive, methods=["POST"]),
                Route("/events", self._stream),
                Mount("/assets", _Assets(directory=_HERE / "static")),
            ],
            exception_handlers={HTTPException: _refused},
        )
        self.app: ASGIApp = _WhileReady(pages, is_running)

    # ---- the page ---------------------------------------------------------------------------------------------------

    async def _show_default(self, request: Request) -> Response:
        return await self._page(request, DEFAULT_CONVERSATION)

    async def _show(self, request: Request) -> Response:
        return await self._page(request, request.path_params["conversation"])

    async def _begin(self, request: Request) -> Response:
        """A new conversation is only a new address; there is nothing to keep before its first message."""
        return RedirectResponse(f"{_base(request)}/c/{secrets.token_urlsafe(9)}", status_code=303)

    async def _page(self, request: Request, conversation: str) -> Response:
        if not is_conversation_id(conversation):
            raise HTTPException(404, "There is no such conversation.")
        try:
            listed = await self._conversations.listed(self._services.log, self._services.name, current=conversation)
        except (EthosError, OSError) as error:
            raise HTTPException(503, f"The conversations cannot be read now: {error}") from error
        html = (
            _environment()
            .get_template("chat.html")
            .render(
                base=_base(request),
                conversation=conversation,
                default_conversation=DEFAULT_CONVERSATION,
                conversations=listed,
                max_text_chars=self._max_text_chars,
                last=_last(request),
                theme=_theme(request),
                commands=[
                    {"name": command.name, "usage": command.usage, "description": command.description}
                    for command in self._services.commands
                ],
            )
        )
        return HTMLResponse(html)

    # ---- messages ---------------------------------------------------------------------------------------------------

    async def _receive(self, request: Request) -> Response:
        """202 says that the message is committed; anything else, that the page must keep it."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise HTTPException(415, "Send the message as application/json.")
        try:
            message = to_inbound(
                await self._body(request),
                channel=self._services.name,
                account=self._account,
                display_name=self._display_name,
                max_text_chars=self._max_text_chars,
                sent_at=datetime.now(UTC),
            )
        except BadMessage as error:
            raise HTTPException(error.status, str(error)) from error
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        try:
            await self._take(message)
        except EthosError as error:
            _log.warning("message was not accepted", channel=self._services.name, reason=str(error))
            raise HTTPException(503, f"The message could not be kept now: {error}") from error
        except Exception as error:  # whatever it is, the page must hear that it has to keep the message
            _log.exception("message was not accepted", channel=self._services.name, message_id=message.id)
            raise HTTPException(503, "The message could not be kept now; the gateway's log says why.") from error
        self._note(message.conversation)
        return JSONResponse({"id": message.id}, status_code=202)

    def _note(self, conversation: ConversationRef) -> None:
        for stream in self._audience.of(conversation):
            stream.notify()
        try:
            self._conversations.add(conversation.conversation)
        except OSError as error:  # the message is safe; only the list does not know its conversation yet
            _log.warning("conversation was not added to the list", channel=self._services.name, reason=str(error))

    async def _body(self, request: Request) -> bytes:
        """Read what is posted; what is too long is read to its end and thrown away.

        Raises:
            BadMessage: above what `max_text_chars` can take up in JSON.
        """
        max_bytes = 12 * self._max_text_chars + 1024  # an astral character may come as two \uXXXX
        chunks: list[bytes] = []
        size_bytes = 0
        async for chunk in request.stream():
            size_bytes += len(chunk)
            if size_bytes <= max_bytes:
                chunks.append(chunk)
            else:
                chunks.clear()
            if size_bytes > max_bytes + MAX_DRAINED_BYTES:
                break
        if size_bytes > max_bytes:
            raise too_long(self._max_text_chars)
        return b"".join(chunks)

    # ---- events -----------------------------------------------------------------------------------------------------

    async def _stream(self, request: Request) -> Response:
        conversation = request.query_params.get("conversation", DEFAULT_CONVERSATION)
        if not is_conversation_id(conversation):
            raise HTTPException(400, "The conversation's id must have 1 to 64 of the characters A-Z a-z 0-9 _ -.")
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        ref = ConversationRef(channel=self._services.name, conversation=conversation)
        stream = EventStream(
            self._services.log,
            ref,
            after=int(after) if after.isascii() and after.isdigit() and len(after) <= 18 else None,
            last=_last(request),
        )
        return _EventStreamResponse(stream, self._audience, ref)


class _EventStreamResponse(Response):
    """Writes the stream's events until the page goes away or the stream ends."""

    def __init__(self, stream: EventStream, audience: Audience, conversation: ConversationRef) -> None:
        super().__init__(media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._stream = stream
        self._audience = audience
        self._conversation = conversation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI's signature)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with self._audience.joined(self._conversation, self._stream):
            writing = asyncio.create_task(self._write(send))
            leaving = asyncio.create_task(_has_left(receive))
            try:
                await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                writing.cancel()
                leaving.cancel()
                await asyncio.gather(writing, leaving, return_exceptions=True)
        with contextlib.suppress(TimeoutError):  # a page that does not read any more must not hold us up
            async with asyncio.timeout(LAST_WORD_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        if not writing.cancelled():
            writing.result()

    async def _write(self, send: Send) -> None:
        try:
            async with contextlib.aclosing(self._stream.frames()) as frames:
                async for frame in frames:
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
        except EthosError as error:  # the page comes again by itself
            _log.warning("event stream ended", channel=self._conversation.channel, reason=str(error))


def _theme(request: Request) -> str:
    """The colours that were chosen on the dashboard; none: the system's."""
    chosen = request.cookies.get("ethos_theme", "")
    return chosen if chosen in ("light", "dark") else ""


async def _has_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# ---- around them ----------------------------------------------------------------------------------------------------


class _WhileReady:
    """Answers 503 until the channel runs, and 401 to everybody but the operator.

    The gateway's login has refused them before; that this page is never open does not hang on it alone.
    """

    def __init__(self, app: ASGIApp, is_ready: Callable[[], bool]) -> None:
        self._app = app
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not getattr(scope.get("user"), "is_authenticated", False):
            await JSONResponse({"error": "Log in first."}, status_code=401)(scope, receive, send)
        elif self._is_ready():
            await self._app(scope, receive, send)
        else:
            await _starting(scope)(scope, receive, send)


def _starting(scope: Scope) -> Response:
    text = "The gateway is starting; try again in a moment."
    response = _problem(Request(scope), 503, "One moment", text)
    response.headers["retry-after"] = "1"
    response.headers["refresh"] = "1"  # a page goes on by itself
    return response


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):  # pragma: no cover (it is registered for this class only)
        raise error
    response = _problem(request, error.status_code, "That did not work", error.detail)
    response.headers.update(error.headers or {})
    return response


def _problem(request: Request, status: int, title: str, text: str) -> Response:
    """A page for a person, `{"error": text}` for the page's own requests."""
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": text}, status_code=status)
    html = _environment().get_template("message.html").render(title=title, text=text, base=_base(request))
    return HTMLResponse(html, status_code=status)


class _Assets(StaticFiles):
    """The browser may keep them, and asks each time whether they changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 (loaded with the first page)

    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _base(request: Request) -> str:
    """Where the application is mounted, without a slash at the end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _last(request: Request) -> int:
    """How much of the history is asked for."""
    last = request.query_params.get("last", "")
    return min(max(int(last), 1), MAX_HISTORY_ENTRIES) if last.isascii() and last.isdigit() else PAGE_ENTRIES
