"""Looking at traces as they are: lists, one trace, when it was used and how it fades, what it is linked to.

And what people ask who wonder about an answer: where facts come from, and by which words they were found.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gateway.memory.tokenizer import words_of
from gateway.sdk.models.memory import FactOrigin
from gateway.sdk.models.traces import Edge, StrengthCurve, StrengthPoint
from gateway.store.engine import Connection
from gateway.store.payloads import from_ms
from gateway.traces.changes import left
from gateway.traces.filters import TraceFilter, filtered_owners, tag_clause
from gateway.traces.ranking import index_of
from gateway.traces.rows import SELECT, StoredTrace, find, node_of, places, stored_trace, visible
from gateway.traces.search import TraceQuery
from gateway.traces.strength import PRUNED_BELOW
from gateway.traces.trace import ScopeKind, Trace, TraceType, Viewer, source_of
from gateway.traces.trace_store import TraceStore

_LIST = f"""
    {SELECT} WHERE {{owners}} AND deleted_at IS {{state}} AND (CAST(? AS bigint) IS NULL OR traces.number < ?)
        AND (CAST(? AS text) IS NULL OR type = ?) AND {{tags}} ORDER BY traces.number DESC LIMIT ?
"""
_EDGES = """
    SELECT source, target, kind, weight FROM edges WHERE source = ?1
    UNION SELECT source, target, kind, weight FROM edges WHERE target = ?1
    ORDER BY weight DESC, kind, source, target LIMIT ?2
"""
_EDGES_AMONG = "SELECT source, target, kind, weight FROM edges WHERE source IN ({ids}) AND target IN ({ids})"
_USES = "SELECT used_at FROM uses WHERE trace = ? ORDER BY used_at DESC LIMIT ?"
_LABEL = "SELECT body FROM records WHERE kind = 'node' AND owner = ? AND id = ?"
_ORIGINS_SHOWN = 3
_FEWEST_AHEAD = timedelta(days=7)
_MOST_AHEAD = timedelta(days=3_650)
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

        def work(connection: Connection) -> Trace | None:
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


def _traces(connection: Connection, viewer: Viewer, wanted: Listing) -> list[StoredTrace]:
    among = wanted.among
    owners = filtered_owners(connection, viewer, among, wanted.scope)
    is_all = viewer.extent == "everything" and not (wanted.scope or among.user_ids or among.personality_id)
    tags, tag_values = tag_clause(among.tags)
    sql = _LIST.format(
        owners="owners.kind <> 'document'" if is_all else "owner IN (SELECT CAST(value AS bigint) FROM json_each(?))",
        state="NOT NULL" if wanted.is_deleted else "NULL",
        tags=tags,
    )
    values = [*([] if is_all else [json.dumps(owners)]), wanted.before, wanted.before, wanted.type, wanted.type]
    return [stored_trace(row) for row in connection.execute(sql, (*values, *tag_values, wanted.limit))]


def _around(connection: Connection, viewer: Viewer, trace_id: str, limit: int) -> Surroundings | None:
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


def _seen(connection: Connection, ids: Sequence[str], owners: set[int]) -> dict[str, Trace]:
    sql = f"{SELECT} WHERE traces.id IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL"  # noqa: S608 (a constant)
    rows = connection.execute(sql, (json.dumps(ids),)).fetchall()
    return {row["id"]: stored_trace(row).trace for row in rows if row["owner"] in owners}


def _label(connection: Connection, end: str, owners: set[int]) -> str | None:
    """What a node is called; None where the end is a trace, or the viewer does not see it."""
    node = node_of(end)
    row = connection.execute(_LABEL, node).fetchone() if node is not None and node[0] in owners else None
    if node is None or row is None:
        return None
    body = json.loads(row[0])
    named = (body.get(name) for name in ("label", "name", "title"))
    return next((each for each in named if isinstance(each, str) and each.strip()), node[1])


# ---- how it fades ----------------------------------------------------------------------------------------------------


def curve(trace: Trace, now: datetime, count: int, *, used_at: Sequence[datetime]) -> StrengthCurve:
    """The published formula at so many moments, 2 or more; half of them are before `now` where there is a past.

    It begins with the last use or fading: from there on the formula gives every moment.
    """
    known_since = min(trace.last_accessed_at, now)
    fades_at = _fades_at(trace)
    until = now + min(max(_ahead(trace, fades_at, now), _FEWEST_AHEAD), _MOST_AHEAD)
    past = count // 2 if known_since < now else 0
    moments = [known_since + (now - known_since) * number / past for number in range(past)]
    ahead = count - past
    moments += [now + (until - now) * number / max(1, ahead - 1) for number in range(ahead)]
    return StrengthCurve(
        points=tuple(StrengthPoint(at=at, strength=left(trace, at), is_forecast=at > now) for at in moments),
        known_since=known_since,
        fades_at=fades_at if fades_at and fades_at > now else None,
        used_at=tuple(used_at),
    )


def _fades_at(trace: Trace) -> datetime | None:
    if trace.strength <= PRUNED_BELOW:
        return None
    try:
        lasts = timedelta(milliseconds=trace.stability_ms * math.log(min(1.0, trace.strength) / PRUNED_BELOW))
        return trace.last_accessed_at + lasts
    except OverflowError:  # after the year 9999
        return None


def _ahead(trace: Trace, fades_at: datetime | None, now: datetime) -> timedelta:
    """Until it has faded and a little further; where it has faded, or hardly does, as long again as its stability."""
    if fades_at is not None and fades_at > now:
        return (fades_at - now) * 1.1
    return timedelta(milliseconds=min(trace.stability_ms, _MOST_AHEAD.total_seconds() * 1000))


# ---- where facts come from -------------------------------------------------------------------------------------------


async def origins(trace_store: TraceStore, viewer: Viewer, words: str) -> Sequence[FactOrigin]:
    """Of the facts that hold all of these words, the best first."""
    query = " AND ".join(f'"{word}"' for word in dict.fromkeys(words_of(words).split()))
    if not query:
        return ()
    found = await trace_store.search(viewer, TraceQuery(query=query, limit=_ORIGINS_SHOWN))
    return [_origin(each.trace) for each in found if "words" in each.parts]  # others only stand beside one


def _origin(trace: Trace) -> FactOrigin:
    turn_id, channel, proposal = (trace.metadata.get(name) for name in ("turnId", "channel", "proposal"))
    return FactOrigin(
        trace=trace.id,
        text=trace.content,
        at=trace.created_at,
        source=source_of(trace),
        turn=turn_id if isinstance(turn_id, str) else None,
        channel=channel if isinstance(channel, str) else None,
        proposal=proposal if isinstance(proposal, int) else None,
    )


def matched_words(connection: Connection, trace: Trace, query: str) -> Sequence[str]:
    """The words of a query that a trace holds in some form, or that name its speaker or its day."""
    words = dict.fromkeys(words_of(query).split())
    index = index_of(connection)
    return [word for word in words if index.holding(f'"{word}"', [trace.id])]
