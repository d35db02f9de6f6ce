"""Documents in PostgreSQL: a row for each text, and a row for each entry of its history.

A change takes the document's lock, an advisory one, so that it holds for documents that are not there yet, too. Two
round trips: lock and read; write and commit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, LiteralString

from psycopg import AsyncConnection, Error
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from gateway.errors import MemoryUnavailable
from gateway.memory import rules
from gateway.memory.journal import EntryOutcome, JournalEntry, Key
from gateway.memory.stored.change import Commit, StoredDocument, packed, unpacked
from gateway.memory.stored.memory import Work

SCHEMA: LiteralString = """
CREATE TABLE IF NOT EXISTS ethos_documents (
    key text COLLATE "C" PRIMARY KEY,   -- users/<user id>/USER.md, personalities/<id>/MEMORY.md, ...
    content text NOT NULL,              -- yours to read and to edit; what is not UTF-8 stands here as U+FFFD
    raw bytea,                          -- the bytes, where `content` cannot hold them all
    sha256 text NOT NULL,               -- of the text as the gateway left it
    position bigint NOT NULL,           -- of the newest entry of its history
    archive bytea NOT NULL DEFAULT '',  -- the oldest lines of a text that became too long
    modified_at timestamptz             -- NULL where only the history has something to say
);
CREATE TABLE IF NOT EXISTS ethos_document_history (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    document text COLLATE "C" NOT NULL,
    position bigint,                    -- in its document's history; NULL for what changed nothing
    turn_id text COLLATE "C" NOT NULL,
    update_index integer NOT NULL,
    outcome text NOT NULL,
    has_checkpoint boolean NOT NULL,
    entry text NOT NULL,                -- JSON
    UNIQUE (turn_id, update_index, document),
    UNIQUE (document, position)
);
"""
_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(hashtextextended('ethos ' || %s, 0))"
_LOAD: LiteralString = (
    "SELECT key, content, raw, sha256, position, modified_at FROM ethos_documents WHERE key = ANY(%s)"
)
_SETTLED: LiteralString = (
    "SELECT turn_id, update_index, outcome FROM ethos_document_history WHERE document = %s AND turn_id = ANY(%s)"
)
_PUT: LiteralString = """
    INSERT INTO ethos_documents (key, content, raw, sha256, position, archive, modified_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (key) DO UPDATE SET content = excluded.content, raw = excluded.raw, sha256 = excluded.sha256,
        position = excluded.position, archive = ethos_documents.archive || excluded.archive,
        modified_at = excluded.modified_at
"""
_NOTE: LiteralString = """
    INSERT INTO ethos_document_history (document, position, turn_id, update_index, outcome, has_checkpoint, entry)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_OF_DOCUMENT: LiteralString = """
    SELECT id, entry FROM ethos_document_history
    WHERE document = %s AND position < %s ORDER BY position DESC LIMIT %s
"""
_NEWEST: LiteralString = "SELECT id, entry FROM ethos_document_history WHERE id < %s ORDER BY id DESC LIMIT %s"
_ENTRY: LiteralString = "SELECT id, entry FROM ethos_document_history WHERE id = %s"
_CHAIN: LiteralString = """
    SELECT id, entry FROM ethos_document_history
    WHERE document = %(document)s AND position <= %(position)s AND position >= (
        SELECT coalesce(max(position), 0) FROM ethos_document_history
        WHERE document = %(document)s AND position <= %(position)s AND has_checkpoint
    ) ORDER BY position
"""
_END = (1 << 63) - 1


class PostgresDocuments:
    """The `DocumentStore` in PostgreSQL."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[TupleRow]], *, shown_url: str) -> None:
        """Nothing is asked yet; `shown_url` names the database without its password."""
        self._pool = pool
        self._shown_url = shown_url

    async def prepare(self) -> None:
        """Make the tables where they are missing."""
        async with self._connection() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('ethos schema', 0))")
            await connection.execute(SCHEMA)

    def location(self, key: str) -> str:
        return f"{self._shown_url} ethos_documents {key}"

    async def load(self, keys: Sequence[str]) -> Sequence[StoredDocument]:
        rows = {row[0]: row for row in await self._rows(_LOAD, ([*keys],))}
        return [_document(rows.get(key)) for key in keys]

    async def change(self, key: str, keys: Collection[Key], work: Work) -> Commit:
        async with self._connection() as connection:
            async with connection.pipeline():
                await connection.execute(_LOCK, (key,))
                found = await connection.execute(_LOAD, ([key],))
                noted = await connection.execute(_SETTLED, (key, [turn_id for turn_id, _ in keys]))
                row, rows = await found.fetchone(), await noted.fetchall()
            settled: dict[Key, EntryOutcome] = {(turn_id, index): outcome for turn_id, index, outcome in rows}
            commit = work(_document(row), {each: settled[each] for each in keys if each in settled})
            if not commit.entries:
                return commit
            async with connection.pipeline():
                await connection.execute(_PUT, _values(key, commit))
                for entry in commit.entries:
                    await connection.execute(_NOTE, _entry_values(key, entry))
                await connection.commit()
            return commit

    # ---- history ----------------------------------------------------------------------------------------------------

    async def entries(self, document: str | None, limit: int, before: int | None = None) -> Sequence[JournalEntry]:
        end = _END if before is None else before
        if document is None:
            return await self._entries(_NEWEST, (end, limit))
        return await self._entries(_OF_DOCUMENT, (document, end, limit))

    async def entry(self, entry_id: int) -> JournalEntry | None:
        found = await self._entries(_ENTRY, (entry_id,))
        return found[0] if found else None

    async def chain(self, document: str, position: int) -> Sequence[JournalEntry]:
        return await self._entries(_CHAIN, {"document": document, "position": position})

    async def _entries(self, sql: LiteralString, values: Any) -> list[JournalEntry]:
        return [unpacked(entry_id, text) for entry_id, text in await self._rows(sql, values)]

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _rows(self, sql: LiteralString, values: Any) -> list[TupleRow]:
        async with self._connection() as connection:
            return await (await connection.execute(sql, values)).fetchall()

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[AsyncConnection[TupleRow]]:
        """A connection in a transaction, which is committed at the end."""
        try:
            async with self._pool.connection() as connection:
                yield connection
        except (Error, PoolTimeout, OSError) as error:
            text = str(error).partition("\n")[0]
            raise MemoryUnavailable(f"the memory at {self._shown_url} cannot be used now: {text}") from error


def _document(row: TupleRow | None) -> StoredDocument:
    if row is None:
        return StoredDocument()
    _, content, raw, sha256, position, modified_at = row
    is_as_left = raw is not None and rules.version(raw) == sha256 and _shown(raw) == content
    return StoredDocument(
        data=raw if is_as_left else content.encode(), sha256=sha256, position=position, modified_at=modified_at
    )


def _values(key: str, commit: Commit) -> tuple[object, ...]:
    after = commit.document
    shown = _shown(after.data)
    raw = None if shown.encode() == after.data else after.data
    return key, shown, raw, after.sha256, after.position, commit.cut, after.modified_at


def _entry_values(key: str, entry: JournalEntry) -> tuple[object, ...]:
    turn_id, index = entry.request.key
    return key, entry.position, turn_id, index, entry.outcome, entry.checkpoint is not None, packed(entry)


def _shown(data: bytes) -> str:
    """As a text column can hold it: no NUL, no lone surrogate."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")
