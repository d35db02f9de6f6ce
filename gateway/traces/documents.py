"""The documents of a memory in the trace store's file: the texts, their history, and their lines as traces.

A document, its history and the traces of its lines change in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from gateway.memory import rules
from gateway.memory.journal import JournalEntry, Key
from gateway.memory.stored.change import Commit, StoredDocument, packed, unpacked
from gateway.memory.stored.memory import Work
from gateway.memory.stored.whole import WholeDocument
from gateway.protocols import MemoryOutcome
from gateway.store.documents import explained
from gateway.store.engine import Connection, snapshot
from gateway.store.engine import Work as DatabaseWork
from gateway.traces.document_lines import forget_lines, index_lines, indexed_lines, lines_of
from gateway.traces.trace_store import TraceStore

T = TypeVar("T")
_LOAD = "SELECT data, sha256, position, modified_at FROM trace_documents WHERE key = ?"
_SETTLED = "SELECT outcome FROM trace_document_history WHERE document = ? AND turn_id = ? AND update_index = ?"
_PUT = """
    INSERT INTO trace_documents (key, data, sha256, position, archive, modified_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET data = excluded.data, sha256 = excluded.sha256, position = excluded.position,
        archive = excluded.archive, modified_at = excluded.modified_at
"""
_NOTE = """
    INSERT INTO trace_document_history (document, position, turn_id, update_index, outcome, has_checkpoint, entry)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_NOTE_NUMBERED = """
    INSERT INTO trace_document_history (id, document, position, turn_id, update_index, outcome, has_checkpoint, entry)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_ARCHIVE = "SELECT archive FROM trace_documents WHERE key = ?"
_ALL = "SELECT id, entry FROM trace_document_history WHERE document = ? ORDER BY id"
_OF_DOCUMENT = """
    SELECT id, entry FROM trace_document_history WHERE document = ? AND position < ? ORDER BY position DESC LIMIT ?
"""
_NEWEST = "SELECT id, entry FROM trace_document_history WHERE id < ? ORDER BY id DESC LIMIT ?"
_ENTRY = "SELECT id, entry FROM trace_document_history WHERE id = ?"
_CHAIN = """
    SELECT id, entry FROM trace_document_history
    WHERE document = ?1 AND position <= ?2 AND position >= (
        SELECT coalesce(max(position), 0) FROM trace_document_history
        WHERE document = ?1 AND position <= ?2 AND has_checkpoint
    ) ORDER BY position
"""
_LAST_NUMBER = "SELECT seq FROM sqlite_sequence WHERE name = 'trace_document_history'"
_FIRST_NUMBERS = "INSERT INTO sqlite_sequence (name, seq) VALUES ('trace_document_history', ?)"
_MORE_NUMBERS = "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'trace_document_history'"
# Who adds an entry does so alone.
_SHARED_NUMBERS = """
    SELECT setval(sequence, nextval(sequence) + ? - 1)
    FROM (SELECT pg_get_serial_sequence('trace_document_history', 'id')::regclass AS sequence) AS of_ids
"""
_END = (1 << 63) - 1


class TraceDocuments:
    """The `DocumentStore` in one trace store, which its owner opens and closes."""

    def __init__(self, trace_store: TraceStore) -> None:
        self._trace_store = trace_store
        self._database = trace_store.database

    async def open(self) -> None:
        """Nothing: the trace store is open."""

    async def close(self) -> None:
        """Nothing: others use the trace store, too."""

    async def check(self) -> Sequence[str]:
        problem = await self._database.problem()
        return [] if problem is None else [problem]

    def location(self, key: str) -> str:
        return f"{self._trace_store.place} {key}"

    async def load(self, keys: Sequence[str]) -> Sequence[StoredDocument]:
        return await self._read(lambda connection: [_load(connection, key) for key in keys])

    async def change(self, key: str, keys: Collection[Key], work: Work) -> Commit:
        def change(connection: Connection) -> Commit:
            before = _load(connection, key)
            commit = work(before, _settled(connection, key, keys))
            if commit.entries:
                self._put(connection, key, before, commit.document, commit.cut)
                connection.executemany(_NOTE, [_values(key, entry) for entry in commit.entries])
            return commit

        return await self._write(change)

    # ---- whole documents --------------------------------------------------------------------------------------------

    async def keys(self) -> Sequence[str]:
        return await self._read(
            lambda connection: [row[0] for row in connection.execute("SELECT key FROM trace_documents ORDER BY key")]
        )

    async def whole(self, key: str) -> WholeDocument:
        def whole(connection: Connection) -> WholeDocument:
            with snapshot(connection):
                return _whole(connection, key)

        return await self._read(whole)

    async def numbers(self, count: int) -> int:
        return await self._write(partial(_numbers, count=count))

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        def put(connection: Connection) -> bool:
            before = _load(connection, key)
            if before != instead_of:
                return False
            connection.execute("DELETE FROM trace_documents WHERE key = ?", (key,))
            connection.execute("DELETE FROM trace_document_history WHERE document = ?", (key,))
            if whole is None:
                forget_lines(connection, key)
            else:
                self._put(connection, key, before, whole.document, whole.archive)
                connection.executemany(_NOTE_NUMBERED, [(entry.id, *_values(key, entry)) for entry in whole.entries])
            return True

        return await self._write(put)

    async def compact(self) -> None:
        """Rewrite the file, so that no byte of it tells of what was taken out."""
        await explained(self._database.compact())

    # ---- history ----------------------------------------------------------------------------------------------------

    async def entries(self, document: str | None, limit: int, before: int | None = None) -> Sequence[JournalEntry]:
        end = _END if before is None else before
        if document is None:
            return await self._entries(_NEWEST, end, limit)
        return await self._entries(_OF_DOCUMENT, document, end, limit)

    async def entry(self, entry_id: int) -> JournalEntry | None:
        found = await self._entries(_ENTRY, entry_id)
        return found[0] if found else None

    async def chain(self, document: str, position: int) -> Sequence[JournalEntry]:
        return await self._entries(_CHAIN, document, position)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _entries(self, sql: str, *values: object) -> list[JournalEntry]:
        rows = await self._read(lambda connection: connection.execute(sql, values).fetchall())
        return [unpacked(row["id"], row["entry"]) for row in rows]

    def _put(
        self, connection: Connection, key: str, before: StoredDocument, after: StoredDocument, archive: bytes
    ) -> None:
        modified_at = None if after.modified_at is None else after.modified_at.isoformat()
        kept = _archive(connection, key) + archive
        connection.execute(_PUT, (key, after.data, after.sha256, after.position, kept, modified_at))
        is_by_hand = rules.version(before.data) != before.sha256  # and so past its traces
        known = indexed_lines(connection, key) if is_by_hand else lines_of(before.data)
        now, stability_ms = self._trace_store.now(), self._trace_store.stability_ms
        index_lines(connection, key, known, lines_of(after.data), at=now, stability_ms=stability_ms)

    async def _read(self, work: DatabaseWork[T]) -> T:
        return await explained(self._database.read(work))

    async def _write(self, work: DatabaseWork[T]) -> T:
        return await explained(self._database.write(work))


def _load(connection: Connection, key: str) -> StoredDocument:
    row = connection.execute(_LOAD, (key,)).fetchone()
    if row is None:
        return StoredDocument()
    data, sha256, position, modified_at = row
    return StoredDocument(
        data=data,
        sha256=sha256,
        position=position,
        modified_at=None if modified_at is None else datetime.fromisoformat(modified_at),
    )


def _settled(connection: Connection, key: str, keys: Collection[Key]) -> dict[Key, MemoryOutcome]:
    found = ((each, connection.execute(_SETTLED, (key, *each)).fetchone()) for each in keys)
    return {each: row["outcome"] for each, row in found if row is not None}


def _whole(connection: Connection, key: str) -> WholeDocument:
    return WholeDocument(
        document=_load(connection, key),
        entries=[unpacked(row["id"], row["entry"]) for row in connection.execute(_ALL, (key,))],
        archive=_archive(connection, key),
    )


def _archive(connection: Connection, key: str) -> bytes:
    row = connection.execute(_ARCHIVE, (key,)).fetchone()
    return row[0] if row else b""


def _numbers(connection: Connection, count: int) -> int:
    if connection.dialect.is_shared:
        return int(connection.execute(_SHARED_NUMBERS, (count,)).fetchone()[0]) - count + 1
    row = connection.execute(_LAST_NUMBER).fetchone()
    connection.execute(_FIRST_NUMBERS if row is None else _MORE_NUMBERS, (count,))
    return 1 if row is None else int(row[0]) + 1


def _values(key: str, entry: JournalEntry) -> tuple[object, ...]:
    turn_id, index = entry.request.key
    return key, entry.position, turn_id, index, entry.outcome, entry.checkpoint is not None, packed(entry)
