"""Memory: the files that the agent reads next turn, their changes, and what waits for a yes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError, MemoryConflict, NotOffered
from gateway.memory.history import difference
from gateway.memory.merging import has_marks, merge
from gateway.protocols import MemoryStoreName
from gateway.sdk.models.memory import Change, Document
from gateway.services.caller import NotAllowed, Refused
from gateway.services.naming import Wanted
from gateway.web.dashboard.filters import number
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.forms import Form, whole_number
from gateway.web.markdown import is_too_long, to_html

PAGE = Page(name="memory", title="Memory", icon="memory", position=10, least="member")

LATEST_CHANGES = 3
FILE_NAMES: Mapping[MemoryStoreName, str] = {"user": "USER.md", "memory": "MEMORY.md"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What an address or a form says. Ids are looked at by the service."""

    personality: str | None = None
    user: str | None = None
    store: MemoryStoreName | None = None

    @property
    def wanted(self) -> Wanted:
        """The same, as the service takes it."""
        return Wanted(personality=self.personality, user=self.user, store=self.store)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """As fields of a form, or the query of an address."""
        named = (("personality", self.personality), ("user", self.user), ("store", self.store))
        return [(name, value) for name, value in named if value]

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return FILE_NAMES[self.store or "memory"]

    def path(self, part: Literal["", "edit", "history"] = "", *, with_store: bool = True) -> str:
        """The address of a page about it."""
        pairs = self.pairs if with_store else [pair for pair in self.pairs if pair[0] != "store"]
        address = f"{PAGE.path}/{part}".rstrip("/")
        return f"{address}?{urlencode(pairs)}" if pairs else address


def choice_of(values: Mapping[str, str]) -> Choice:
    """What the fields or the query say; an unknown store is none."""
    store = values.get("store")
    return Choice(
        personality=values.get("personality") or None,
        user=values.get("user") or None,
        store=cast("MemoryStoreName", store) if store in FILE_NAMES else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCard:
    """A file on the page.

    Attributes:
        document: None where it cannot be shown, and `problem` says why.
        html: None where the text is shown as it was written.
    """

    choice: Choice
    document: Document | None = None
    html: Markup | None = None
    changes: Sequence[Change] = ()
    problem: str | None = None


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """Both files; a user and a personality that are not chosen are the first user and the default one."""
    names = await context.names()
    asked = choice_of(request.query_params)
    choice = Choice(
        personality=asked.personality or context.sources.config.current.personality,
        user=asked.user or context.caller.speaks_as or next(iter(names), None),
    )
    is_raw = request.query_params.get("view") == "raw"
    stores = [Choice(personality=choice.personality, user=choice.user, store="memory")]
    if choice.user is not None:
        stores.insert(0, replace(stores[0], store="user"))
    return context.render(
        request,
        "memory/index.html",
        title="Memory",
        choice=choice,
        users=names if choice.user in names or choice.user is None else {choice.user: choice.user, **names},
        personalities=[one.id for one in context.sources.personalities.list()],
        cards=[card for one in stores if (card := await _card(context, one, is_raw=is_raw)) is not None],
        is_raw=is_raw,
        names=names,
        waiting=await context.services.memory.waiting(context.caller),
        lacks=context.services.memory.provider().lacks,
    )


async def _card(context: PageContext, choice: Choice, *, is_raw: bool) -> FileCard | None:
    """None for a person whose personality has a memory that others share."""
    try:
        document = await context.services.memory.get(context.caller, choice.wanted)
        changes = await _latest(context, choice.wanted, LATEST_CHANGES)
        await _watch(context, choice, document)
    except NotAllowed as error:
        return None if context.caller.user_id == choice.user else FileCard(choice=choice, problem=str(error))
    except EthosError as error:  # the other file can still be looked at
        return FileCard(choice=choice, problem=str(error))
    if is_raw or is_too_long(document.content):
        return FileCard(choice=choice, document=document, changes=changes)
    html = await asyncio.to_thread(to_html, document.content)
    return FileCard(choice=choice, document=document, html=html, changes=changes)


async def _latest(context: PageContext, wanted: Wanted, limit: int) -> Sequence[Change]:
    """The newest changes; none where the memory keeps no history."""
    if "history" in context.services.memory.provider().lacks:
        return ()
    return await context.services.memory.history(context.caller, wanted, limit=limit)


async def _watch(context: PageContext, choice: Choice, document: Document) -> None:
    """Tell this page when the document changes, by whatever means."""
    service, caller, wanted = context.services.memory, context.caller, choice.wanted
    path = await service.file(caller, wanted)
    if path is not None:
        context.live.watch("memory", path)
        return

    async def version() -> str:
        return (await service.get(caller, wanted)).version

    context.live.watch_version("memory", wanted, document.version, version)


BASE_FIELD = "_base"
"""The text with which an edit began. It travels with the form, so that nothing has to remember it."""


@PAGE.route("/edit")
async def edit(context: PageContext, request: Request) -> Response:
    """The editor, with the file as it is now."""
    choice = choice_of(request.query_params)
    lacks = context.services.memory.provider().lacks
    if "editable" in lacks:
        raise NotOffered(lacks["editable"])
    document = await context.services.memory.get(context.caller, choice.wanted)
    await _watch(context, choice, document)
    form = Form([("content", document.content), (BASE_FIELD, document.content), ("version", document.version)])
    return _editor(context, request, choice, form)


@PAGE.route("/edit/news")
async def news(context: PageContext, request: Request) -> Response:
    """Whether the file is still the `version` with which an edit began; nothing new where it is the one `seen`."""
    choice, asked = choice_of(request.query_params), request.query_params
    document = await context.services.memory.get(context.caller, choice.wanted)
    await _watch(context, choice, document)
    if document.version == asked.get("seen"):
        return Response(status_code=204)  # what is shown stays, with what is open in it
    change = await context.services.memory.change_to(context.caller, choice.wanted, document.version)
    return context.part(
        request,
        "memory/news.html",
        choice=choice,
        version=asked.get("version", ""),
        current=document.version,
        change=change,
        names=await context.names(),
    )


@PAGE.form("/edit/difference")
async def show_difference(context: PageContext, request: Request, form: Form) -> Response:
    """What has changed in the file since an edit began, as a part of the editor."""
    document = await context.services.memory.get(context.caller, choice_of(dict(form.fields)).wanted)
    changed = await asyncio.to_thread(difference, form.get(BASE_FIELD), document.content)
    return context.part(request, "memory/difference.html", diff=changed)


@PAGE.form("/save")
async def save(context: PageContext, request: Request, form: Form) -> Response:
    """Write it, if the file is what it was; else show how to unite both."""
    choice = choice_of(dict(form.fields))
    content = form.get("content")
    if has_marks(content):
        marked = "There are still marks of the conflict in the text. Decide at each, take the marks out, and save."
        return _editor(context, request, choice, form, problem=marked)
    if too_large := _too_large(context, content):
        return _editor(context, request, choice, form, problem=too_large)
    back = choice.path(with_store=False)
    if content == form.get(BASE_FIELD):
        return context.go(request, back, f"{choice.file_name} is as it was.")
    try:
        await context.services.memory.write(context.caller, choice.wanted, content, form.get("version"))
    except MemoryConflict as conflict:
        return await _conflict(context, request, choice, form, conflict)
    except EthosError as error:  # what was typed stays in the editor
        return _editor(context, request, choice, form, problem=str(error))
    context.live.changed("memory")
    undo = await _undo(context, choice.wanted, back)
    return context.go(request, back, f"{choice.file_name} is saved.", undo=undo)


def _too_large(context: PageContext, content: str) -> str | None:
    """What is wrong with a text above the cap; where the agent writes above it, the oldest part is archived."""
    cap = context.sources.config.current.memory.max_file_bytes
    size_bytes = len(content.encode("utf-8", "replace"))
    if size_bytes <= cap:
        return None
    return f"The text has {number(size_bytes)} bytes, and {number(cap)} is the most. Shorten it; nothing is saved yet."


def _editor(
    context: PageContext, request: Request, choice: Choice, form: Form, *, problem: str | None = None
) -> Response:
    return context.render(
        request,
        "memory/edit.html",
        title=f"Edit {choice.file_name}",
        trail=[(PAGE.title, choice.path(with_store=False))],
        status=200 if problem is None else 409,
        choice=choice,
        content=form.get("content"),
        base=form.get(BASE_FIELD),
        version=form.get("version"),
        problem=problem,
    )


async def _conflict(
    context: PageContext, request: Request, choice: Choice, form: Form, conflict: MemoryConflict
) -> Response:
    base, mine, theirs = form.get(BASE_FIELD), form.get("content"), conflict.current
    merged = await asyncio.to_thread(merge, base, mine, theirs)
    return context.render(
        request,
        "memory/conflict.html",
        title=f"{choice.file_name} has changed meanwhile",
        trail=[(PAGE.title, choice.path(with_store=False))],
        status=409,
        choice=choice,
        merged=merged,
        base=base,
        mine=mine,
        theirs=theirs,
        version=conflict.current_version,
        my_diff=await asyncio.to_thread(difference, base, mine),
        their_diff=await asyncio.to_thread(difference, base, theirs),
        change=await context.services.memory.change_to(context.caller, choice.wanted, conflict.current_version),
        names=await context.names(),
    )


PAGE_CHANGES = 30


@PAGE.route("/history")
async def history(context: PageContext, request: Request) -> Response:
    """Newest first, a page at a time."""
    choice = choice_of(request.query_params)
    before = whole_number(request.query_params.get("before", ""))
    wanted = choice.wanted if choice.store else None
    found = await context.services.memory.history(context.caller, wanted, limit=PAGE_CHANGES + 1, before=before)
    document = await context.services.memory.get(context.caller, wanted) if wanted else None
    here = choice.path("history")
    mark = "&" if "?" in here else "?"
    return context.render(
        request,
        "memory/history.html",
        title=f"Changes of {choice.file_name}" if choice.store else "All changes",
        trail=[(PAGE.title, choice.path(with_store=False))],
        choice=choice,
        changes=found[:PAGE_CHANGES],
        document=document,
        here=here,
        names=await context.names(),
        newer=None if before is None else here,
        older=f"{here}{mark}before={found[PAGE_CHANGES - 1].id}" if len(found) > PAGE_CHANGES else None,
    )


@PAGE.form("/undo", back=PAGE.path)
async def undo(context: PageContext, request: Request, form: Form) -> Response:
    """Bring back the text from before a change; it is a change of its own, and so can be taken back as well."""
    number = whole_number(form.get("change")) or 0
    try:
        document = await context.services.memory.undo(context.caller, number)
    except MemoryConflict as error:
        text = "The document has changed since, so this change alone cannot be taken back. Edit it instead."
        raise Refused(text) from error
    return await _done(context, request, form, number, f"The change of {FILE_NAMES[document.store]} is taken back.")


@PAGE.form("/restore", back=PAGE.path)
async def restore(context: PageContext, request: Request, form: Form) -> Response:
    """Put the text in place that a change left."""
    number = whole_number(form.get("change")) or 0
    try:
        document = await context.services.memory.restore(context.caller, number, form.get("version"))
    except MemoryConflict as error:
        raise Refused("The document has changed since this page was made. Look at the newest change first.") from error
    return await _done(context, request, form, number, f"{FILE_NAMES[document.store]} is as that change left it.")


async def _done(context: PageContext, request: Request, form: Form, number: int, said: str) -> Response:
    context.live.changed("memory")
    back = own_path(form.get("back"), PAGE.path)
    change = (await context.services.memory.diff(context.caller, number)).change
    wanted = Wanted(personality=change.personality, user=change.user, store=change.store)
    return context.go(request, back, said, undo=await _undo(context, wanted, back))


async def _undo(context: PageContext, wanted: Wanted, back: str) -> Undo | None:
    """The way back from what was just done: the newest change of the document."""
    changes = await _latest(context, wanted, 1)
    if not changes:
        return None
    return Undo(action=f"{PAGE.path}/undo", fields=[("change", str(changes[0].id)), ("back", back)])
