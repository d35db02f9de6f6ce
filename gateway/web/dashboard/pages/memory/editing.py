"""Editing a file of the memory, while the agent and other editors may do so, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError, MemoryConflict
from gateway.memory.history import difference
from gateway.memory.merging import has_marks, merge
from gateway.web.dashboard.filters import number
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.memory.choice import Choice, choice_of
from gateway.web.forms import Form

BASE_FIELD = "_base"
"""The text with which an edit began. It travels with the form, so that nothing has to remember it."""


class MemoryEditing:
    """The editor, and what it says where the file has changed meanwhile."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.memory

    async def show(self, request: Request) -> Response:
        """The editor, with the file as it is now."""
        choice = choice_of(request.query_params)
        document = await self._service.get(self._context.caller, choice.wanted)
        self._context.live.watch("memory", Path(document.path))
        form = Form([("content", document.content), (BASE_FIELD, document.content), ("version", document.version)])
        return self._editor(request, choice, form)

    async def news(self, request: Request) -> Response:
        """Whether the file is still the `version` with which an edit began; nothing new where it is the one `seen`."""
        choice, asked = choice_of(request.query_params), request.query_params
        document = await self._service.get(self._context.caller, choice.wanted)
        self._context.live.watch("memory", Path(document.path))
        if document.version == asked.get("seen"):
            return Response(status_code=204)  # what is shown stays, with what is open in it
        change = await self._service.change_to(self._context.caller, choice.wanted, document.version)
        return self._context.part(
            request,
            "memory/news.html",
            choice=choice,
            version=asked.get("version", ""),
            current=document.version,
            change=change,
            names=await self._context.sources.naming.labels(),
        )

    async def difference(self, request: Request, form: Form) -> Response:
        """What has changed in the file since an edit began, as a part of the editor."""
        document = await self._service.get(self._context.caller, choice_of(dict(form.fields)).wanted)
        changed = await asyncio.to_thread(difference, form.get(BASE_FIELD), document.content)
        return self._context.part(request, "memory/difference.html", diff=changed)

    async def save(self, request: Request, form: Form) -> Response:
        """Write it, if the file is what it was; else show how to unite both."""
        choice = choice_of(dict(form.fields))
        content = form.get("content")
        if has_marks(content):
            marked = "There are still marks of the conflict in the text. Decide at each, take the marks out, and save."
            return self._editor(request, choice, form, problem=marked)
        if too_large := self._too_large(content):
            return self._editor(request, choice, form, problem=too_large)
        if content == form.get(BASE_FIELD):
            return self._context.go(request, choice.path(with_store=False), f"{choice.file_name} is as it was.")
        try:
            await self._service.write(self._context.caller, choice.wanted, content, form.get("version"))
        except MemoryConflict as conflict:
            return await self._conflict(request, choice, form, conflict)
        except EthosError as error:  # what was typed stays in the editor
            return self._editor(request, choice, form, problem=str(error))
        self._context.live.changed("memory")
        return self._context.go(
            request, choice.path(with_store=False), f"{choice.file_name} is saved.", undo=await self._undo(choice)
        )

    def _too_large(self, content: str) -> str | None:
        """A person is told; what the agent writes beyond the cap moves the oldest into the archive."""
        cap, size_bytes = self._context.sources.config().memory.max_file_bytes, len(content.encode("utf-8", "replace"))
        if size_bytes <= cap:
            return None
        return (
            f"The text has {number(size_bytes)} bytes, and {number(cap)} is the most. Shorten it; nothing is saved yet."
        )

    async def _undo(self, choice: Choice) -> Undo | None:
        changes = await self._service.history(self._context.caller, choice.wanted, limit=1)
        if not changes:
            return None
        back = choice.path(with_store=False)
        return Undo(action=f"{BASE}/memory/undo", fields=[("change", str(changes[0].id)), ("back", back)])

    def _editor(self, request: Request, choice: Choice, form: Form, *, problem: str | None = None) -> Response:
        return self._context.render(
            request,
            "memory/edit.html",
            title=f"Edit {choice.file_name}",
            trail=[("Memory", choice.path(with_store=False))],
            status=200 if problem is None else 409,
            choice=choice,
            content=form.get("content"),
            base=form.get(BASE_FIELD),
            version=form.get("version"),
            problem=problem,
        )

    async def _conflict(self, request: Request, choice: Choice, form: Form, conflict: MemoryConflict) -> Response:
        base, mine, theirs = form.get(BASE_FIELD), form.get("content"), conflict.current
        merged = await asyncio.to_thread(merge, base, mine, theirs)
        return self._context.render(
            request,
            "memory/conflict.html",
            title=f"{choice.file_name} has changed meanwhile",
            trail=[("Memory", choice.path(with_store=False))],
            status=409,
            choice=choice,
            merged=merged,
            base=base,
            mine=mine,
            theirs=theirs,
            version=conflict.current_version,
            my_diff=await asyncio.to_thread(difference, base, mine),
            their_diff=await asyncio.to_thread(difference, base, theirs),
            change=await self._service.change_to(self._context.caller, choice.wanted, conflict.current_version),
            names=await self._context.sources.naming.labels(),
        )
