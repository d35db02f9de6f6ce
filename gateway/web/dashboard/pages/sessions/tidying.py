"""What is done to a session: renamed, pinned, forked, deleted; each can be taken back, or asks first."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.sessions import ForkSession, UpdateSession
from gateway.services.caller import NotFound
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.forms import CONFIRMED_FIELD, Form

LIST = f"{BASE}/sessions"
MAX_TITLE_CHARS = 200
NAMED = 5
"""Of several sessions so many are named in a question."""


class TidyingSessions:
    """The forms of the page. A session that is gone meanwhile is said by the service, and shown."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.sessions

    async def rename(self, request: Request, form: Form) -> Response:
        """Another title; turns do not change it any more."""
        session = await self._service.get(self._context.caller, form.get("session"))
        back = own_path(form.get("back"), f"{LIST}/{session.id}")
        title = form.get("title").strip()
        if not title or len(title) > MAX_TITLE_CHARS:
            text = f"The title stays: a new one needs 1 to {MAX_TITLE_CHARS} characters."
            return self._context.go(request, back, text, is_problem=True)
        await self._service.update(self._context.caller, session.id, UpdateSession(title=title))
        self._context.live.changed("messages")
        fields = [("session", session.id), ("title", session.title), ("back", back)]
        undo = Undo(action=f"{LIST}/rename", fields=fields) if session.title else None
        return self._context.go(request, back, f"It is called “{title}” now.", undo=undo)

    async def pin(self, request: Request, form: Form) -> Response:
        """Keep it on top of the list, or no longer."""
        session_id, is_pinned = form.get("session"), form.get("pinned") == "yes"
        session = await self._service.update(self._context.caller, session_id, UpdateSession(is_pinned=is_pinned))
        back = own_path(form.get("back"), f"{LIST}/{session.id}")
        self._context.live.changed("messages")
        fields = [("session", session.id), ("pinned", "no" if is_pinned else "yes"), ("back", back)]
        text = "It is pinned, and stands on top of the list." if is_pinned else "It is not pinned any more."
        return self._context.go(request, back, text, undo=Undo(action=f"{LIST}/pin", fields=fields))

    async def fork(self, request: Request, form: Form) -> Response:
        """Copy it up to a message, into a conversation that goes on in the chat here."""
        session_id = form.get("session")
        try:
            fork = ForkSession(message=int(form.get("message")))
        except (ValueError, ValidationError):
            return self._context.go(request, LIST, "It is not said up to which message; fork again.", is_problem=True)
        copy = await self._service.fork(self._context.caller, session_id, fork)
        self._context.live.changed("messages")
        to = f"{BASE}/chat/{copy.id}" if form.get("to") == "chat" else f"{LIST}/{copy.id}"
        fields = [("session", copy.id), (CONFIRMED_FIELD, "yes"), ("back", f"{LIST}/{session_id}")]
        text = "This is a copy. What is said here does not reach the session that it was copied from."
        return self._context.go(request, to, text, undo=Undo(action=f"{LIST}/delete", fields=fields))

    async def delete(self, request: Request, form: Form) -> Response:
        """Forget it, or several, after a question."""
        chosen = list(dict.fromkeys(form.all("session")))
        if len(chosen) != 1:
            return await self._delete_all(request, form, chosen)
        session = await self._service.get(self._context.caller, form.get("session"))
        if not form.is_confirmed:
            return self._context.ask(
                request,
                form,
                title="Delete this session?",
                text=f"“{session.title or session.id}” is forgotten here with its {session.messages} messages, and no "
                f"search finds them any more. What the memory holds stays, and so does what {session.channel} itself "
                f"shows. This cannot be undone; export it first if you may want it again.",
                yes="Delete it",
                back=f"{LIST}/{session.id}",
            )
        await self._service.delete(self._context.caller, session.id)
        self._context.live.changed("messages")
        return self._context.go(request, own_path(form.get("back"), LIST), "The session is deleted.")

    async def _delete_all(self, request: Request, form: Form, chosen: Sequence[str]) -> Response:
        """What is gone meanwhile is left out."""
        found = []
        for session_id in chosen:
            with contextlib.suppress(NotFound):
                found.append(await self._service.get(self._context.caller, session_id))
        if not found:
            return self._context.go(request, LIST, "Choose the sessions that you want to delete.", is_problem=True)
        if not form.is_confirmed:
            named = ", ".join(f"“{one.title or one.id}”" for one in found[:NAMED])
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            return self._context.ask(
                request,
                form,
                title=f"Delete {len(found)} sessions?",
                text=f"{named}{more} are forgotten here with {sum(one.messages for one in found)} messages, and no "
                "search finds them any more. What the memory holds stays. This cannot be undone; export first what "
                "you may want again.",
                yes="Delete them",
                back=LIST,
            )
        for one in found:
            with contextlib.suppress(NotFound):
                await self._service.delete(self._context.caller, one.id)
        self._context.live.changed("messages")
        return self._context.go(request, LIST, f"{len(found)} sessions are deleted.")
