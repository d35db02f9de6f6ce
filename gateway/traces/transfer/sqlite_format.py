"""The SQLite form: a trace store of its own, embeddings too.

Of the whole trace store it is a copy by `VACUUM INTO` from which the hidden traces are taken out, index and free
pages too; for one person it is a new trace store with that person's traces only. A database of AgentOS is read as well.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.errors import TraceError
from gateway.store.engine import Connection
from gateway.store.sqlite.engine import SqliteConnection, connect
from gateway.store.sqlite.schema import migrate, migrations
from gateway.traces.rows import as_json, insert, node_end, owner_number
from gateway.traces.search_words import register_functions
from gateway.traces.trace import SCOPES, hash_of
from gateway.traces.transfer.bounds import Everything
from gateway.traces.transfer.import_records import (
    UNNAMED,
    CarriedEdge,
    ImportItem,
    Progress,
    RecordKind,
    RefusedItem,
    UnreadableRest,
)
from gateway.traces.transfer.serialization import plain, read_edge, read_record, read_trace
from gateway.traces.transfer.snapshot import SECTIONS, Snapshot
from gateway.traces.transfer.source import Pace, TooSlow

LARGEST_ROW_BYTES = 64 * 1024 * 1024
_REPORTED_EVERY = 500
_STEPS_BETWEEN = 1_000_000  # of SQLite's machine, some milliseconds
_FORGET_HIDDEN = (
    "DELETE FROM traces WHERE deleted_at IS NOT NULL",
    # The memory's documents are no part of it: `ethos memory copy` takes them along.
    "DELETE FROM traces WHERE owner IN (SELECT number FROM owners WHERE kind = 'document')",
    "DELETE FROM owners WHERE kind = 'document'",
    "DELETE FROM trace_documents",
    "DELETE FROM trace_document_history",
    "DELETE FROM archive WHERE trace NOT IN (SELECT id FROM traces)",
    "DELETE FROM archive_reads WHERE trace NOT IN (SELECT id FROM traces)",
    "DELETE FROM uses WHERE trace NOT IN (SELECT id FROM traces)",
    """DELETE FROM edges WHERE (source NOT LIKE 'node:%' AND source NOT IN (SELECT id FROM traces))
        OR (target NOT LIKE 'node:%' AND target NOT IN (SELECT id FROM traces))""",
)
_ON_DISK = "PRAGMA temp_store = FILE"  # what is sorted may be more than fits into memory
_OPTIMIZE = "INSERT INTO search (search) VALUES ('optimize')"
_ARCHIVE = "INSERT INTO archive (trace, verbatim, content_hash, archived_at) VALUES (?, ?, ?, ?)"
_EDGE = "INSERT INTO edges (source, target, kind, weight, metadata, created_at) VALUES (?, ?, ?, ?, ?, ?)"
_RECORD = "INSERT INTO records (kind, id, owner, body) VALUES (?, ?, ?, ?)"
_OWN_TRACES = """
    SELECT traces.*, owners.kind AS scope, owners.id AS scope_id, archive.verbatim AS verbatim_content,
        archive.archived_at AS archived_at
    FROM traces JOIN owners ON owners.number = traces.owner LEFT JOIN archive ON archive.trace = traces.id
    WHERE owners.kind <> 'document' ORDER BY traces.number
"""
_AGENTOS_RECORDS: Mapping[str, RecordKind] = {
    "knowledge_nodes": "node",
    "documents": "document",
    "conversations": "conversation",
    "messages": "message",
}


# ---- out ------------------------------------------------------------------------------------------------------------


def copy_all(trace_store: Path, target: Path, *, progress: Progress) -> int:
    """Write the whole trace store but for what is hidden; how many traces.

    Raises:
        StoreUnavailable, sqlite3.Error: it cannot be read, or the disk is full.
    """
    with contextlib.closing(connect(trace_store, prepare=register_functions)) as connection:
        connection.execute(_ON_DISK)
        connection.execute("VACUUM INTO ?", (str(target),))
    with contextlib.closing(connect(target, prepare=register_functions)) as copy:
        copy.execute(_ON_DISK)
        copy.execute("BEGIN")
        for statement in _FORGET_HIDDEN:
            copy.execute(statement)
        copy.execute("COMMIT")
        return _finish(copy, progress)


def write_sqlite(snapshot: Snapshot, target: Path, *, progress: Progress) -> int:
    """Write a new trace store of what the snapshot shows; how many traces."""
    total = snapshot.count()
    migrate(target, prepare=register_functions, steps=migrations("gateway.traces"))
    with contextlib.closing(connect(target, prepare=register_functions)) as copy:
        copy.execute("BEGIN")
        for written, exported in enumerate(snapshot.traces(), 1):
            insert(copy, exported.trace)
            if exported.verbatim is not None:
                values = (exported.trace.id, exported.verbatim, hash_of(exported.verbatim), exported.archived_at_ms)
                copy.execute(_ARCHIVE, values)
            if written % _REPORTED_EVERY == 0:
                progress(written, total)
        for kind in SECTIONS:
            for record in snapshot.records(kind):
                copy.execute(_RECORD, (kind, record.id, owner_number(copy, record.owner), as_json(dict(record.body))))
        for edge in snapshot.edges():
            _write_edge(copy, edge)
        copy.execute("COMMIT")
        return _finish(copy, progress)


def _write_edge(copy: Connection, edge: CarriedEdge) -> None:
    """An end that is no trace is a node of the edge's owner."""
    ends = [edge.source, edge.target]
    if edge.owner != UNNAMED:
        number = owner_number(copy, edge.owner)
        is_trace = "SELECT 1 FROM traces WHERE id = ?"
        ends = [end if copy.execute(is_trace, (end,)).fetchone() else node_end(number, end) for end in ends]
    copy.execute(_EDGE, (*ends, edge.kind, edge.weight, as_json(dict(edge.metadata)), edge.created_at_ms))


def _finish(copy: Connection, progress: Progress) -> int:
    """One file, without companions, that holds nothing of what was taken out."""
    copy.execute(_OPTIMIZE)
    copy.execute("VACUUM")
    copy.execute("PRAGMA journal_mode = DELETE")
    total = int(copy.execute("SELECT count(*) FROM traces").fetchone()[0])
    progress(total, total)
    return total


# ---- in -------------------------------------------------------------------------------------------------------------


def read_sqlite(path: Path, *, now_ms: int, progress: Progress, pace: Pace) -> Iterator[ImportItem]:
    """All that a trace store holds, ours or AgentOS's. Hidden traces are passed over.

    Raises:
        TraceError: it is no trace store, or a newer program's.
        TooSlow: a row takes too long.
    """
    try:
        address = f"{path.resolve().as_uri()}?mode=ro"
        # Each lot is read in whichever thread is free, one after the other.
        with contextlib.closing(
            sqlite3.connect(address, uri=True, check_same_thread=False, factory=SqliteConnection)
        ) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_ROW_BYTES)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(pace.gives_up, _STEPS_BETWEEN)
            connection.execute("BEGIN")
            yield from _read(connection, path, now_ms=now_ms, progress=progress)
    except (sqlite3.Error, ValueError, TypeError, LookupError) as error:  # all but the first: rows that we never wrote
        if pace.is_given_up:
            raise TooSlow from error
        yield UnreadableRest("", f"the database cannot be read any further ({error}); what came before is in")


def _read(connection: Connection, path: Path, *, now_ms: int, progress: Progress) -> Iterator[ImportItem]:
    tables = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if {"traces", "owners", "archive", "edges", "records"} <= tables:
        newest = migrations("gateway.traces")[-1].version
        if connection.execute("PRAGMA user_version").fetchone()[0] > newest:
            raise TraceError(f"{path} was written by a newer program. Upgrade this one first.")
        yield from _traces(connection, _OWN_TRACES, "traces", now_ms=now_ms, progress=progress)
        yield from _own_rest(connection)
    elif "memory_traces" in tables:
        sql = "SELECT * FROM memory_traces ORDER BY rowid"
        yield from _traces(connection, sql, "memory_traces", now_ms=now_ms, progress=progress)
        for table, kind in _AGENTOS_RECORDS.items():
            if table in tables:
                yield from _agentos_records(connection, table, kind)
        if "knowledge_edges" in tables:
            yield from _agentos_edges(connection, now_ms=now_ms)
    else:
        raise TraceError(f"{path} is a database, but no trace store: it has no traces.")


def _traces(connection: Connection, sql: str, table: str, *, now_ms: int, progress: Progress) -> Iterator[ImportItem]:
    total = int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 (a constant)
    for index, row in enumerate(connection.execute(sql), 1):
        values = dict(row)
        yield from read_trace(values, f"{table} {values.get('id')}", now_ms=now_ms)
        if index % _REPORTED_EVERY == 0:
            progress(index, total)
    progress(total, total)


def _own_rest(connection: Connection) -> Iterator[ImportItem]:
    snapshot = Snapshot(connection, Everything())
    for kind in SECTIONS:
        for record in snapshot.records(kind):
            if record.owner.kind in SCOPES:
                yield record
            else:  # other programs may write other kinds
                why = f"scope {record.owner.kind!r} is none of {', '.join(SCOPES)}; it was left out"
                yield RefusedItem(record.place, why)
    yield from snapshot.edges()


def _agentos_records(connection: Connection, table: str, kind: RecordKind) -> Iterator[ImportItem]:
    for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 (one of ours)
        values: dict[str, Any] = plain(dict(row))
        yield read_record(kind, values, f"{table} {values.get('id') or ''}".rstrip())


def _agentos_edges(connection: Connection, *, now_ms: int) -> Iterator[ImportItem]:
    for row in connection.execute("SELECT * FROM knowledge_edges"):
        values: dict[str, Any] = plain(dict(row))
        yield read_edge(values, f"knowledge_edges {values.get('id')}", now_ms=now_ms)
