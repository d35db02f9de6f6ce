"""The JSON form: `{meta, traces, nodes, edges, documents, conversations, messages}`, a record a line.

Read as a stream, so that a file may be larger than memory; once for each of its lists. A bare list of traces
and JSON lines are read too. What other programs write is read as `serialization` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

from gateway.traces.transfer.import_records import (
    UNNAMED,
    CarriedEdge,
    CarriedRecord,
    ImportItem,
    Progress,
    RecordKind,
    RefusedItem,
    UnreadableRest,
)
from gateway.traces.transfer.json_stream import TOO_LARGE, BrokenJson, TooLarge, values_at
from gateway.traces.transfer.serialization import read_edge, read_record, read_trace, trace_values
from gateway.traces.transfer.snapshot import SECTIONS, Snapshot
from gateway.traces.transfer.source import Source

VERSION = 1
_ABOUT_CONVERSATIONS = ("conversation", "message")
_REPORTED_EVERY = 1_000
_NAMES_SHOWN, _LONGEST = 10, 300

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


# ---- out ------------------------------------------------------------------------------------------------------------


def write_json(
    snapshot: Snapshot,
    file: IO[str],
    *,
    exported_at_ms: int,
    with_embeddings: bool,
    with_conversations: bool,
    progress: Progress,
) -> int:
    """Write all that the snapshot shows; how many traces."""
    total = snapshot.count()
    meta = {"format": "ethos-traces", "version": VERSION, "exportedAt": exported_at_ms, "traces": total}
    file.write(f'{{"meta":{_encode(meta)}')
    written = 0
    file.write(',\n"traces":[')
    for exported in snapshot.traces():
        file.write(f"{',' if written else ''}\n{_encode(trace_values(exported, with_embedding=with_embeddings))}")
        written += 1
        if written % _REPORTED_EVERY == 0:
            progress(written, total)
    file.write("]")
    for kind, name in SECTIONS.items():
        is_left_out = kind in _ABOUT_CONVERSATIONS and not with_conversations
        _write_section(file, name, iter(()) if is_left_out else map(record_values, snapshot.records(kind)))
        if kind == "node":
            _write_section(file, "edges", map(edge_values, snapshot.edges()))
    file.write("}\n")
    progress(written, total)
    return written


def _write_section(file: IO[str], name: str, records: Iterator[Mapping[str, Any]]) -> None:
    file.write(f',\n"{name}":[')
    for index, record in enumerate(records):
        file.write(f"{',' if index else ''}\n{_encode(record)}")
    file.write("]")


def edge_values(edge: CarriedEdge) -> dict[str, Any]:
    """All fields of an edge."""
    values = {
        "source": edge.source,
        "target": edge.target,
        "kind": edge.kind,
        "weight": edge.weight,
        "metadata": dict(edge.metadata),
        "createdAt": edge.created_at_ms,
    }
    return values if edge.owner == UNNAMED else values | {"ownerScope": edge.owner.kind, "ownerId": edge.owner.id}


def record_values(record: CarriedRecord) -> dict[str, Any]:
    """A record as it came in, and whose it is."""
    return {**record.body, "ownerScope": record.owner.kind, "ownerId": record.owner.id}


# ---- in -------------------------------------------------------------------------------------------------------------


def read_json(source: Source, *, now_ms: int) -> Iterator[ImportItem]:
    """All that stands in a file of one of the forms."""
    head = source.head()
    if head.startswith(b"["):
        yield from _section(source, "item", "traces", now_ms=now_ms)
    elif _is_lines(head):
        yield from _section(source, "", "line", now_ms=now_ms)
    else:
        yield from _document(source, now_ms=now_ms)


def _document(source: Source, *, now_ms: int) -> Iterator[ImportItem]:
    """Read once for its traces, and once more for each other list that has something in it."""
    others = [*SECTIONS.values(), "edges", "chunks", "images"]
    lists: dict[str, bool] = {}
    source.passes = 1 + len(others)
    for name in ["traces", *others]:
        if name == "traces" or lists.get(name):
            for item in _section(source, f"{name}.item", name, now_ms=now_ms, lists=lists):
                yield item
                if isinstance(item, UnreadableRest):
                    return  # in every pass it breaks off at the same place
        source.next_pass()
    if not lists.keys() & {"traces", *others}:
        found = ", ".join(sorted(lists)[:_NAMES_SHOWN]) or "none"
        yield UnreadableRest(
            "", f'it holds no list "traces", so nothing of it can be imported; its lists: {found}'[:_LONGEST]
        )


def _is_lines(head: bytes) -> bool:
    """Whether the first line is a record of its own."""
    try:
        first = json.loads(head.split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "content" in first


def _section(
    source: Source, prefix: str, name: str, *, now_ms: int, lists: dict[str, bool] | None = None
) -> Iterator[ImportItem]:
    place, index = name, -1
    with source.opened() as file:
        try:
            for index, given in enumerate(values_at(file, prefix, lists=lists)):
                place = f"{name}[{index}]" if prefix else f"line {index + 1}"
                yield from _items(name, given, place, now_ms=now_ms)
        except BrokenJson as error:
            after = f"after {place}" if index >= 0 else "at its beginning"
            yield UnreadableRest(name, f"the file breaks off or is no JSON {after} ({error}); what came before is in")


def _items(name: str, given: Any, place: str, *, now_ms: int) -> Iterator[ImportItem]:
    if not isinstance(given, dict):
        why = TOO_LARGE if isinstance(given, TooLarge) else "it is no object"
        yield RefusedItem(place, f"{why}; it was left out")
        return
    kinds: Mapping[str, RecordKind] = {section: kind for kind, section in SECTIONS.items()}
    if name == "edges":
        yield read_edge(given, place, now_ms=now_ms)
    elif name in kinds:
        yield read_record(kinds[name], given, place)
    elif name in ("chunks", "images"):
        yield RefusedItem(place, "pieces of documents have no place here; it was left out")
    else:
        yield from read_trace(given, place, now_ms=now_ms)
