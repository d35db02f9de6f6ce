"""Traces: many small facts, each with a strength; how they fade, what they are linked to, how they come and go."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import Frame
from gateway.web.dashboard.pages.traces.changing import TraceChanges
from gateway.web.dashboard.pages.traces.looking import TraceViews
from gateway.web.dashboard.pages.traces.transfer import TraceFiles


def _routes(frame: Frame) -> Sequence[Route]:
    views, changes, files = TraceViews(frame), TraceChanges(frame), TraceFiles(frame)
    return [
        Route("/traces", views.list),
        Route("/traces/log", views.log),
        Route("/traces/consolidate", frame.taking(changes.consolidate), methods=["POST"]),
        Route("/traces/add", frame.taking(changes.add), methods=["POST"]),
        Route("/traces/save", frame.taking(changes.save), methods=["POST"]),
        Route("/traces/delete", frame.taking(changes.delete), methods=["POST"]),
        Route("/traces/restore", frame.taking(changes.restore), methods=["POST"]),
        Route("/traces/merge", frame.taking(changes.merge), methods=["POST"]),
        Route("/traces/part", frame.taking(changes.part), methods=["POST"]),
        Route("/traces/files", files.show),
        Route("/traces/import", frame.taking_file(files.receive, files.look), methods=["POST"]),
        Route("/traces/import/do", frame.taking(files.import_file), methods=["POST"]),
        Route("/traces/export", files.export),
        Route("/traces/one/{trace}", views.one),
    ]


PAGE = Page(name="traces", title="Traces", icon="traces", position=15, routes=_routes)
