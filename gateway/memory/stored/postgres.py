"""Documents in PostgreSQL: a row for each text, and a row for each entry of its history.

A change takes the document's lock, an advisory one, so that it holds for documents that are not there yet, too. Two
round trips: lock and read; write and commit.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, LiteralString

from psycopg import AsyncConnection, Error, IsolationLevel
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from gateway.errors import MemoryUnavailable
from gateway.memory import rules
from gateway.memory.journal import JournalEntry, Key
from gateway.memory.stored.change import Commit, StoredDocument, packed, unpacked
from gateway.memory.stored.memory import MAX_STORED_BYTES, Work, refuse_too_long
from gateway.memory.stored.whole import WholeDocument
from gateway.protocols import MemoryOutcome
from gateway.runtime.failpoints import reach
from gateway.runtime.logs import hiding, secrets_of
from gateway.runtime.postgres_reasons import reason_of

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
_SCHEMA_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(hashtextextended('ethos schema', 0))"
_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(hashtextextended('ethos ' || %s, 0))"
# A text that is too long stays where it is: only its length comes.
_LOAD: LiteralString = """
    SELECT key, CASE WHEN size > %(most)s THEN '' ELSE content END, CASE WHEN size > %(most)s THEN NULL ELSE raw END,
        sha256, position, modified_at, size
    FROM (SELECT *, greatest(octet_length(content), octet_length(raw)) AS size FROM ethos_documents) AS documents
    WHERE key = ANY(%(keys)s)
"""
_LOAD_LOCKED: LiteralString = f"{_LOAD} FOR UPDATE"  # also against people, who do not know the document's lock
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
_NOTE_NUMBERED: LiteralString = """
    COPY ethos_document_history (id, document, position, turn_id, update_index, outcome, has_checkpoint, entry)
    FROM STDIN
"""
_NUMBERS_LOCK: LiteralString = "LOCK TABLE ethos_document_history IN SHARE ROW EXCLUSIVE MODE"
_NUMBERS: LiteralString = """
    SELECT setval(name, nextval(name) + %(count)s - 1) - %(count)s + 1
    FROM pg_get_serial_sequence('ethos_document_history', 'id') AS name
"""
_ALL: LiteralString = "SELECT id, entry FROM ethos_document_history WHERE document = %s ORDER BY id"
_ARCHIVE: LiteralString = "SELECT archive FROM ethos_documents WHERE key = %s"
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
_SETTINGS: LiteralString = """
    SELECT name, setting FROM pg_settings WHERE name IN ('server_encoding', 'fsync')
"""
_PROBE = ".ethos-check"
_SHAPE = "there are tables of these names with other columns; rename them, or name another database in `url`"
_SHAPES = (("42", _SHAPE), ("23", _SHAPE))
_OLDEST = 130_000
# How much of the time limit may be spent waiting for a connection; the rest is for asking why there is none.
_WAITS = 0.75
_END = (1 << 63) - 1
_MOST_AT_ONCE = 16_384  # characters, of up to four bytes; a socket takes more than that


class PostgresDocuments:
    """The `DocumentStore` in PostgreSQL."""

    def __init__(
        self,
        url: str,
        *,
        shown_url: str,
        connections: int = 4,
        timeout_s: float = 2.0,
        ca_file: Path | None = None,
        max_bytes: int = MAX_STORED_BYTES,
    ) -> None:
        """Nothing is asked yet.

        Args:
            url: as libpq takes it.
            shown_url: the same without its password.
            connections: at once, at most.
            timeout_s: for a connection and for one question.
            ca_file: of the authority that signed the server's certificate; without it, `url` says what is checked.
            max_bytes: a longer document is left as it is, and not read.
        """
        milliseconds = round(timeout_s * 1000)
        self._url = url
        chosen = conninfo_to_dict(url).get("options") or ""
        limits = f"-c statement_timeout={milliseconds} -c idle_in_transaction_session_timeout=30000"
        self._options: dict[str, Any] = {
            "connect_timeout": max(2, round(timeout_s)),  # libpq takes less for 2
            "options": f"{limits} {chosen}",
            "tcp_user_timeout": milliseconds,
        }
        if ca_file is not None:
            self._options |= {"sslmode": "verify-full", "sslrootcert": str(ca_file)}
        logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # what it warns of is told by what fails for it
        self._pool = AsyncConnectionPool(
            url,
            open=False,
            min_size=1,
            max_size=connections,
            timeout=_WAITS * timeout_s,
            reconnect_timeout=timeout_s,  # a longer one makes longer and longer pauses, and a new question a new try
            kwargs=self._options,
            configure=_read_committed,
        )
        self._shown_url = shown_url
        self._max_bytes = max_bytes
        self._hide = hiding(secrets_of(url))
        self._is_prepared = False

    async def open(self) -> None:
        """Begin to connect; the tables are made with the first question, where they are missing."""
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def check(self) -> Sequence[str]:
        try:
            async with await self._connected() as connection:
                found = await _problems(connection)
                try:
                    await connection.execute(SCHEMA)
                    await connection.execute(_LOAD, {"keys": [_PROBE], "most": 0})
                    await connection.execute(_PUT, _values(_PROBE, StoredDocument(), b""))
                finally:
                    await connection.rollback()
        except (Error, OSError) as error:
            return [self._told(error)]
        return [f"{self._shown_url} {problem}" for problem in found]

    def location(self, key: str) -> str:
        return f"{self._shown_url} ethos_documents {key}"

    async def load(self, keys: Sequence[str]) -> Sequence[StoredDocument]:
        rows = {row[0]: row for row in await self._rows(_LOAD, self._named(*keys))}
        return [self._document(rows.get(key)) for key in keys]

    async def change(self, key: str, keys: Collection[Key], work: Work) -> Commit:
        async with self._connection() as connection:
            async with connection.pipeline():
                await connection.execute(_LOCK, (key,))
                found = await connection.execute(_LOAD_LOCKED, self._named(key))
                noted = await connection.execute(_SETTLED, (key, [turn_id for turn_id, _ in keys]))
                row, rows = await found.fetchone(), await noted.fetchall()
            reach("memory.postgres.read")
            settled: dict[Key, MemoryOutcome] = {(turn_id, index): outcome for turn_id, index, outcome in rows}
            commit = work(self._document(row), {each: settled[each] for each in keys if each in settled})
            if not commit.entries:
                return commit
            document = _values(key, commit.document, commit.cut)
            entries = [_entry_values(key, entry) for entry in commit.entries]
            async with _pipeline(connection, [document, *entries]):
                await connection.execute(_PUT, document)
                reach("memory.postgres.writing")
                for entry in entries:
                    await connection.execute(_NOTE, entry)
                reach("memory.postgres.committing")
                await connection.commit()
            reach("memory.postgres.committed")
            return commit

    # ---- whole documents --------------------------------------------------------------------------------------------

    async def keys(self) -> Sequence[str]:
        return [row[0] for row in await self._rows("SELECT key FROM ethos_documents ORDER BY key", ())]

    async def whole(self, key: str) -> WholeDocument:
        async with self._connection() as connection:
            await connection.execute(_LOCK, (key,))
            document = await _whole(connection, key)
            rows = await (await connection.execute(_ALL, (key,))).fetchall()
            archive = await (await connection.execute(_ARCHIVE, (key,))).fetchone()
        entries = [unpacked(entry_id, text) for entry_id, text in rows]
        return WholeDocument(document=document, entries=entries, archive=archive[0] if archive else b"")

    async def numbers(self, count: int) -> int:
        async with self._connection() as connection:
            await connection.execute(_NUMBERS_LOCK)  # who adds an entry takes its number under a lock of the table
            row = await (await connection.execute(_NUMBERS, {"count": count})).fetchone()
            return int(row[0]) if row else 0

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        async with self._connection() as connection:
            await connection.execute(_LOCK, (key,))
            if await _whole(connection, key) != instead_of:
                return False
            await connection.execute("DELETE FROM ethos_documents WHERE key = %s", (key,))
            await connection.execute("DELETE FROM ethos_document_history WHERE document = %s", (key,))
            reach("memory.postgres.replacing")
            if whole is not None:
                await connection.execute(_PUT, _values(key, whole.document, whole.archive))
                async with connection.cursor().copy(_NOTE_NUMBERED) as rows:
                    for entry in whole.entries:
                        await rows.write_row((entry.id, *_entry_values(key, entry)))
            reach("memory.postgres.replaced")
            return True

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
                if not self._is_prepared:
                    await connection.execute(_SCHEMA_LOCK)
                    await connection.execute(SCHEMA)
                    await connection.commit()
                    self._is_prepared = True
                    reach("memory.postgres.prepared")
                yield connection
        except ReadOnlySqlTransaction as error:  # there may be another primary by now, under the same address
            await self._pool.drain()
            raise MemoryUnavailable(self._told(error)) from error
        except PoolTimeout as error:  # which does not say why
            raise MemoryUnavailable(await self._why_none()) from error
        except (Error, OSError) as error:
            raise MemoryUnavailable(self._told(error)) from error

    async def _why_none(self) -> str:
        """Why the pool had no connection in time: another one fails, too, and says why, or all were in use."""
        try:
            await (await self._connected()).close()
        except (Error, OSError) as error:
            return self._told(error)
        return f"{self._shown_url} has no connection to spare"

    async def _connected(self) -> AsyncConnection[TupleRow]:
        return await AsyncConnection.connect(self._url, **self._options)

    def _named(self, *keys: str) -> dict[str, Any]:
        return {"keys": [*keys], "most": self._max_bytes}

    def _document(self, row: TupleRow | None) -> StoredDocument:
        if row is None:
            return StoredDocument()
        refuse_too_long(self.location(row[0]), row[6], self._max_bytes)
        return _document(row)

    def _told(self, error: Exception) -> str:
        return f"the memory at {self._shown_url} cannot be used now: {self._hide(reason_of(error, _SHAPES))}"


async def _problems(connection: AsyncConnection[TupleRow]) -> Sequence[str]:
    """What a database says of itself that is not good enough for a memory."""
    found = [*_too_old(connection.info.server_version)]
    settings: dict[str, str] = dict(await (await connection.execute(_SETTINGS)).fetchall())
    if settings["server_encoding"] != "UTF8":
        found.append(f"has the encoding {settings['server_encoding']}; make a database with `ENCODING 'UTF8'`")
    if settings["fsync"] == "off":
        found.append("does not write to its disk at once (fsync = off), so a power cut may lose everything")
    return found


def _too_old(version: int) -> Iterator[str]:
    if version < _OLDEST:
        yield f"is PostgreSQL {version // 10_000}, which is too old; use {_OLDEST // 10_000} or newer"


async def _read_committed(connection: AsyncConnection[TupleRow]) -> None:
    """Who waited for a document's lock must read what its last holder wrote, whatever the database's default is."""
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)


async def _whole(connection: AsyncConnection[TupleRow], key: str) -> StoredDocument:
    """A document, locked, however long it is: an erasure must not end at one that nobody can use."""
    row = await (await connection.execute(_LOAD_LOCKED, {"keys": [key], "most": _END})).fetchone()
    return StoredDocument() if row is None else _document(row)


def _document(row: TupleRow) -> StoredDocument:
    _, content, raw, sha256, position, modified_at, _ = row
    is_as_left = raw is not None and rules.version(raw) == sha256 and _shown(raw) == content
    return StoredDocument(
        data=raw if is_as_left else content.encode(), sha256=sha256, position=position, modified_at=modified_at
    )


def _pipeline(
    connection: AsyncConnection[TupleRow], values: Sequence[Sequence[object]]
) -> AbstractAsyncContextManager[object]:
    """One round trip for all statements, where they are short.

    A pipeline of psycopg waits for answers before all of a long statement is sent, which may be for ever.
    """
    size = sum(len(one) for row in values for one in row if isinstance(one, str | bytes))
    return connection.pipeline() if size <= _MOST_AT_ONCE else nullcontext()


def _values(key: str, document: StoredDocument, archive: bytes) -> tuple[object, ...]:
    shown = _shown(document.data)
    raw = None if shown.encode() == document.data else document.data
    return key, shown, raw, document.sha256, document.position, archive, document.modified_at


def _entry_values(key: str, entry: JournalEntry) -> tuple[object, ...]:
    turn_id, index = entry.request.key
    return key, entry.position, turn_id, index, entry.outcome, entry.checkpoint is not None, packed(entry)


def _shown(data: bytes) -> str:
    """As a text column can hold it: no NUL, no lone surrogate."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")
