"""Memory: the files that the agent reads next turn, their changes, and what waits for a yes."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.memory.documents import MemoryChanges, MemoryDocuments, MemoryEditing
from gateway.web.dashboard.pages.memory.proposals import MemoryProposals


def _routes(context: PageContext) -> Sequence[Route]:
    documents, editing = MemoryDocuments(context), MemoryEditing(context)
    changes, proposals = MemoryChanges(context), MemoryProposals(context)
    return [
        Route("/memory", documents.show),
        Route("/memory/edit", editing.show),
        Route("/memory/edit/news", editing.news),
        Route("/memory/edit/difference", context.form_handler(editing.difference), methods=["POST"]),
        Route("/memory/save", context.form_handler(editing.save), methods=["POST"]),
        Route("/memory/history", changes.show),
        Route("/memory/undo", context.form_handler(changes.undo), methods=["POST"]),
        Route("/memory/restore", context.form_handler(changes.restore), methods=["POST"]),
        Route("/memory/proposals", proposals.show),
        Route("/memory/proposals/decide", context.form_handler(proposals.decide), methods=["POST"]),
    ]


PAGE = Page(name="memory", title="Memory", icon="memory", position=10, routes=_routes)
