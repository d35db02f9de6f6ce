"""Every change of the memory: who made it, when, on which channel, in which turn, and the way back."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError, MemoryConflict
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.dashboard.pages.memory.choice import choice_of
from gateway.web.forms import Form

PAGE_CHANGES = 30


class MemoryChanges:
    """The timeline of one file, or of all."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.memory

    async def show(self, request: Request) -> Response:
        """Newest first, a page at a time."""
        choice = choice_of(request.query_params)
        before = request.query_params.get("before", "")
        wanted = choice.wanted if choice.store else None
        found = await self._service.history(
            self._context.caller,
            wanted,
            limit=PAGE_CHANGES + 1,
            before=int(before) if before.isascii() and before.isdigit() else None,
        )
        document = await self._service.get(self._context.caller, wanted) if wanted else None
        here = choice.path("history")
        mark = "&" if "?" in here else "?"
        return self._context.render(
            request,
            "memory/history.html",
            title=f"Changes of {choice.file_name}" if choice.store else "All changes",
            trail=[("Memory", choice.path(with_store=False))],
            choice=choice,
            changes=found[:PAGE_CHANGES],
            document=document,
            here=here,
            names=await self._context.sources.naming.labels(),
            newer=here if before else None,
            older=f"{here}{mark}before={found[PAGE_CHANGES - 1].id}" if len(found) > PAGE_CHANGES else None,
        )

    async def undo(self, request: Request, form: Form) -> Response:
        """Bring back the text from before a change; it is a change of its own, and so can be taken back as well."""
        back = own_path(form.get("back"), f"{BASE}/memory")
        number = _number(form)
        try:
            document = await self._service.undo(self._context.caller, number)
        except MemoryConflict:
            text = "The file has changed since, so this change alone cannot be taken back. Edit the file instead."
            return self._context.go(request, back, text, is_problem=True)
        except EthosError as error:
            return self._context.go(request, back, str(error), is_problem=True)
        self._context.live.changed("memory")
        undo = await self._again(number, back)
        return self._context.go(request, back, f"The change of {_name(document.path)} is taken back.", undo=undo)

    async def restore(self, request: Request, form: Form) -> Response:
        """Put the text in place that a change left."""
        back = own_path(form.get("back"), f"{BASE}/memory")
        number = _number(form)
        try:
            document = await self._service.restore(self._context.caller, number, form.get("version"))
        except MemoryConflict:
            text = "The file has changed since this page was made. Look at the newest change first."
            return self._context.go(request, back, text, is_problem=True)
        except EthosError as error:
            return self._context.go(request, back, str(error), is_problem=True)
        self._context.live.changed("memory")
        undo = await self._again(number, back)
        return self._context.go(request, back, f"{_name(document.path)} is as that change left it.", undo=undo)

    async def _again(self, number: int, back: str) -> Undo | None:
        """The way back from what was just done: the newest change of the same document."""
        change = (await self._service.diff(self._context.caller, number)).change
        choice = choice_of({"store": change.store or "", "user": change.user or "", "personality": ""})
        named = choice_of({**dict(choice.pairs), "personality": change.personality or ""})
        newest = await self._service.history(self._context.caller, named.wanted, limit=1)
        if not newest:
            return None
        return Undo(action=f"{BASE}/memory/undo", fields=[("change", str(newest[0].id)), ("back", back)])


def _number(form: Form) -> int:
    value = form.get("change")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else 0


def _name(path: str) -> str:
    return path.rpartition("/")[2]
