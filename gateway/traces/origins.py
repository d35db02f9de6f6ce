"""Where facts come from, and by which words they were found: what people ask who wonder about an answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gateway.memory.tokenizer import words_of
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TraceStore

_SHOWN = 3
_NAME_CHARS = 60
_FROM = {"tool": "noted by {agent}", "import": "imported", "consolidation": "concluded from other facts"}
_HOLDS = "SELECT 1 FROM search WHERE rowid = (SELECT number FROM traces WHERE id = ?) AND search MATCH ?"


def source_of(trace: Trace, *, agent: str = "the agent") -> str:
    """Where it comes from: `said by Ada on web`, `imported`; `agent` is what the agent is called there."""
    channel = trace.metadata.get("channel")
    on = f" on {channel}" if isinstance(channel, str) else ""
    if trace.source in _FROM:
        return _FROM[trace.source].format(agent=agent) + on
    by = f" by {trace.speaker[:_NAME_CHARS]}" if trace.speaker else ""
    return f"said{by}{on}" if by or on else "said earlier"


async def origins(trace_store: TraceStore, viewer: Viewer, words: str) -> Sequence[Trace]:
    """Of the facts that hold all of these words, the best first."""
    query = " AND ".join(f'"{word}"' for word in dict.fromkeys(words_of(words).split()))
    if not query:
        return ()
    found = await trace_store.search(viewer, TraceQuery(query=query, limit=_SHOWN))
    return [each.trace for each in found if "words" in each.parts]  # others only stand beside one


def matched_words(connection: sqlite3.Connection, trace: Trace, query: str) -> Sequence[str]:
    """The words of a query that a trace holds in some form, or that name its speaker or its day."""
    words = dict.fromkeys(words_of(query).split())
    return [
        word
        for word in words
        if connection.execute(_HOLDS, (trace.id, f'{{context text}} : "{word}"')).fetchone() is not None
    ]
