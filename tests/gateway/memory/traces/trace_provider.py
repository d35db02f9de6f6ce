"""The trace memory as the whole memory: both texts are rows of the trace store, and each of their lines is a trace.

The rules of the texts are those of the Markdown files. A text, its traces and the note that an update was applied
change in one transaction.
"""

from __future__ import annotations

import hashlib
import sqlite3
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from gateway.errors import FileError, InvalidId, MemoryConflict, StoreUnavailable
from gateway.memory import rules
from gateway.memory.paths import check_ids, document_key
from gateway.protocols import (
    MemoryContext,
    MemoryDocument,
    MemoryHit,
    MemoryScope,
    MemoryStoreName,
    MemoryUpdate,
    SyncReport,
    UpdateOutcome,
)
from gateway.store.payloads import from_ms, to_ms
from gateway.traces import changes
from gateway.traces.rows import owner_number
from gateway.traces.search import TraceQuery
from gateway.traces.trace import ORGANIZATION, Owner, Trace, Viewer, hash_of
from gateway.traces.trace_store import TraceStore

MAX_BYTES = 512 * 1024

_READ = "SELECT content, modified_at FROM documents WHERE key = ?"
_WRITE = """
    INSERT INTO documents (key, content, modified_at) VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET content = excluded.content, modified_at = excluded.modified_at
"""
_ARCHIVE = "INSERT INTO document_archive (key, content, archived_at) VALUES (?, ?, ?)"
_HIDE = "UPDATE traces SET deleted_at = ? WHERE owner = ? AND content_hash = ? AND deleted_at IS NULL"
_RESTORE = "UPDATE traces SET deleted_at = NULL, merged_into = NULL WHERE id = ? AND deleted_at IS NOT NULL"
_IS_THERE = "SELECT 1 FROM traces WHERE id = ?"


class TraceMemoryProvider:
    """A `MemoryProvider`, an `EditableMemory` and a `SearchableMemory` over one trace store."""

    def __init__(self, trace_store: TraceStore, *, max_bytes: int = MAX_BYTES) -> None:
        """The trace store is closed by who opened it."""
        self._trace_store = trace_store
        self._max_bytes = max_bytes

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        """Both texts as they are now; None when both are blank or absent."""
        check_ids(scope)
        keys = (document_key(scope, "user"), document_key(scope, "memory"))
        async with _as_file_errors():
            user, project = await self._trace_store.database.read(
                lambda connection: tuple(None if key is None else _shown(connection, key) for key in keys)
            )
        if user is None and project is None:
            return None
        return MemoryContext(user_memory=user, project_memory=project)

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        """Apply the updates in order, each turn id and index once, in one transaction."""
        check_ids(scope)
        if not updates:
            return SyncReport(outcomes=())

        def work(connection: sqlite3.Connection) -> tuple[UpdateOutcome, ...]:
            return tuple(self._apply(connection, scope, index, update) for index, update in enumerate(updates))

        async with _as_file_errors():
            return SyncReport(outcomes=await self._trace_store.database.write(work))

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        """The text of one store, empty where there is none yet.

        Raises:
            InvalidId: an id is malformed, or the store needs a user and there is none.
        """
        key = _checked_key(scope, store)
        async with _as_file_errors():
            return await self._trace_store.database.read(lambda connection: _document(connection, key))

    async def write(
        self, scope: MemoryScope, store: MemoryStoreName, content: str, expected_version: str
    ) -> MemoryDocument:
        r"""Replace the text as given (line ends become `\n`), if it is still the version that was read.

        Raises:
            MemoryConflict: it is not; carries both texts.
            InvalidId: an id is malformed, or the store needs a user and there is none.
        """
        key = _checked_key(scope, store)

        def work(connection: sqlite3.Connection) -> MemoryDocument:
            current = _document(connection, key)
            if current.version != expected_version:
                raise MemoryConflict(proposed=content, current=current.content, current_version=current.version)
            self._put(connection, scope, store, rules.clean(content))
            return _document(connection, key)

        async with _as_file_errors():
            return await self._trace_store.database.write(work)

    async def search(self, scope: MemoryScope, query: str, limit: int = 10) -> Sequence[MemoryHit]:
        """Traces, the lines of both texts among them, that the scope may see, best first."""
        check_ids(scope)
        viewer = Viewer(user_id=scope.user_id, personality_id=scope.personality_id, session_id=scope.session_id)
        async with _as_file_errors():
            found = await self._trace_store.search(viewer, TraceQuery(query=query, limit=limit))
        return [
            MemoryHit(
                text=each.trace.content,
                score=each.score,
                store=str(each.trace.metadata.get("store", "traces")),
                source=each.trace.id,
            )
            for each in found
        ]

    # ---- inside a transaction ---------------------------------------------------------------------------------------

    def _apply(
        self, connection: sqlite3.Connection, scope: MemoryScope, index: int, update: MemoryUpdate
    ) -> UpdateOutcome:
        if not changes.note_once(connection, scope.turn_id, index):
            return "replayed"
        key = document_key(scope, update.store)
        if key is None:
            return "no_match"
        after = rules.apply(rules.decode(_bytes(connection, key)), update)
        if after is None:
            return "no_match"
        self._put(connection, scope, update.store, after)
        return "applied"

    def _put(self, connection: sqlite3.Connection, scope: MemoryScope, store: MemoryStoreName, text: str) -> None:
        """Write the text, and make its lines traces; what is too long goes to the archive and is found all the same."""
        key = _checked_key(scope, store)
        before, now = rules.show(_bytes(connection, key)), self._trace_store.now()
        cut, data = rules.cut_to_size(rules.encode(text), self._max_bytes)
        if cut:
            connection.execute(_ARCHIVE, (key, cut, to_ms(now)))
        if data or connection.execute(_READ, (key,)).fetchone() is not None:
            connection.execute(_WRITE, (key, data, to_ms(now)))
        owner = _owner(scope, store)
        old, new = dict.fromkeys(_lines(before)), dict.fromkeys(_lines(text))
        for line in old:
            if line not in new:
                number = owner_number(connection, owner)
                connection.execute(_HIDE, (to_ms(now), number, hash_of(line)))
        for line in new:
            if line not in old:
                self._remember(connection, _line_trace(scope, store, owner, line, now))

    def _remember(self, connection: sqlite3.Connection, trace: Trace) -> None:
        if connection.execute(_IS_THERE, (trace.id,)).fetchone() is None:
            changes.add(connection, trace, self._trace_store.now())
        else:
            connection.execute(_RESTORE, (trace.id,))


def _line_trace(scope: MemoryScope, store: MemoryStoreName, owner: Owner, line: str, now: datetime) -> Trace:
    key = document_key(scope, store)
    digest = hashlib.sha256(f"{key}\0{line}".encode(errors="replace")).digest()
    known = {"store": store, "turnId": scope.turn_id, "channel": scope.channel}
    return Trace(
        id=f"mt_{uuid.UUID(bytes=digest[:16], version=4)}",
        content=line,
        owner=owner,
        type="semantic",
        tags=("keep",),
        metadata={name: value for name, value in known.items() if value is not None},
        created_at=now,
        last_accessed_at=now,
        source="tool",
        author=scope.user_id,
    )


def _owner(scope: MemoryScope, store: MemoryStoreName) -> Owner:
    """Whose the lines are: those who share the text find them."""
    if store == "user":
        return Owner("user", scope.user_id or "")
    match scope.place:
        case "global":
            return Owner("organization", ORGANIZATION)
        case "per-personality":
            return Owner("organization", f"{ORGANIZATION}::{scope.personality_id}")
        case "per-user":
            return Owner("persona", f"{scope.user_id}::{scope.personality_id}")


def _checked_key(scope: MemoryScope, store: MemoryStoreName) -> str:
    check_ids(scope)
    key = document_key(scope, store)
    if key is None:
        raise InvalidId("user", "")
    return key


def _bytes(connection: sqlite3.Connection, key: str) -> bytes:
    row = connection.execute(_READ, (key,)).fetchone()
    return b"" if row is None else bytes(row["content"])


def _shown(connection: sqlite3.Connection, key: str) -> str | None:
    text = rules.show(_bytes(connection, key))
    return text if text.strip() else None


def _document(connection: sqlite3.Connection, key: str) -> MemoryDocument:
    row = connection.execute(_READ, (key,)).fetchone()
    data = b"" if row is None else bytes(row["content"])
    modified_at = None if row is None else from_ms(row["modified_at"])
    return MemoryDocument(
        content=rules.show(data), path=Path(key), modified_at=modified_at, version=rules.version(data)
    )


def _lines(text: str) -> Iterator[str]:
    """What says something: no blank line, no heading."""
    for raw in text.split("\n"):
        line = raw.strip()
        if line and not line.startswith("#"):
            yield line


@asynccontextmanager
async def _as_file_errors() -> AsyncGenerator[None]:
    """A trace store that cannot be used now is to a memory what a file is that cannot."""
    try:
        yield
    except StoreUnavailable as error:
        raise FileError(str(error)) from error
