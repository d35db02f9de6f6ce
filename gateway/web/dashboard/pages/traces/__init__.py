"""Traces: many small facts, each with a strength; how they fade, what they are linked to, how they come and go."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.traces.changing import TraceChanges
from gateway.web.dashboard.pages.traces.looking import TraceViews
from gateway.web.dashboard.pages.traces.transfer import TraceFiles


def _routes(context: PageContext) -> Sequence[Route]:
    views, changes, files = TraceViews(context), TraceChanges(context), TraceFiles(context)
    return [
        Route("/traces", views.list),
        Route("/traces/log", views.log),
        Route("/traces/consolidate", context.form_handler(changes.consolidate), methods=["POST"]),
        Route("/traces/add", context.form_handler(changes.add), methods=["POST"]),
        Route("/traces/save", context.form_handler(changes.save), methods=["POST"]),
        Route("/traces/delete", context.form_handler(changes.delete), methods=["POST"]),
        Route("/traces/restore", context.form_handler(changes.restore), methods=["POST"]),
        Route("/traces/merge", context.form_handler(changes.merge), methods=["POST"]),
        Route("/traces/part", context.form_handler(changes.part), methods=["POST"]),
        Route("/traces/files", files.show),
        Route("/traces/import", context.taking_file(files.receive, files.look), methods=["POST"]),
        Route("/traces/import/do", context.form_handler(files.import_file), methods=["POST"]),
        Route("/traces/export", files.export),
        Route("/traces/one/{trace}", views.one),
    ]


PAGE = Page(name="traces", title="Traces", icon="traces", position=15, routes=_routes)
