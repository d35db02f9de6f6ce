"""The memory of the kind `traces`: USER.md and MEMORY.md in the trace store, each line of them a trace.

What people and the agent write down here stays as it was written. The lines are found like facts, by words and by
meaning; but no consolidation prunes, merges, shortens or draws conclusions from them, no use or contradiction weighs
them, and the tools and pages for facts do not list them: they change only by what is done to the document.

A short memory stands in the prompt whole, as that of every other kind does. Of one that is too long, what the question
needs stands there, in the order of the document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from gateway.config import MemoryConfig
from gateway.memory.paths import check_ids, document_key, document_keys
from gateway.memory.prompt_section import HEADINGS_CHARS, fill_around
from gateway.memory.stored.memory import StoredMemory
from gateway.protocols import MemoryContext, MemoryHit, MemoryScope
from gateway.store.documents import explained
from gateway.traces.documents import TraceDocuments
from gateway.traces.search import MOST, TraceQuery
from gateway.traces.trace import Viewer
from gateway.traces.trace_store import TraceStore

_FINDING = ("words", "meaning", "day")


class TraceMemoryProvider(StoredMemory):
    """A stored memory that can be searched, and chooses by the question of the turn."""

    def __init__(self, trace_store: TraceStore, settings: Callable[[], MemoryConfig] = MemoryConfig) -> None:
        """The trace store is opened and closed by its owner; `settings` are those of this moment."""
        self._documents = TraceDocuments(trace_store)
        super().__init__(self._documents, max_bytes=settings().max_file_bytes)
        self._trace_store = trace_store
        self._settings = settings

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        """Both texts; of a MEMORY.md that is too long for the prompt, what the question needs and the newest lines."""
        whole = await super().prefetch(scope)
        text = whole.project_memory if whole is not None else None
        if whole is None or text is None:
            return whole
        settings = self._settings()
        room_chars = settings.max_chars - len(whole.user_memory or "") - HEADINGS_CHARS
        if len(text) <= room_chars or room_chars <= 0 or settings.traces.recall == "tail":
            return whole
        places = await self._places_about(scope)
        chosen = await asyncio.to_thread(_excerpt, text, places, room_chars)
        return whole if chosen is None else replace(whole, project_memory=chosen)

    async def search(self, scope: MemoryScope, query: str, limit: int = 10) -> Sequence[MemoryHit]:
        """Lines of the scope's two documents, best first; none that only stands beside one that matches."""
        check_ids(scope)
        keys = document_keys(scope)
        stores = {key: store for store, key in keys.items()}
        wanted = TraceQuery(query=query, limit=MOST)
        found = await explained(self._trace_store.search(_reader(scope, keys.values()), wanted))
        hits = [
            MemoryHit(text=one.trace.content, score=one.score, store=stores[key], source=key)
            for one in found
            if (key := one.trace.owner.id) and not one.parts.keys().isdisjoint(_FINDING)
        ]
        return hits[: max(0, limit)]

    async def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        """As every stored memory does; then the file is rewritten, because SQLite leaves deleted texts in it."""
        await super().erase(user_ids, lines)
        await self._documents.compact()

    async def _places_about(self, scope: MemoryScope) -> Sequence[int]:
        """Which lines of MEMORY.md have to do with the question, the best first."""
        key = document_key(scope, "memory")
        if scope.question is None or key is None:
            return ()
        found = await explained(self._trace_store.recall(_reader(scope, [key]), scope.question))
        return [one.trace.position for one in found if one.trace.position is not None]


def _reader(scope: MemoryScope, keys: Collection[str]) -> Viewer:
    """Sees the lines of these documents and nothing else; a vector of the question is on the person's account."""
    return Viewer(
        user_id=scope.user_id,
        personality_id=scope.personality_id,
        session_id=scope.session_id,
        extent="documents",
        documents=tuple(keys),
    )


def _excerpt(text: str, places: Sequence[int], room_chars: int) -> str | None:
    starts = [*_starts(text)]
    return fill_around(text, [starts[place] for place in places if place < len(starts)], room_chars)


def _starts(text: str) -> Iterator[int]:
    """Where the lines begin that are not blank."""
    at = 0
    for line in text.split("\n"):
        if line.strip():
            yield at
        at += len(line) + 1
