"""Backups: when the last was made, one more, those that are there, and what a restore takes."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from gateway.services.backups import KEPT
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.forms import Form

PAGE = Page(name="backups", title="Backups", icon="backups", position=93)


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All of them."""
    backups = await context.services.backups.show(context.caller)
    return context.render(request, "backups/index.html", title=PAGE.title, backups=backups, kept=KEPT)


@PAGE.form("/make", back=PAGE.path)
async def make(context: PageContext, request: Request, form: Form) -> Response:
    """Begin to make one; the page shows what becomes of it."""
    context.services.backups.begin(context.caller, partial(context.live.changed, "backups"))
    return context.go(request, own_path(form.get("back"), PAGE.path))


@PAGE.route("/file/{name}")
async def file(context: PageContext, request: Request) -> Response:
    """One of them, as a file."""
    found = await context.services.backups.find(context.caller, request.path_params["name"])
    return FileResponse(
        found.path, media_type="application/gzip", filename=found.path.name, headers={"cache-control": "no-store"}
    )
