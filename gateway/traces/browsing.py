"""Looking at traces as they are, without a question: lists, one trace, when it was used, what it is linked to."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gateway.sdk.models.traces import Edge
from gateway.store.payloads import from_ms
from gateway.traces.filters import TraceFilter, filtered_owners, tag_clause
from gateway.traces.rows import SELECT, StoredTrace, find, node_of, places, stored_trace, visible
from gateway.traces.trace import ScopeKind, Trace, TraceType, Viewer
from gateway.traces.trace_store import TraceStore

_LIST = f"""
    {SELECT} WHERE {{owners}} AND deleted_at IS {{state}} AND (? IS NULL OR traces.number < ?)
        AND (? IS NULL OR type = ?) AND {{tags}} ORDER BY traces.number DESC LIMIT ?
"""
_EDGES = """
    SELECT source, target, kind, weight FROM edges WHERE source = ?1
    UNION SELECT source, target, kind, weight FROM edges WHERE target = ?1
    ORDER BY weight DESC, kind, source, target LIMIT ?2
"""
_EDGES_AMONG = "SELECT source, target, kind, weight FROM edges WHERE source IN ({ids}) AND target IN ({ids})"
_USES = "SELECT used_at FROM uses WHERE trace = ? ORDER BY used_at DESC LIMIT ?"
_LABEL = "SELECT body FROM records WHERE kind = 'node' AND owner = ? AND id = ?"
_LOOKED_AT = 4  # times as many edges as are wanted: some lead to what is hidden, or not the viewer's


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What is listed: the newest first, those with a smaller `before` only."""

    type: TraceType | None = None
    scope: ScopeKind | None = None
    among: TraceFilter = field(default_factory=TraceFilter)
    is_deleted: bool = False
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a trace is linked to.

    Attributes:
        traces: its neighbours, by their ids.
        nodes: neighbours that are no traces, with a word for people.
        edges: from or to it, and among its neighbours, the weightiest first.
        is_cut: whether there are more.
    """

    traces: Mapping[str, Trace]
    nodes: Mapping[str, str]
    edges: Sequence[Edge]
    is_cut: bool


class TraceBrowser:
    """Reads one trace store on behalf of viewers."""

    def __init__(self, trace_store: TraceStore) -> None:
        self._trace_store = trace_store

    async def traces(self, viewer: Viewer, wanted: Listing) -> Sequence[StoredTrace]:
        """Traces with their numbers, the last that came in first."""
        viewer = await self._trace_store.whole(viewer)
        return await self._trace_store.database.read(lambda connection: _traces(connection, viewer, wanted))

    async def trace(self, viewer: Viewer, trace_id: str) -> Trace | None:
        """One trace, also a hidden one; None where the viewer has none with that id."""
        viewer = await self._trace_store.whole(viewer)

        def work(connection: sqlite3.Connection) -> Trace | None:
            found = find(connection, viewer, trace_id) or find(connection, viewer, trace_id, is_deleted=True)
            return None if found is None else found.trace

        return await self._trace_store.database.read(work)

    async def uses(self, trace: Trace, limit: int) -> Sequence[datetime]:
        """When an answer used a trace that the viewer was shown, the newest first."""
        return [from_ms(row[0]) for row in await self._trace_store.database.rows(_USES, (trace.id, limit))]

    async def around(self, viewer: Viewer, trace_id: str, limit: int) -> Surroundings | None:
        """The weightiest neighbours; None where the viewer has no such trace."""
        viewer = await self._trace_store.whole(viewer)
        return await self._trace_store.database.read(lambda connection: _around(connection, viewer, trace_id, limit))


def _traces(connection: sqlite3.Connection, viewer: Viewer, wanted: Listing) -> list[StoredTrace]:
    among = wanted.among
    owners = filtered_owners(connection, viewer, among, wanted.scope)
    is_all = viewer.extent == "everything" and not (wanted.scope or among.user_ids or among.personality_id)
    tags, tag_values = tag_clause(among.tags)
    sql = _LIST.format(
        owners="1" if is_all else "owner IN (SELECT value FROM json_each(?))",
        state="NOT NULL" if wanted.is_deleted else "NULL",
        tags=tags,
    )
    values = [*([] if is_all else [json.dumps(owners)]), wanted.before, wanted.before, wanted.type, wanted.type]
    return [stored_trace(row) for row in connection.execute(sql, (*values, *tag_values, wanted.limit))]


def _around(connection: sqlite3.Connection, viewer: Viewer, trace_id: str, limit: int) -> Surroundings | None:
    if find(connection, viewer, trace_id) is None and find(connection, viewer, trace_id, is_deleted=True) is None:
        return None
    edges = [Edge(**dict(row)) for row in connection.execute(_EDGES, (trace_id, _LOOKED_AT * limit))]
    ends = list(dict.fromkeys(edge.target if edge.source == trace_id else edge.source for edge in edges))
    owners = set(visible(connection, viewer))
    traces = _seen(connection, [end for end in ends if node_of(end) is None], owners)
    nodes = {end: label for end in ends if (label := _label(connection, end, owners)) is not None}
    shown = [end for end in ends if end in traces or end in nodes][:limit]
    own = [edge for edge in edges if edge.source in shown or edge.target in shown]
    others = connection.execute(_EDGES_AMONG.format(ids=places(shown)), (*shown, *shown))
    return Surroundings(
        traces={end: traces[end] for end in shown if end in traces},
        nodes={end: nodes[end] for end in shown if end in nodes},
        edges=[*own, *(Edge(**dict(row)) for row in others)],
        is_cut=len(traces) + len(nodes) > len(shown) or len(edges) == _LOOKED_AT * limit,
    )


def _seen(connection: sqlite3.Connection, ids: Sequence[str], owners: set[int]) -> dict[str, Trace]:
    sql = f"{SELECT} WHERE traces.id IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL"  # noqa: S608 (a constant)
    rows = connection.execute(sql, (json.dumps(ids),)).fetchall()
    return {row["id"]: stored_trace(row).trace for row in rows if row["owner"] in owners}


def _label(connection: sqlite3.Connection, end: str, owners: set[int]) -> str | None:
    """What a node is called; None where the end is a trace, or the viewer does not see it."""
    node = node_of(end)
    row = connection.execute(_LABEL, node).fetchone() if node is not None and node[0] in owners else None
    if node is None or row is None:
        return None
    body = json.loads(row[0])
    named = (body.get(name) for name in ("label", "name", "title"))
    return next((each for each in named if isinstance(each, str) and each.strip()), node[1])
