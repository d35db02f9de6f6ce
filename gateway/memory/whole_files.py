"""The Markdown files as whole documents: text, archive and history, read and put in place at once; for copies."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from gateway.files.atomic import inside, make_private_directory, read_once, sync_directory, write_atomically
from gateway.files.locks import FileLock
from gateway.memory import rules
from gateway.memory.atomic_document import AtomicDocument
from gateway.memory.journal import HASH_OF_NOTHING, JournalEntry, MemoryJournal
from gateway.memory.paths import (
    ARCHIVE_NAME,
    BEFORE,
    COMPLETE,
    DocumentPlace,
    check_ids,
    documents,
    is_original,
    locate_key,
    scope_of_key,
)
from gateway.memory.stored.change import StoredDocument
from gateway.memory.stored.whole import WholeDocument, is_same_history

_ORIGINALS = ("USER.md", "personalities/*/MEMORY.md", COMPLETE)


class WholeFiles:
    """The `CopiesMemory` of the Markdown memory."""

    def __init__(self, root: Path, journal: MemoryJournal, *, lock_timeout_s: float) -> None:
        """Use the files below `root`, links resolved."""
        self._root = root
        self._journal = journal
        self._lock_timeout_s = lock_timeout_s

    async def keys(self) -> Sequence[str]:
        """Of every document that is there, or of whose texts the journal knows; and of originals of links."""
        return sorted({*await asyncio.to_thread(self._on_disk), *await self._journal.documents()})

    async def numbers(self, count: int) -> int:
        """See `CopiesMemory.numbers`."""
        return await self._journal.numbers(count)

    async def whole(self, key: str) -> WholeDocument:
        """See `CopiesMemory.whole`; raises `FileError` and `StoreError`."""
        if is_original(key):
            return await asyncio.to_thread(self._original, key)
        place = self._place(key)
        async with self._locked(place):
            data, modified_at, archive = await asyncio.to_thread(_resting, place)
            entries = await self._journal.whole_history(key)
        document = StoredDocument(
            data=data,
            sha256=_left(entries) or rules.version(data),
            position=max((entry.position or 0 for entry in entries), default=0),
            modified_at=modified_at,
        )
        return WholeDocument(document=document, entries=entries, archive=archive)

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        """See `CopiesMemory.put_whole`.

        The text comes first, then the archive, then the journal. A crash in between leaves a text whose history lacks
        the last part, as if somebody had edited it by hand; the same call again completes it.
        """
        if is_original(key):
            return await asyncio.to_thread(self._put_original, key, whole, instead_of)
        place = self._place(key)
        if whole is not None:
            await asyncio.to_thread(make_private_directory, place.lock_path.parent)
        async with self._locked(place):
            data, modified_at, _ = await asyncio.to_thread(_resting, place)
            if (data, modified_at is None) != (instead_of.data, instead_of.modified_at is None):
                return False
            await self._journal.settle({}, is_durable=True)  # what the evidence says, which goes now
            await asyncio.to_thread(_put, place, whole)
            entries = () if whole is None else whole.entries
            if not is_same_history(entries, await self._journal.whole_history(key)):
                await self._journal.replace_history(key, entries)
        return True

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _place(self, key: str) -> DocumentPlace:
        scope, store = scope_of_key(key)
        check_ids(scope)
        return locate_key(self._root, key, store)

    @asynccontextmanager
    async def _locked(self, place: DocumentPlace) -> AsyncGenerator[None]:
        """With the document's lock, if there is a directory that can have one."""
        if not place.lock_path.parent.is_dir():
            yield
            return
        async with FileLock(place.lock_path, self._lock_timeout_s):
            yield

    def _on_disk(self) -> set[str]:
        found = {place.key for place in documents(self._root) if place.path.exists()}
        for name in _ORIGINALS:
            found |= {str(path.relative_to(self._root)) for path in self._root.glob(f"users/*/{BEFORE}*/{name}")}
        return found

    def _original(self, key: str) -> WholeDocument:
        found = read_once(inside(self._root, key))
        if found is None:
            return WholeDocument(document=StoredDocument())
        return WholeDocument(
            document=StoredDocument(
                data=found.data,
                sha256=rules.version(found.data),
                modified_at=_time(found.signature.mtime_ns),
            )
        )

    def _put_original(self, key: str, whole: WholeDocument | None, instead_of: StoredDocument) -> bool:
        if self._original(key).document.data != instead_of.data:
            return False
        path = inside(self._root, key)
        if whole is None or not whole.is_there:
            path.unlink(missing_ok=True)
            return True
        make_private_directory(path.parent)
        _write(path, whole.document)
        return True


def _left(entries: Sequence[JournalEntry]) -> str | None:
    """The hash of the text as the newest entry left it; None where that is not known."""
    applied = [entry for entry in entries if entry.outcome == "applied" and entry.position is not None]
    return applied[-1].hash_after if applied else HASH_OF_NOTHING


def _resting(place: DocumentPlace) -> tuple[bytes, datetime | None, bytes]:
    """The text, its time and the archive."""
    resting = AtomicDocument(place.path).at_rest()
    archive = read_once(place.path.with_name(ARCHIVE_NAME))
    modified_at = None if resting.data is None else _time(resting.mtime_ns)
    return resting.data or b"", modified_at, archive.data[: resting.archive_bytes] if archive else b""


def _put(place: DocumentPlace, whole: WholeDocument | None) -> None:
    """Put text and archive in place, durably, without what lay beside the text that was there."""
    path, directory = place.path, place.path.parent
    archive = directory / ARCHIVE_NAME
    if not directory.is_dir():
        return
    for left in directory.glob(f".{path.name}.*"):
        left.unlink(missing_ok=True)
    if whole is None or not whole.is_there:
        path.unlink(missing_ok=True)
    else:
        _write(path, whole.document)
    if whole is not None and whole.archive:
        write_atomically(archive, whole.archive)
    else:
        archive.unlink(missing_ok=True)
    sync_directory(directory)


def _write(path: Path, document: StoredDocument) -> None:
    """Write a text with the time of its last change."""
    write_atomically(path, document.data)
    if document.modified_at is not None:
        at_ns = round(document.modified_at.timestamp() * 1e6) * 1000
        with contextlib.suppress(OSError):  # the text counts
            os.utime(path, ns=(at_ns, at_ns))


def _time(mtime_ns: int) -> datetime:
    return datetime.fromtimestamp(mtime_ns // 1000 / 1e6, UTC)
