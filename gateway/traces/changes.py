"""Changes of traces, inside the caller's transaction. The caller has checked whose the rows are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gateway.errors import TraceError
from gateway.store.engine import Connection
from gateway.store.payloads import storable, to_ms
from gateway.traces import strength
from gateway.traces.ranking import index_of
from gateway.traces.rows import StoredTrace, as_json, insert, known_number, owner_number
from gateway.traces.similar import similar_to
from gateway.traces.trace import Trace, hash_of, merge_tags, new_trace_id

_SAME = """
    SELECT id, tags FROM traces WHERE owner = ? AND content_hash = ? AND type = ? AND deleted_at IS NULL
    ORDER BY number LIMIT 1
"""
_WEIGH = "UPDATE traces SET strength = ?, stability_ms = ?, last_accessed_at = ?, retrieval_count = ? WHERE number = ?"
_SET_CONTENT = """
    UPDATE traces SET content = ?, content_hash = ?, embedding = NULL, embedding_model = NULL WHERE number = ?
"""
_HIDE = "UPDATE traces SET deleted_at = ?, merged_into = ? WHERE number = ?"
_LAST_SAID = "SELECT max(position) FROM traces WHERE owner = ? AND conversation = ? AND deleted_at IS NULL"
_SAID_BEFORE = """
    SELECT max(position) FROM traces WHERE owner = ? AND conversation = ? AND created_at <= ? AND deleted_at IS NULL
"""
_DOUBTED_AT = "doubtedAt"  # in the metadata, in milliseconds since 1970
_USE = "INSERT INTO uses (query_id, trace, used_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
# An edge that would lead from the new trace to itself goes; one that is there already keeps the greater weight.
_REPOINT = """
    INSERT INTO edges (source, target, kind, weight, metadata, created_at)
    SELECT replace(source, :old, :new), replace(target, :old, :new), kind, weight, metadata, created_at
    FROM edges WHERE (source = :old OR target = :old)
        AND replace(source, :old, :new) <> replace(target, :old, :new)
    ON CONFLICT (source, target, kind) DO UPDATE
    SET weight = CASE WHEN excluded.weight > edges.weight THEN excluded.weight ELSE edges.weight END
"""
_OTHER_SCOPES = "Only traces of the same scope can be merged; these belong to different ones."
_APART = (
    "These traces are from before the person's accounts were linked, and stay apart so that /unlink can part them. "
    "Update one of them and delete the others."
)
_DROP_EDGES = "DELETE FROM edges WHERE source = ?1 OR target = ?1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What became of a new trace: `is_new` False means that its content was there already, under that id."""

    id: str
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The trace that took the others' place, and how many those were."""

    id: str
    sources_deleted: int


def add(connection: Connection, trace: Trace, now: datetime) -> Added:
    """Insert; where the same content is there, unite the tags. Similar traces weaken each other.

    In its conversation it stands behind what was taken from that before, where it does not say where it stands.
    """
    owner = owner_number(connection, trace.owner)
    same = add_tags_to_same(connection, owner, trace)
    if same is not None:
        return Added(id=same, is_new=False)
    similar = similar_to(connection, owner, trace, above=strength.SIMILAR)
    lefts = [left(each.stored.trace, now) for each in similar]
    losses, own_loss = strength.interference(
        [(each.similarity, each_left) for each, each_left in zip(similar, lefts, strict=True)]
    )
    for each, each_left, loss in zip(similar, lefts, losses, strict=True):
        _weigh(connection, each.stored, now, max(0.0, each_left - loss))
    if trace.conversation is not None and trace.position is None:
        (last,) = connection.execute(_LAST_SAID, (owner, trace.conversation)).fetchone()
        trace = replace(trace, position=0 if last is None else last + 1)
    insert(connection, replace(trace, strength=max(0.0, trace.strength - own_loss)))
    return Added(id=trace.id, is_new=True)


def placed(connection: Connection, trace: Trace) -> Trace:
    """A trace that comes late, with its position in the conversation: that of the trace that followed."""
    owner = known_number(connection, trace.owner)
    if owner is None or trace.conversation is None:
        return trace
    (last,) = connection.execute(_SAID_BEFORE, (owner, trace.conversation, to_ms(trace.created_at))).fetchone()
    return replace(trace, position=0 if last is None else last + 1)


def same_as(connection: Connection, owner: int, trace: Trace) -> str | None:
    """The id of the owner's trace with the same content and type; None where there is none."""
    same = connection.execute(_SAME, (owner, hash_of(storable(trace.content)), trace.type)).fetchone()
    return None if same is None else str(same["id"])


def add_tags_to_same(connection: Connection, owner: int, trace: Trace) -> str | None:
    """The id of the trace with the same content, type and owner, which has all tags then; None where there is none."""
    same = connection.execute(_SAME, (owner, hash_of(storable(trace.content)), trace.type)).fetchone()
    if same is None:
        return None
    tags = as_json(merge_tags(json.loads(same["tags"]), trace.tags))
    connection.execute("UPDATE traces SET tags = ? WHERE id = ?", (tags, same["id"]))
    return str(same["id"])


def update(
    connection: Connection, number: int, *, content: str | None = None, tags: Sequence[str] | None = None
) -> None:
    """Change what is given; for a new content a new embedding will be made."""
    if content is not None:
        text = storable(content)
        connection.execute(_SET_CONTENT, (text, hash_of(text), number))
        index_of(connection).keep(number)
    if tags is not None:
        connection.execute("UPDATE traces SET tags = ? WHERE number = ?", (as_json(merge_tags(tags)), number))


def hide(connection: Connection, number: int, now: datetime, *, merged_into: str | None = None) -> None:
    """Delete softly: it is in no search and no export any more, and can be brought back."""
    connection.execute(_HIDE, (to_ms(now), merged_into, number))


def restore(connection: Connection, number: int) -> None:
    """Bring a hidden trace back."""
    connection.execute("UPDATE traces SET deleted_at = NULL, merged_into = NULL WHERE number = ?", (number,))


def merge(
    connection: Connection, sources: Sequence[StoredTrace], now: datetime, *, content: str | None = None
) -> Merged:
    """Put one new trace in the place of several.

    Raises:
        TraceError: they belong to different owners; also if those are one person, because their accounts are linked.
    """
    traces = [source.trace for source in sources]
    check_same_owner(traces)
    new = _union(traces, now, content)
    for source in sources:
        hide(connection, source.number, now, merged_into=new.id)
        connection.execute(_REPOINT, {"old": source.trace.id, "new": new.id})
        connection.execute(_DROP_EDGES, (source.trace.id,))
    insert(connection, new)
    return Merged(id=new.id, sources_deleted=len(sources))


def check_same_owner(traces: Sequence[Trace]) -> None:
    """Only what is one owner's becomes one trace.

    Raises:
        TraceError: they belong to different owners.
    """
    if len({trace.owner for trace in traces}) > 1:
        raise TraceError(_APART if len({trace.owner.kind for trace in traces}) == 1 else _OTHER_SCOPES)


def _union(traces: Sequence[Trace], now: datetime, content: str | None) -> Trace:
    """The strongest of them, with what the others know besides."""
    strongest = max(traces, key=lambda trace: left(trace, now))
    names = dict.fromkeys(name for trace in traces for name in trace.emotions)
    return replace(
        strongest,
        id=new_trace_id(),
        content=content or "\n".join(dict.fromkeys(trace.content for trace in traces)),
        strength=left(strongest, now),
        stability_ms=max(trace.stability_ms for trace in traces),
        tags=merge_tags(*(trace.tags for trace in traces)),
        emotions={name: max(trace.emotions.get(name, 0.0) for trace in traces) for name in names},
        metadata={name: value for trace in traces for name, value in trace.metadata.items()},
        created_at=min(trace.created_at for trace in traces),
        last_accessed_at=now,
        retrieval_count=sum(trace.retrieval_count for trace in traces),
        embedding=None,
        embedding_model=None,
    )


def use(connection: Connection, stored: StoredTrace, query_id: str, now: datetime) -> bool:
    """Strengthen a trace that an answer used; the same query counts once. Whether it counted."""
    if connection.execute(_USE, (query_id, stored.trace.id, to_ms(now))).rowcount == 0:
        return False
    trace = stored.trace
    grown, stability_ms = strength.after_use(
        left(trace, now), trace.stability_ms, trace.retrieval_count, trace.intensity
    )
    _weigh(connection, stored, now, grown, stability_ms, uses=1)
    return True


def doubt(connection: Connection, stored: StoredTrace, now: datetime) -> bool:
    """Weaken a trace that the person contradicted, once a day at most. Whether it was weakened."""
    trace = stored.trace
    doubted_at_ms = trace.metadata.get(_DOUBTED_AT, 0)
    if to_ms(now - strength.DOUBTED_AT_MOST_EVERY) < (doubted_at_ms if isinstance(doubted_at_ms, int) else 0):
        return False
    faded, stability_ms = strength.after_doubt(left(trace, now), trace.stability_ms)
    _weigh(connection, stored, now, faded, stability_ms)
    metadata = as_json({**trace.metadata, _DOUBTED_AT: to_ms(now)})
    connection.execute("UPDATE traces SET metadata = ? WHERE number = ?", (metadata, stored.number))
    return True


def left(trace: Trace, now: datetime) -> float:
    """What is left of the trace's strength."""
    return strength.current(trace.strength, trace.stability_ms, trace.last_accessed_at, now)


def _weigh(
    connection: Connection,
    stored: StoredTrace,
    now: datetime,
    strength_now: float,
    stability_ms: float | None = None,
    *,
    uses: int = 0,
) -> None:
    """Set the strength as of now: the decay starts again from here."""
    trace = stored.trace
    values = (strength_now, stability_ms or trace.stability_ms, to_ms(now), trace.retrieval_count + uses, stored.number)
    connection.execute(_WEIGH, values)
