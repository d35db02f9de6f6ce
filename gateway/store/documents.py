"""Documents in the gateway's own database, by their paths as on one machine; their history is the memory journal.

A change is one transaction: it locks the document, looks in the journal for what is settled already, applies the rest,
and writes down the text, its hash and the entries. A document that is not there yet has no row to lock, so changes of
one document also exclude each other by its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from gateway.errors import MemoryUnavailable, StoreError
from gateway.memory.journal import JournalEntry, JournalRequest, Key
from gateway.memory.paths import is_document, is_original
from gateway.memory.stored.change import Commit, StoredDocument
from gateway.memory.stored.memory import Work
from gateway.memory.stored.whole import WholeDocument
from gateway.protocols import MemoryOutcome
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.engine import Work as DatabaseWork
from gateway.store.memory_journal import SqlMemoryJournal, columns_of_entry, put_history, request_of
from gateway.store.payloads import from_ms, to_ms
from gateway.store.rows import marks_for, put

T = TypeVar("T")
# Of a document that has no row, what the journal says: Markdown files keep their history there, too.
_TAIL = """(
    SELECT {} FROM memory_journal WHERE document = asked.path AND outcome = 'applied' AND position IS NOT NULL
    ORDER BY position DESC LIMIT 1
)"""
_LOAD = f"""
    SELECT asked.path, documents.path AS found, sha256, modified_at,
        coalesce(content, {_TAIL.format("hash_after")}) AS content,
        coalesce(documents.position, {_TAIL.format("position")}) AS position
    FROM ({{}}) AS asked LEFT JOIN documents ON documents.path = asked.path
"""  # noqa: S608 (constants)
_LOCK = "SELECT path FROM documents WHERE path = ?"
_SETTLED = "SELECT turn_id, update_index, outcome FROM memory_journal WHERE outcome IS NOT NULL"
_PUT = """
    INSERT INTO documents (path, content, version, sha256, position, archive, modified_at)
    VALUES (?, ?, 1, ?, ?, ?, ?)
    ON CONFLICT (path) DO UPDATE SET content = excluded.content, version = documents.version + 1,
        sha256 = excluded.sha256, position = excluded.position, modified_at = excluded.modified_at
"""
_ARCHIVE = "SELECT archive FROM documents WHERE path = ?"
_OF_TURNS = "outcome IS NULL AND refers_to IS NULL AND action IN ('add', 'replace', 'remove')"


class SqlDocuments:
    """The `DocumentStore` over an engine, which its owner opens and closes; it is a `KnowsPending`, too."""

    def __init__(self, engine: Engine, *, place: str) -> None:
        """`place` is what people call the database; no secret."""
        self._engine = engine.of("documents")
        self._journal = SqlMemoryJournal(engine.of("journal"))
        self._place = place

    async def open(self) -> None:
        """Nothing: the database is open."""

    async def close(self) -> None:
        """Nothing: others use the database, too."""

    async def check(self) -> Sequence[str]:
        problem = await self._engine.problem()
        return [] if problem is None else [problem]

    def location(self, key: str) -> str:
        return f"{self._place} {key}"

    async def load(self, keys: Sequence[str]) -> Sequence[StoredDocument]:
        return await explained(self._engine.ask(partial(_ask, keys=keys)))

    async def load_with_pending(self, keys: Sequence[str]) -> tuple[Sequence[StoredDocument], Sequence[JournalRequest]]:
        def asking(connection: Connection) -> Callable[[], tuple[list[StoredDocument], list[JournalRequest]]]:
            pending = _ask_pending(connection, keys)  # first: what is applied in between is seen twice, and not missed
            found = _ask(connection, keys)
            return lambda: (found(), pending())

        return await explained(self._engine.ask(asking))

    async def forget_pending(self, user_ids: Collection[str]) -> None:
        marks, ids = marks_for(user_ids), tuple(user_ids)
        sql = f"DELETE FROM memory_journal WHERE outcome IS NULL AND (user_id IN ({marks}) OR author_id IN ({marks}))"  # noqa: S608 (question marks)
        await explained(self._engine.write(statement(sql, (*ids, *ids))))

    async def change(self, key: str, keys: Collection[Key], work: Work) -> Commit:
        def change(connection: Connection) -> Commit:
            document = _locked(connection, key)
            commit = work(document, _settled(connection, keys))
            if commit.entries:
                _put(connection, key, commit.document)
                if commit.cut:
                    _keep(connection, key, _archive(connection, key) + commit.cut)
                for entry in commit.entries:
                    columns = columns_of_entry(entry)
                    del columns["id"]  # of an update of a turn the row is there, with its own
                    put(connection, "memory_journal", columns, key="turn_id, update_index")
            return commit

        return await self._alone(key, change)

    # ---- whole documents --------------------------------------------------------------------------------------------

    async def keys(self) -> Sequence[str]:
        rows = await explained(self._engine.rows("SELECT path FROM documents ORDER BY path"))
        return [path for (path,) in rows if is_document(path) or is_original(path)]

    async def versions(self) -> Mapping[str, str]:
        """SHA-256 of each text of the memory that is there, in hex, by its path; no text is read."""
        sql = "SELECT path, sha256 FROM documents WHERE modified_at IS NOT NULL ORDER BY path"
        rows = await explained(self._engine.rows(sql))
        return {row["path"]: row["sha256"] for row in rows if is_document(row["path"])}

    async def whole(self, key: str) -> WholeDocument:
        while True:
            [before] = await self.load([key])
            entries = await explained(self._journal.whole_history(key))
            archive = await explained(self._engine.row(_ARCHIVE, (key,)))
            [after] = await self.load([key])
            if before == after:  # so they are of one moment
                return WholeDocument(document=after, entries=entries, archive=bytes(archive[0]) if archive else b"")

    async def numbers(self, count: int) -> int:
        return await explained(self._journal.numbers(count))

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        def put_it(connection: Connection) -> bool:
            if _locked(connection, key) != instead_of:
                return False
            put_history(connection, document=key, entries=() if whole is None else whole.entries)
            if whole is None:
                connection.execute("DELETE FROM documents WHERE path = ?", (key,))
            else:
                _put(connection, key, whole.document)
                _keep(connection, key, whole.archive)
            return True

        return await self._alone(key, put_it)

    # ---- history ----------------------------------------------------------------------------------------------------

    async def entries(self, document: str | None, limit: int, before: int | None = None) -> Sequence[JournalEntry]:
        return await explained(self._journal.entries(document, limit, before))

    async def entry(self, entry_id: int) -> JournalEntry | None:
        return await explained(self._journal.entry(entry_id))

    async def chain(self, document: str, position: int) -> Sequence[JournalEntry]:
        return await explained(self._journal.chain(document, position))

    async def _alone(self, key: str, work: DatabaseWork[T]) -> T:
        return await explained(self._engine.write(work, alone=(f"document {key}",)))


async def explained(asked: Awaitable[T]) -> T:
    """The answer of the database.

    Raises:
        MemoryUnavailable: there is none now; nothing was changed.
    """
    try:
        return await asked
    except StoreError as error:
        raise MemoryUnavailable(str(error)) from error


def _ask(connection: Connection, keys: Sequence[str]) -> Callable[[], list[StoredDocument]]:
    """The documents, in the order of the keys."""
    asked = " UNION ALL ".join(["SELECT ? AS path", *["SELECT ?"] * (len(keys) - 1)])
    rows = connection.execute(_LOAD.format(asked), tuple(keys))

    def take() -> list[StoredDocument]:
        found = {row["path"]: _document(row) for row in rows}
        return [found[key] for key in keys]

    return take


def _locked(connection: Connection, key: str) -> StoredDocument:
    """One of them, which nobody else changes until the transaction ends."""
    connection.execute(f"{_LOCK} {connection.dialect.locked}", (key,))
    return _ask(connection, [key])()[0]


def _document(row: Row) -> StoredDocument:
    if row["found"] is None:
        return _never_written(row)
    return StoredDocument(
        data=bytes(row["content"]),
        sha256=row["sha256"],
        position=row["position"],
        modified_at=None if row["modified_at"] is None else from_ms(row["modified_at"]),
    )


def _never_written(tail: Row) -> StoredDocument:
    """No text. Where the history ends with one, the next change notes first that it is gone."""
    if tail["position"] is None:
        return StoredDocument()
    left = tail["content"]
    return StoredDocument(sha256="" if left is None else bytes(left).hex(), position=tail["position"])


def _ask_pending(connection: Connection, keys: Sequence[str]) -> Callable[[], list[JournalRequest]]:
    """What turns have committed for these documents and is not applied yet, in the order of the commits."""
    sql = f"""
        SELECT * FROM memory_journal {connection.dialect.by_pending}
        WHERE document IN ({marks_for(keys)}) AND {_OF_TURNS} ORDER BY id
    """  # noqa: S608 (constants)
    rows = connection.execute(sql, tuple(keys))
    return lambda: [request_of(row) for row in rows]


def _settled(connection: Connection, keys: Collection[Key]) -> dict[Key, MemoryOutcome]:
    turns = {turn_id for turn_id, _ in keys}
    rows = connection.execute(f"{_SETTLED} AND turn_id IN ({marks_for(turns)})", tuple(turns))
    found = {(row["turn_id"], row["update_index"]): row["outcome"] for row in rows}
    return {each: found[each] for each in keys if each in found}


def _archive(connection: Connection, key: str) -> bytes:
    row = connection.execute(_ARCHIVE, (key,)).fetchone()
    return b"" if row is None else bytes(row[0])


def _keep(connection: Connection, key: str, archive: bytes) -> None:
    connection.execute("UPDATE documents SET archive = ? WHERE path = ?", (archive, key))


def _put(connection: Connection, key: str, document: StoredDocument) -> None:
    modified_at = None if document.modified_at is None else to_ms(document.modified_at)
    connection.execute(_PUT, (key, document.data, document.sha256, document.position, b"", modified_at))
