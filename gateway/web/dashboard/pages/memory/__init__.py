"""Memory: the files that the agent reads next turn, their changes, and what waits for a yes."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import Frame
from gateway.web.dashboard.pages.memory.changes import MemoryChanges
from gateway.web.dashboard.pages.memory.documents import MemoryDocuments
from gateway.web.dashboard.pages.memory.editing import MemoryEditing
from gateway.web.dashboard.pages.memory.proposals import MemoryProposals


def _routes(frame: Frame) -> Sequence[Route]:
    documents, editing = MemoryDocuments(frame), MemoryEditing(frame)
    changes, proposals = MemoryChanges(frame), MemoryProposals(frame)
    return [
        Route("/memory", documents.show),
        Route("/memory/edit", editing.show),
        Route("/memory/edit/news", editing.news),
        Route("/memory/edit/difference", frame.taking(editing.difference), methods=["POST"]),
        Route("/memory/save", frame.taking(editing.save), methods=["POST"]),
        Route("/memory/history", changes.show),
        Route("/memory/undo", frame.taking(changes.undo), methods=["POST"]),
        Route("/memory/restore", frame.taking(changes.restore), methods=["POST"]),
        Route("/memory/proposals", proposals.show),
        Route("/memory/proposals/decide", frame.taking(proposals.decide), methods=["POST"]),
    ]


PAGE = Page(name="memory", title="Memory", icon="memory", position=10, routes=_routes)
