"""What is done to traces, each with its way back."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.sdk.models.traces import AddTrace, ConsolidationResult
from gateway.traces.trace import SCOPES, TYPES
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.dashboard.pages.traces import PAGE
from gateway.web.forms import Form

LIST = PAGE.path
MOST_CHARS = 100_000
WAITED_S = 8.0
"""So long the page waits for a consolidation; after that it goes on in the background, and the log shows it."""
_consolidating: set[asyncio.Task[ConsolidationResult]] = set()


def address_of(trace_id: str) -> str:
    """Where one trace is shown."""
    return f"{LIST}/one/{trace_id}"


@PAGE.form("/add", back=LIST)
async def add(context: PageContext, request: Request, form: Form) -> Response:
    """Add a trace that the operator typed."""
    wanted = AddTrace.model_construct(
        content=form.get("content")[:MOST_CHARS],
        type=next((one for one in TYPES if one == form.get("type")), "semantic"),
        scope=next((one for one in SCOPES if one == form.get("scope")), "user"),
        tags=_tags(form),
        user=form.get("user") or None,
        personality=form.get("personality") or None,
        session=None,
    )
    trace = await context.services.traces.add(context.caller, wanted)
    undo = Undo(action=f"{LIST}/delete", fields=[("trace", trace.id), ("back", LIST)])
    return context.go(request, address_of(trace.id), "It is remembered.", undo=undo)


@PAGE.form("/save")
async def save(context: PageContext, request: Request, form: Form) -> Response:
    """Change what it says, and its tags."""
    trace_id = form.get("trace")
    caller = context.caller
    before = await context.services.traces.get(caller, trace_id)
    try:
        await context.services.traces.update(
            caller, trace_id, content=form.get("content")[:MOST_CHARS], tags=_tags(form)
        )
    except EthosError as error:
        return context.go(request, address_of(trace_id), str(error), is_problem=True)
    fields = [("trace", trace_id), ("content", before.content), ("tags", "\n".join(before.tags))]
    undo = Undo(action=f"{LIST}/save", fields=fields)
    fits = len(before.content) < 2_000  # it travels in a cookie
    return context.go(request, address_of(trace_id), "It is changed.", undo=undo if fits else None)


@PAGE.form("/delete")
async def delete(context: PageContext, request: Request, form: Form) -> Response:
    """Hide it."""
    return await _set(context, request, form, is_deleted=True)


@PAGE.form("/restore")
async def restore(context: PageContext, request: Request, form: Form) -> Response:
    """Bring it back."""
    return await _set(context, request, form, is_deleted=False)


async def _set(context: PageContext, request: Request, form: Form, *, is_deleted: bool) -> Response:
    trace_id = form.get("trace")
    back = own_path(form.get("back"), address_of(trace_id))
    service = context.services.traces
    try:
        await (service.delete if is_deleted else service.restore)(context.caller, trace_id)
    except EthosError as error:
        return context.go(request, back, str(error), is_problem=True)
    other = "restore" if is_deleted else "delete"
    undo = Undo(action=f"{LIST}/{other}", fields=[("trace", trace_id), ("back", back)])
    text = "It is deleted: no search, answer or export has it any more." if is_deleted else "It is back."
    return context.go(request, back, text, undo=undo)


@PAGE.form("/merge", back=LIST)
async def merge(context: PageContext, request: Request, form: Form) -> Response:
    """Show what would be one trace, for a look and another wording; then do it."""
    ids = list(dict.fromkeys(form.all("trace")))
    caller = context.caller
    if len(ids) < 2:
        return context.go(request, LIST, "Choose two traces or more to merge them.", is_problem=True)
    if not form.is_confirmed:
        traces = [await context.services.traces.get(caller, trace_id) for trace_id in ids]
        return context.render(
            request,
            "traces/merge.html",
            title="Merge these?",
            trail=[(PAGE.title, LIST)],
            traces=traces,
            content="\n".join(dict.fromkeys(trace.content for trace in traces)),
        )
    merged = await context.services.traces.merge(caller, ids, form.get("content")[:MOST_CHARS].strip() or None)
    fields = [("merged", merged.id), *(("trace", trace_id) for trace_id in ids)]
    undo = Undo(action=f"{LIST}/part", fields=fields)
    return context.go(request, address_of(merged.id), f"{len(ids)} traces are one now.", undo=undo)


@PAGE.form("/part", back=LIST)
async def part(context: PageContext, request: Request, form: Form) -> Response:
    """Take a merge back: its sources come back, and it is deleted."""
    for trace_id in form.all("trace"):
        await context.services.traces.restore(context.caller, trace_id)
    await context.services.traces.delete(context.caller, form.get("merged"))
    return context.go(request, LIST, "They are apart again.")


@PAGE.form("/consolidate", back=f"{LIST}/log")
async def consolidate(context: PageContext, request: Request, _form: Form) -> Response:
    """Do now what is done every night."""
    work = asyncio.create_task(context.services.traces.consolidate(context.caller), name="consolidation by hand")
    _consolidating.add(work)
    work.add_done_callback(_consolidating.discard)
    log = f"{LIST}/log"
    done, _ = await asyncio.wait([work], timeout=WAITED_S)
    if not done:
        return context.go(request, log, "It takes a while. This page shows it when it is done.")
    return context.go(request, log, _said(work.result()))


def _tags(form: Form) -> tuple[str, ...]:
    """One on each line: a tag may have blanks in it."""
    return tuple(dict.fromkeys(line.strip() for line in form.get("tags").splitlines() if line.strip()))[:50]


def _said(report: ConsolidationResult) -> str:
    if report.is_running:
        return "A consolidation is at work already. This page shows it when it is done."
    if not (report.pruned or report.merged or report.derived or report.compacted):
        return "Nothing was to be done."
    return (
        f"Done: {report.pruned:,} faded and hidden, {report.merged:,} merged, {report.derived:,} insights, "
        f"{report.compacted:,} became knowledge."
    )
