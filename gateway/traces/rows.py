"""Between a trace and its row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.domain.roles import needs
from gateway.errors import TraceError
from gateway.store.engine import Connection, Row
from gateway.store.payloads import from_ms, storable, to_ms
from gateway.traces.ranking import index_of
from gateway.traces.trace import Owner, Trace, Viewer, hash_of, merge_tags

COLUMNS = (
    "id, type, content, content_hash, strength, stability_ms, tags, emotions, metadata, created_at, last_accessed_at, "
    "retrieval_count, source, author, speaker, conversation, position, embedding, embedding_model, deleted_at, "
    "merged_into"
)
_INSERT = f"INSERT INTO traces (owner, {COLUMNS}) VALUES ({', '.join('?' * 22)}) RETURNING number"  # noqa: S608 (constants)
SELECT = (
    "SELECT traces.*, owners.kind AS owner_kind, owners.id AS owner_id FROM traces JOIN owners ON owners.number = owner"
)
NOT_SHARED = (
    f"this is shared with others, and only an {needs('write shared memory')} changes it; this person is a guest. What "
    "concerns this person alone goes into the scope `user`, in a direct chat"
)
BETWEEN = "::"
"""Stands between user id and personality id in the id of a persona scope."""
NODE = "node:"
"""With this begins the end of an edge that is no trace, but a node of an import."""
_decode = json.JSONDecoder().decode
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # as JSON escapes it
_ALL_OWNERS = "SELECT number FROM owners WHERE kind <> 'document' ORDER BY number"
_PERSONAS = "SELECT number FROM owners WHERE kind = 'persona' AND substr(id, 1, CAST(? AS integer)) = ?"
_FIND_OWNER = "SELECT number FROM owners WHERE kind = ? AND id = ?"
_MAKE_OWNER = "INSERT INTO owners (kind, id) VALUES (?, ?) ON CONFLICT DO NOTHING"


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace, and the number of its row."""

    number: int
    trace: Trace


def stored_trace(row: Row) -> StoredTrace:
    """The trace of a row of `SELECT`, with its number."""
    return StoredTrace(row["number"], from_row(row))


def find(connection: Connection, viewer: Viewer, trace_id: str, *, is_deleted: bool = False) -> StoredTrace | None:
    """The viewer's trace with that id; None for a trace of others."""
    owners = visible(connection, viewer)
    state = "NOT NULL" if is_deleted else "NULL"
    sql = f"{SELECT} WHERE traces.id = ? AND deleted_at IS {state} AND owner IN ({places(owners)})"
    row = connection.execute(sql, (trace_id, *owners)).fetchone()
    return None if row is None else stored_trace(row)


def find_to_change(
    connection: Connection, viewer: Viewer, trace_id: str, *, is_deleted: bool = False
) -> StoredTrace | None:
    """As `find`, for a caller that will change the trace.

    Raises:
        TraceError: everybody shares it, and the viewer may not change that.
    """
    found = find(connection, viewer, trace_id, is_deleted=is_deleted)
    if found is not None and not viewer.may_change(found.trace.owner):
        raise TraceError(NOT_SHARED)
    return found


def owner_number(connection: Connection, owner: Owner) -> int:
    """The owner's number; it gets one where it has none."""
    number = known_number(connection, owner)
    if number is None:
        connection.execute(_MAKE_OWNER, (owner.kind, owner.id))
        number = known_number(connection, owner)
    return number or 0


def known_number(connection: Connection, owner: Owner) -> int | None:
    """The owner's number; None where it has never had a trace."""
    row = connection.execute(_FIND_OWNER, (owner.kind, owner.id)).fetchone()
    return None if row is None else int(row[0])


def visible(connection: Connection, viewer: Viewer) -> list[int]:
    """The numbers of the owners whose traces the viewer may see."""
    if viewer.extent == "everything":
        return [int(row[0]) for row in connection.execute(_ALL_OWNERS)]
    return _numbers(connection, viewer, viewer.owners)


def changeable(connection: Connection, viewer: Viewer) -> list[int]:
    """Those of them whose traces the viewer may change."""
    if viewer.extent == "everything" and viewer.may_share:
        return visible(connection, viewer)
    return _numbers(connection, viewer, filter(viewer.may_change, viewer.owners))


def _numbers(connection: Connection, viewer: Viewer, owners: Iterable[Owner]) -> list[int]:
    """Of these, and of all that is the person's where the viewer sees so far."""
    threads = (Owner("thread", session) for session in viewer.sessions)
    wanted = [*owners, *threads] if viewer.extent == "person" else owners
    found = {number: None for owner in wanted if (number := known_number(connection, owner)) is not None}
    if viewer.extent == "person":
        for user_id in viewer.ids:
            start = user_id + BETWEEN
            found |= {int(row[0]): None for row in connection.execute(_PERSONAS, (len(start), start))}
    return list(found)


def node_end(owner: int, node_id: str) -> str:
    """The end of an edge at a node. The file's author chose the node's name, so the owner is part of it."""
    return f"{NODE}{owner}:{node_id}"


def node_of(end: str) -> tuple[int, str] | None:
    """The owner's number and the id of the node at which an edge ends; None where it ends at a trace."""
    if not end.startswith(NODE):
        return None
    number, _, node_id = end.removeprefix(NODE).partition(":")
    return int(number), node_id


def places(values: Sequence[object]) -> str:
    """Question marks for that many values; what stands in no list where there are none."""
    return ", ".join("?" * len(values)) or "NULL"


def merge_index(connection: Connection, *, pages: int) -> bool:
    """See `WordIndex.merge`."""
    return index_of(connection).merge(pages)


def insert(connection: Connection, trace: Trace) -> int:
    """Add the row; its number."""
    row = connection.execute(_INSERT, (owner_number(connection, trace.owner), *_values(trace))).fetchone()
    index_of(connection).keep(int(row[0]))
    return int(row[0])


def _values(trace: Trace) -> tuple[Any, ...]:
    content = storable(trace.content)
    return (
        storable(trace.id),
        trace.type,
        content,
        hash_of(content),
        trace.strength,
        trace.stability_ms,
        as_json(merge_tags(trace.tags)),
        as_json(dict(trace.emotions)),
        as_json(dict(trace.metadata)),
        to_ms(trace.created_at),
        to_ms(trace.last_accessed_at),
        trace.retrieval_count,
        trace.source,
        _kept(trace.author),
        _kept(trace.speaker),
        _kept(trace.conversation),
        trace.position,
        trace.embedding,
        trace.embedding_model,
        None if trace.deleted_at is None else to_ms(trace.deleted_at),
        trace.merged_into,
    )


def _kept(text: str | None) -> str | None:
    return None if text is None else storable(text)


def as_json(value: object) -> str:
    """Compact, legible JSON, whose texts are such as every database takes when they are read, too."""
    return storable(_NUL.sub("\\1\ufffd", json.dumps(value, ensure_ascii=False, separators=(",", ":"))))


def from_row(row: Row) -> Trace:
    """The trace of a row of `SELECT`."""
    return Trace(
        id=row["id"],
        type=row["type"],
        owner=Owner(row["owner_kind"], row["owner_id"]),
        content=row["content"],
        strength=row["strength"],
        stability_ms=row["stability_ms"],
        tags=tuple(_decode(row["tags"])),
        emotions=_decode(row["emotions"]),
        metadata=_decode(row["metadata"]),
        created_at=from_ms(row["created_at"]),
        last_accessed_at=from_ms(row["last_accessed_at"]),
        retrieval_count=row["retrieval_count"],
        source=row["source"],
        author=row["author"],
        speaker=row["speaker"],
        conversation=row["conversation"],
        position=row["position"],
        embedding=row["embedding"],
        embedding_model=row["embedding_model"],
        deleted_at=None if row["deleted_at"] is None else from_ms(row["deleted_at"]),
        merged_into=row["merged_into"],
    )
