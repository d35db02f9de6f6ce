"""Tools: what they did, for whom, with what, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import whole_number

PAGE = Page(name="tools", title="Tools", icon="tools", position=55, least="member")

ROWS = 50
WORDS: Mapping[str, tuple[str, str]] = {
    "begun": ("Runs", ""),
    "waiting": ("Waits for a yes", "warn"),
    "done": ("Done", "ok"),
    "failed": ("Failed", "warn"),
    "refused": ("Not tried", ""),
    "uncertain": ("Not known", "bad"),
}
EFFECTS: Mapping[str, str] = {
    "read": "looks",
    "own": "changes what is the person's own",
    "fetch": "goes to an address",
    "act": "acts on the world",
}


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """The newest first."""
    user = request.query_params.get("user") or None
    before = whole_number(request.query_params.get("before", ""))
    rows = await context.services.tools.calls(context.caller, user=user, limit=ROWS + 1, before=before)
    labels = await context.names()
    waiting = await context.services.approvals.listed(context.caller)
    return context.render(
        request,
        "tools/index.html",
        title=PAGE.title,
        rows=rows[:ROWS],
        waiting=len(waiting),
        words=WORDS,
        effects=EFFECTS,
        user=user,
        people=sorted(labels.items(), key=lambda each: each[1].casefold()),
        labels=labels,
        older=_address(user, rows[ROWS - 1].id) if len(rows) > ROWS else None,
        newest=_address(user) if before is not None else None,
    )


def _address(user: str | None, before: int | None = None) -> str:
    values = {key: value for key, value in {"user": user, "before": before}.items() if value is not None}
    return f"{PAGE.path}?{urlencode(values)}"
