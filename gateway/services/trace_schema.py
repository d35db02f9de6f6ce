"""Traces, their strength and their surroundings, as they go over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gateway.sdk.models import traces as wire
from gateway.traces import strength
from gateway.traces.browsing import Surroundings
from gateway.traces.consolidation import ConsolidationEntry
from gateway.traces.decay import curve
from gateway.traces.rows import BETWEEN
from gateway.traces.search import Found
from gateway.traces.trace import DAY_MS, Owner, Trace

LABEL_CHARS = 80


def trace_of(trace: Trace, now: datetime) -> wire.Trace:
    """With the strength that is left now."""
    user, personality, session = _names(trace.owner)
    return wire.Trace(
        id=trace.id,
        type=trace.type,
        scope=trace.owner.kind,
        user=user,
        personality=personality,
        session=session,
        content=trace.content,
        strength=strength.current(trace.strength, trace.stability_ms, trace.last_accessed_at, now),
        stability_days=trace.stability_ms / DAY_MS,
        tags=trace.tags,
        emotions=dict(trace.emotions),
        metadata=dict(trace.metadata),
        created_at=trace.created_at,
        last_accessed_at=trace.last_accessed_at,
        uses=trace.retrieval_count,
        source=trace.source,
        author=trace.author,
        speaker=trace.speaker,
        has_vector=trace.embedding is not None,
        deleted_at=trace.deleted_at,
        merged_into=trace.merged_into,
    )


def found_of(found: Found, now: datetime, *, explain: bool) -> wire.FoundTrace:
    """With its score, and if wanted what that is made of."""
    explanation = wire.Explanation(parts=dict(found.parts), factors=dict(found.factors), cosine=found.cosine)
    return wire.FoundTrace(
        **trace_of(found.trace, now).model_dump(),
        score=found.score,
        explanation=explanation if explain else None,
    )


def curve_of(trace: Trace, used_at: Sequence[datetime], now: datetime, points: int) -> wire.StrengthCurve:
    """So many points of the formula."""
    found = curve(trace, now, points)
    return wire.StrengthCurve(
        points=tuple(
            wire.StrengthPoint(at=point.at, strength=point.strength, is_forecast=point.is_forecast)
            for point in found.points
        ),
        known_since=found.known_since,
        fades_at=found.fades_at,
        used_at=tuple(used_at),
    )


def graph_of(trace: Trace, found: Surroundings, now: datetime) -> wire.TraceGraph:
    """The neighbours that are traces come first, in the order of their edges."""
    traces = (
        wire.Neighbour(id=each.id, label=_opening(each.content), trace=trace_of(each, now))
        for each in found.traces.values()
    )
    nodes = (wire.Neighbour(id=end, label=label, trace=None) for end, label in found.nodes.items())
    return wire.TraceGraph(
        trace=trace_of(trace, now),
        neighbours=(*traces, *nodes),
        edges=tuple(
            wire.Edge(source=edge.source, target=edge.target, kind=edge.kind, weight=edge.weight)
            for edge in found.edges
        ),
        is_cut=found.is_cut,
    )


def entry_of(entry: ConsolidationEntry) -> wire.Consolidation:
    """A line of the log."""
    report = entry.report
    return wire.Consolidation(
        id=entry.id,
        started_at=entry.started_at,
        reason=entry.reason,
        pruned=report.pruned,
        merged=report.merged,
        derived=report.derived,
        compacted=report.compacted,
        duration_ms=report.duration_ms,
    )


def _names(owner: Owner) -> tuple[str | None, str | None, str | None]:
    """User, personality and session of an owner."""
    first, _, second = owner.id.partition(BETWEEN)
    match owner.kind:
        case "user":
            return owner.id, None, None
        case "persona":
            return first, second, None
        case "thread":
            return None, None, owner.id
        case "organization":
            return None, second or None, None


def _opening(content: str) -> str:
    text = " ".join(content.split())
    return text if len(text) <= LABEL_CHARS else text[: LABEL_CHARS - 1] + "…"
