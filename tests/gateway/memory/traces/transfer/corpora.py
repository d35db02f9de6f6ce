"""What trace stores hold, made up by hypothesis, and ways to look at all of it at once."""

from __future__ import annotations

import json
import math
import string
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gateway.store.payloads import from_ms, storable
from gateway.traces.rows import as_json, insert, owner_number
from gateway.traces.trace import SOURCES, TYPES, Owner, Trace, hash_of
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from gateway.traces.transfer.bounds import Bounds, Everything
from tests.gateway.memory.traces.people import Clock

EVERYTHING = Everything()
ODD = [
    "---\nid: x\n---\n", "### Related\n- [[mt_a]] — b", "#tag", "a\r\nb\rc\n", "\n\n lead and trail \n\n",
    "[[link]] ![[embed]]",
    "\ufeffBOM", "nul\x00", "\x85\u2028\u2029", "日本語のメモ", "```\n#not a tag\n```", "'\"\\", "\t", "~", "null",
    "é e\u0301",
]  # fmt: skip

texts = st.one_of(
    st.sampled_from(ODD),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60),
    st.lists(st.sampled_from([*ODD, "tea", "Rex", "\n"]), min_size=1, max_size=4).map(" ".join),
)
contents = texts.filter(lambda text: bool(text.strip()))
words = st.one_of(st.text(string.ascii_letters, min_size=1, max_size=8), texts.filter(bool))
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
metadata = st.dictionaries(words, values, max_size=3)
times = st.integers(-(10**12), 4 * 10**12).map(from_ms)
owners = st.sampled_from(
    [
        Owner("user", "u_ada"),
        Owner("user", "u_ben"),
        Owner("persona", "u_ada::engineer"),
        Owner("thread", "s_1"),
        Owner("organization", "gateway"),
    ]
)
known = st.one_of(st.none(), words)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    embedding = draw(
        st.one_of(st.none(), st.floats(0, 6.3).map(lambda at: struct.pack("<2e", math.cos(at), math.sin(at))))
    )
    return Trace(
        id=f"mt_{draw(st.uuids(version=4))}",
        content=draw(contents),
        owner=draw(owners),
        type=draw(st.sampled_from(TYPES)),
        strength=draw(st.floats(0, 1)),
        stability_ms=draw(st.floats(1, 1e15)),
        tags=tuple(draw(st.lists(words, max_size=3, unique=True))),
        emotions=draw(st.dictionaries(words, st.floats(0, 1), max_size=2)),
        metadata=draw(metadata),
        created_at=draw(times),
        last_accessed_at=draw(times),
        retrieval_count=draw(st.integers(0, 1_000)),
        source=draw(st.sampled_from(SOURCES)),
        author=draw(known),
        speaker=draw(known),
        conversation=draw(known),
        position=draw(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))),
        embedding=embedding,
        embedding_model=None if embedding is None else "mini",
    )


@dataclass(frozen=True)
class Held:
    """What a trace store holds: traces, rows of edges, of the archive and of records, these with their owner."""

    traces: Sequence[Trace] = ()
    edges: Sequence[tuple[Any, ...]] = ()
    archive: Sequence[tuple[Any, ...]] = ()
    records: Sequence[tuple[str, str, Owner, str]] = ()


@st.composite
def trace_stores(draw: st.DrawFn) -> Held:
    unique = (lambda trace: trace.id, lambda trace: (trace.owner, trace.type, trace.content))
    found = draw(st.lists(traces(), max_size=6, unique_by=unique))
    ids = [trace.id for trace in found]
    edges, archive, records = [], [], []
    if len(ids) > 1:
        for pair in draw(st.sets(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), max_size=5)):
            more = (storable(draw(words)), draw(st.floats(0, 1)), as_json(draw(metadata)), draw(st.integers(0, 10**12)))
            edges += [(*pair, *more)] if pair[0] != pair[1] else []
    for trace_id in ids[:1]:
        text = storable(draw(contents))
        archive.append((trace_id, text, hash_of(text), 1_700_000_000_000))
    for kind in draw(
        st.lists(st.sampled_from(["node", "document", "conversation", "message"]), max_size=3, unique=True)
    ):
        body = {name: value for name, value in draw(metadata).items() if name not in ("ownerScope", "ownerId")}
        records.append((kind, "r1", draw(owners), as_json({**body, "id": "r1"})))
    return Held(found, edges, archive, records)


async def fill(trace_store: TraceStore, held: Held) -> None:
    """Put all in as it is."""

    def work(connection: Any) -> None:
        for trace in held.traces:
            insert(connection, trace)
        connection.executemany("INSERT INTO edges VALUES (?, ?, ?, ?, ?, ?)", held.edges)
        connection.executemany("INSERT INTO archive VALUES (?, ?, ?, ?)", held.archive)
        for kind, record_id, owner, body in held.records:
            row = (kind, record_id, owner_number(connection, owner), body)
            connection.execute("INSERT INTO records VALUES (?, ?, ?, ?)", row)

    await trace_store.database.write(work)


async def all_of(
    trace_store: TraceStore, *, with_embeddings: bool = True, bounds: Bounds = EVERYTHING
) -> dict[str, Any]:
    """All that a trace store holds, in an order of its own; read without the code that is tested."""

    def work(connection: Any) -> dict[str, Any]:
        rows = {
            "traces": "SELECT t.*, o.kind, o.id AS owner_id FROM traces t JOIN owners o ON o.number = t.owner"
            " ORDER BY t.id",
            "edges": "SELECT * FROM edges ORDER BY source, target, kind",
            "archive": "SELECT * FROM archive ORDER BY trace",
            "records": "SELECT r.kind, r.id, o.kind AS scope, o.id AS owner, r.body FROM records r JOIN owners o"
            " ON o.number = r.owner ORDER BY 1, 2, 3, 4",
        }
        found: dict[str, Any] = {name: [dict(row) for row in connection.execute(sql)] for name, sql in rows.items()}
        for row in found["traces"]:
            del row["number"], row["owner"]
            if not with_embeddings:
                del row["embedding"], row["embedding_model"]
        for row in (*found["traces"], *found["edges"], *found["records"]):
            for name in {"tags", "emotions", "metadata", "body"} & set(row):
                row[name] = json.loads(row[name])
        return found

    return await trace_store.database.read(work)


def new_trace_store(root: Path) -> TraceStore:
    directory = root / uuid.uuid4().hex
    directory.mkdir()
    return open_trace_store(directory / TRACES_NAME, now=Clock())


def tree(path: Path) -> dict[str, bytes]:
    """The bytes of a file, or of all files below a directory, by name."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
