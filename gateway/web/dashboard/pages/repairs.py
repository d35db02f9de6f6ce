"""Repairs: what is wrong with the gateway, what to do about it, and a button where we can do it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.system import Finding, Findings
from gateway.services.caller import NotFound
from gateway.web.dashboard.page import Page, all_pages
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import Form

PAGE = Page(name="repairs", title="Repairs", icon="repairs", position=75)

OLD = timedelta(days=1)
"""After that the slow checks are made again when somebody opens the page."""
TOPIC = "repairs"


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """What the last look found."""
    found = await context.services.repairs.latest(context.caller, context.live.moment_of(TOPIC))
    at = found.looked_at_all_at
    return _shown(context, request, found, is_due=at is None or datetime.now(UTC) - at > OLD)


@PAGE.route("/all")
async def look(context: PageContext, request: Request) -> Response:
    """The same after a look with the slow checks."""
    found = await context.services.repairs.findings(context.caller, thorough=True)
    context.live.changed(TOPIC)
    return _shown(context, request, found)


@PAGE.route("/badge")
async def badge(context: PageContext, request: Request) -> Response:
    """For the navigation of every page: how much is wrong."""
    found = await context.services.repairs.latest(context.caller, context.live.moment_of(TOPIC))
    return context.part(request, "repairs/badge.html", count=len(_counting(found)))


@PAGE.form("/look", back=PAGE.path)
async def look_again(context: PageContext, request: Request, _form: Form) -> Response:
    """Look at everything now; it may take a moment."""
    await context.services.repairs.findings(context.caller, thorough=True)
    context.live.changed(TOPIC)
    return context.go(request, PAGE.path)


@PAGE.form("/repair", back=PAGE.path)
async def repair(context: PageContext, request: Request, form: Form) -> Response:
    """Repair one finding; what cannot be undone is asked first."""
    finding = await _named(context, form)
    if finding.repair is not None and finding.repair.asks and not form.is_confirmed:
        return context.ask(
            request, form, title=finding.what, text=finding.repair.does, yes=finding.repair.label, back=PAGE.path
        )
    done = await context.services.repairs.repair(context.caller, finding.id)
    context.live.changed(TOPIC, "channels", "deliveries", "memory")
    text = done.did if done.is_gone else f"{done.did} It is still found: {finding.advice}"
    return context.go(request, PAGE.path, text, is_problem=not done.is_gone)


@PAGE.form("/aside", back=PAGE.path)
async def put_aside(context: PageContext, request: Request, form: Form) -> Response:
    """Let a finding count no more until it changes, or count again."""
    is_put_aside = form.get("do") != "back"
    await context.services.repairs.put_aside(context.caller, form.get("finding"), is_put_aside=is_put_aside)
    context.live.changed(TOPIC)
    text = "It is put aside, and counts again when it changes." if is_put_aside else "It counts again."
    return context.go(request, PAGE.path, text)


def _shown(context: PageContext, request: Request, found: Findings, *, is_due: bool = False) -> Response:
    counting = _counting(found)
    return context.render(
        request,
        "repairs/index.html",
        title=PAGE.title,
        found=found,
        groups=[
            ("Problems", [one for one in counting if one.level == "problem"]),
            ("Warnings", [one for one in counting if one.level == "warning"]),
        ],
        aside=[one for one in found.items if one.is_put_aside and one.level != "note"],
        notes=[one for one in found.items if one.level == "note"],
        titles={page.name: page.title for page in all_pages()},
        is_due=is_due,
    )


async def _named(context: PageContext, form: Form) -> Finding:
    """The finding that a form names, as the last look has it."""
    found = await context.services.repairs.latest(context.caller)
    for one in found.items:
        if one.id == form.get("finding"):
            return one
    raise NotFound("That is not found any more, so there is nothing to repair.")


def _counting(found: Findings) -> Sequence[Finding]:
    return [one for one in found.items if one.level != "note" and not one.is_put_aside]
