"""Sessions: found by their words and marks, read with their tool calls, forked, renamed, pinned, exported, deleted."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import Frame
from gateway.web.dashboard.pages.sessions.finding import FindingSessions
from gateway.web.dashboard.pages.sessions.reading import ReadingSession
from gateway.web.dashboard.pages.sessions.tidying import TidyingSessions


def _routes(frame: Frame) -> Sequence[Route]:
    finding, reading, tidying = FindingSessions(frame), ReadingSession(frame), TidyingSessions(frame)
    return [
        Route("/sessions", finding.show),
        Route("/sessions/rename", frame.taking(tidying.rename), methods=["POST"]),
        Route("/sessions/pin", frame.taking(tidying.pin), methods=["POST"]),
        Route("/sessions/fork", frame.taking(tidying.fork), methods=["POST"]),
        Route("/sessions/delete", frame.taking(tidying.delete), methods=["POST"]),
        Route("/sessions/{session}", reading.show),
        Route("/sessions/{session}/news", reading.news),
        Route("/sessions/{session}/export", reading.export),
    ]


PAGE = Page(name="sessions", title="Sessions", icon="sessions", position=14, routes=_routes)
