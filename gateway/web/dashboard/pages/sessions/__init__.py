"""Sessions: found by their words and marks, read with their tool calls, forked, renamed, pinned, exported, deleted."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.sessions.finding import FindingSessions
from gateway.web.dashboard.pages.sessions.reading import ReadingSession
from gateway.web.dashboard.pages.sessions.tidying import TidyingSessions


def _routes(context: PageContext) -> Sequence[Route]:
    finding, reading, tidying = FindingSessions(context), ReadingSession(context), TidyingSessions(context)
    return [
        Route("/sessions", finding.show),
        Route("/sessions/rename", context.form_handler(tidying.rename), methods=["POST"]),
        Route("/sessions/pin", context.form_handler(tidying.pin), methods=["POST"]),
        Route("/sessions/fork", context.form_handler(tidying.fork), methods=["POST"]),
        Route("/sessions/delete", context.form_handler(tidying.delete), methods=["POST"]),
        Route("/sessions/{session}", reading.show),
        Route("/sessions/{session}/news", reading.news),
        Route("/sessions/{session}/export", reading.export),
    ]


PAGE = Page(name="sessions", title="Sessions", icon="sessions", position=14, routes=_routes)
