"""Memory in two Markdown files that people can read, edit and keep under version control."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.errors import FileError, MemoryConflict, StoreError
from gateway.files.atomic import FileSnapshot, Signature, is_id, read_settled, sign
from gateway.memory import rules
from gateway.memory.atomic_document import Step, no_step
from gateway.memory.draft import PendingChange, draft
from gateway.memory.history import History, difference
from gateway.memory.journal import HASH_OF_NOTHING, JournalRequest, MemoryJournal, request_to_put, requests_of
from gateway.memory.markdown_erasing import lines_taken_out, remove_user, visible_files
from gateway.memory.markdown_originals import FileOriginals
from gateway.memory.paths import STORES, DocumentPlace, check_ids, document_key, is_document, key_of, locate, locate_key
from gateway.memory.read_cache import CachedText, ReadCache
from gateway.memory.stored.change import StoredDocument
from gateway.memory.stored.whole import WholeDocument
from gateway.memory.union import Union
from gateway.memory.whole_files import WholeFiles
from gateway.memory.writer import DocumentWriter
from gateway.protocols import (
    MemoryAction,
    MemoryChange,
    MemoryContext,
    MemoryDocument,
    MemoryScope,
    MemoryStoreName,
    MemoryUpdate,
    SyncReport,
    UpdateOutcome,
)

T = TypeVar("T")
_log = structlog.get_logger(__name__)

MAX_FILE_BYTES = 512 * 1024
LOCK_TIMEOUT_S = 10.0
_MOST_WRITERS = 1000
_LOOKED_BACK = 500


class MarkdownFileMemoryProvider:
    """A `MemoryProvider` below a data directory, with all protocols but a search."""

    def __init__(
        self,
        root: Path,
        journal: MemoryJournal,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        on_step: Step = no_step,
    ) -> None:
        """Use the files below `root`, the data directory.

        Args:
            max_file_bytes: what a file may hold; older lines go to the archive next to it.
            lock_timeout_s: how long a write waits for another process.
            on_step: told the name of every step of a write, from whichever thread makes it.
        """
        self._root = root.resolve()
        self._journal = journal
        self._history = History(journal)
        self._union = Union(self, FileOriginals(self._root))
        self._max_bytes = max_file_bytes
        self._lock_timeout_s = lock_timeout_s
        self._step = on_step
        self._writers: dict[str, DocumentWriter] = {}
        self._united: dict[str, Signature] = {}
        self._texts = ReadCache(self._root)
        self._whole = WholeFiles(self._root, journal, lock_timeout_s=lock_timeout_s)

    @property
    def root(self) -> Path:
        """The data directory, links resolved."""
        return self._root

    # ---- MemoryProvider ---------------------------------------------------------------------------------------------

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        """Read both files as they are now; None when both are blank or absent.

        One that cannot be read counts as blank, and the log says so.

        Raises:
            FileError: neither can be read.
        """
        check_ids(scope)
        known = self._known(scope)
        if known is None:
            await self._bring_back(scope)
        user, project = await asyncio.to_thread(self._read_both, scope) if known is None else known
        if user is None and project is None:
            return None
        return MemoryContext(user_memory=user, project_memory=project)

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        """Apply the updates durably, in order, each turn id and index once; see `MemoryProvider`."""
        check_ids(scope)
        if not updates:
            return SyncReport(outcomes=())
        requests = _cleaned_requests(scope, updates)
        documents = {(request.document, request.store) for request in requests}
        nowhere = {index for document, _ in documents for index in self._without_effect(document, requests)}
        if len(documents) == 1 and not nowhere:
            [(document, store)] = documents
            outcomes = await self._apply(document, store, scope, [PendingChange(request=each) for each in requests])
            return SyncReport(outcomes=tuple(outcomes.values()))
        # A turn's updates are noted together; a writer would note those of its own document only.
        work = [self._begin(requests, nowhere)]
        for document, store in documents:
            own = [each for each in requests if each.document == document and each.index not in nowhere]
            mine = [PendingChange(request=each) for each in own]
            if mine:
                work.append(self._apply(document, store, scope, mine))
        noted, *made = await all_ended(work)
        outcomes = {index: outcome for each in (*made, noted) for index, outcome in each.items()}
        return SyncReport(outcomes=tuple(outcomes[index] for index in range(len(updates))))

    # ---- EditableMemory ---------------------------------------------------------------------------------------------

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        """See `EditableMemory.read`; an `InvalidId` where the store needs a user and there is none."""
        place = self._place(scope, store)
        snapshot = await asyncio.to_thread(self._snapshot, place)
        if snapshot is None:
            return MemoryDocument(content="", location=str(place.path), modified_at=None, version=HASH_OF_NOTHING)
        return _document(place, snapshot.data, snapshot.signature)

    async def write(
        self, scope: MemoryScope, store: MemoryStoreName, content: str, expected_version: str
    ) -> MemoryDocument:
        r"""Replace the text as given (line ends become `\n`), if it is still the version that was read.

        Raises:
            MemoryConflict: it is not; carries both texts.
            InvalidId: an id is malformed, or the store needs a user and there is none.
            FileError: not written now.
        """
        place = self._place(scope, store)
        data = rules.encode(rules.clean(content))
        return await self._put(place, scope, data, expected_version=expected_version, action="write")

    def file_of(self, scope: MemoryScope, store: MemoryStoreName) -> Path:
        """See `KeepsFiles.file_of`."""
        return self._place(scope, store).path

    async def read_bytes(self, scope: MemoryScope, store: MemoryStoreName) -> bytes:
        """The file's own bytes, none where there is no file; for a later `restore`."""
        snapshot = await asyncio.to_thread(self._snapshot, self._place(scope, store))
        return b"" if snapshot is None else snapshot.data

    async def restore(
        self, scope: MemoryScope, store: MemoryStoreName, data: bytes, expected_version: str
    ) -> MemoryDocument:
        """Put bytes in place as they are, if it is still the version that was read; raises as `write` does."""
        place = self._place(scope, store)
        return await self._put(place, scope, data, expected_version=expected_version, action="write")

    async def take_edit(self, scope: MemoryScope, store: MemoryStoreName, data: bytes, expected_version: str) -> None:
        """Put in place what a person saved elsewhere, if the file still has that version; raises as `write` does."""
        await self._put(self._place(scope, store), scope, data, expected_version=expected_version, action="edit")

    async def versions_since(self, key: str, version: str) -> Sequence[tuple[str, str]]:
        """The turn ids and versions of a document's newest changes, back to the one that left this version."""
        entries = await self._journal.entries(key, _LOOKED_BACK)
        changes = [(one.request.scope.turn_id, one.hash_after) for one in entries if one.hash_after is not None]
        return list(takewhile(lambda change: change[1] != version, changes))

    # ---- HistoricMemory ---------------------------------------------------------------------------------------------

    async def log(
        self,
        scope: MemoryScope | None = None,
        store: MemoryStoreName = "memory",
        limit: int = 50,
        before: int | None = None,
    ) -> list[MemoryChange]:
        """The newest changes of a document, newest first, after entry `before`; without a scope, of all documents."""
        return await self._history.log(None if scope is None else self._place(scope, store).key, limit, before)

    async def change(self, change_id: int) -> MemoryChange | None:
        """See `HistoricMemory.change`."""
        return await self._history.entry(change_id)

    async def texts(self, change_id: int) -> tuple[bytes, bytes]:
        """See `HistoricMemory.texts`."""
        return await self._history.texts(change_id)

    async def why(self, scope: MemoryScope, line: str, store: MemoryStoreName | None = None) -> MemoryChange | None:
        """See `HistoricMemory.why`."""
        return await self._history.why(scope, line, store)

    async def difference(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> str:
        """What updates of one store would change in its text now, as a unified diff; empty for nothing.

        Raises:
            InvalidId: an id is malformed.
            FileError: the file cannot be read now.
        """
        place = locate(self._root, scope, updates[0].store) if updates else None
        if place is None:
            return ""
        snapshot = await asyncio.to_thread(self._snapshot, place)
        data = b"" if snapshot is None else snapshot.data
        pending = [PendingChange(request=request) for request in _cleaned_requests(scope, updates)]
        return difference(data, draft(data, pending, max_bytes=self._max_bytes).after)

    async def undo(self, scope: MemoryScope, change_id: int) -> MemoryDocument:
        """See `HistoricMemory.undo`."""
        entry = await self._history.undoable(scope, change_id)
        place = self._place(scope, entry.request.store)
        data = await self._history.text_before(entry)
        version = entry.hash_after or ""
        return await self._put(place, scope, data, expected_version=version, action="undo", refers_to=change_id)

    # ---- ErasableMemory, ExportableMemory, SupportsUnion ------------------------------------------------------------

    async def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        """See `ErasableMemory.erase`; the history goes last, because it says what is still to be done."""
        known = [each for each in user_ids if is_id(each)]  # nothing was ever kept for another
        own = tuple(f"users/{user_id}/" for user_id in known)
        for key, writer in tuple(self._writers.items()):
            if key in lines or key.startswith(own):
                await writer.close()  # it may still wait for a lock, on behalf of a turn that was given up
        for document, added in lines.items():
            if added and is_document(document):
                async with self.lines_taken_out(known, document, added):
                    pass
        for user_id in known:
            await asyncio.to_thread(remove_user, self._root, user_id)
        await self._journal.erase(known)

    @asynccontextmanager
    async def lines_taken_out(
        self, user_ids: Collection[str], document: str, lines: Collection[str]
    ) -> AsyncGenerator[None]:
        """Take a person's lines out of a document; its history forgets them when the block has ended well."""
        pending = await self._journal.pending(document)
        async with lines_taken_out(self._root, document, lines, pending=pending, lock_timeout_s=self._lock_timeout_s):
            yield
            await self._journal.forget(user_ids, document, lines)

    async def export(self, user_ids: Collection[str]) -> Mapping[str, bytes]:
        """Every file that is one of these users' own, as it is."""
        return await asyncio.to_thread(
            lambda: dict(each for user_id in user_ids for each in visible_files(self._root, user_id))
        )

    async def unite(self, link_id: str, survivor: str, absorbed: str) -> None:
        """See `SupportsUnion.unite`."""
        await self._union.unite(link_id, survivor, absorbed)

    async def part(self, link_id: str, survivor: str, absorbed: str, successors: Sequence[str]) -> bool:
        """See `SupportsUnion.part`."""
        return await self._union.part(link_id, survivor, absorbed, successors)

    # ---- CopiesMemory -----------------------------------------------------------------------------------------------

    async def keys(self) -> Sequence[str]:
        """See `ListsDocuments.keys`."""
        return await self._whole.keys()

    async def whole(self, key: str) -> WholeDocument:
        """See `CopiesMemory.whole`."""
        return await self._whole.whole(key)

    async def numbers(self, count: int) -> int:
        """See `CopiesMemory.numbers`."""
        return await self._whole.numbers(count)

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        """See `CopiesMemory.put_whole`."""
        return await self._whole.put_whole(key, whole, instead_of=instead_of)

    # ---- and the rest -----------------------------------------------------------------------------------------------

    async def replay(self) -> int:
        """Bring in what was asked before a crash and is not in the files; returns the number of turns."""
        turns = await self._journal.unsettled()
        for scope, updates in turns:
            await self.sync(scope, updates)
        return len(turns)

    async def close(self) -> None:
        """Finish what was asked. The journal stays open: it is not ours."""
        for writer in list(self._writers.values()):
            await writer.close()

    async def _bring_back(self, scope: MemoryScope) -> None:
        """Unite a text that was saved by hand with what its editor had not read; once for each save."""
        for store in STORES:
            key = document_key(scope, store)
            signature = None if key is None else await asyncio.to_thread(self._signature, key, store)
            if key is None or signature is None or signature == self._united.get(key):
                continue
            writer = self._writer(key, store)
            try:
                if writer.trusted != signature:
                    await writer.apply(scope, [])
            except (FileError, StoreError) as error:  # the text as it is must do, and the next write unites it
                _log.warning("memory_not_united", store=store, error=str(error))
            if len(self._united) >= _MOST_WRITERS:
                self._united.clear()
            self._united[key] = signature

    def _signature(self, key: str, store: MemoryStoreName) -> Signature | None:
        try:
            path = locate_key(self._root, key, store).path
            return sign(path) if path.is_file() else None
        except (FileError, OSError):  # the next read says why
            return None

    async def _begin(self, requests: Sequence[JournalRequest], nowhere: Collection[int]) -> dict[int, UpdateOutcome]:
        """Note the requests, and settle those that change nothing; returns what is known of them by that alone."""
        settled = await self._journal.begin(requests)
        nothing = [request for request in requests if request.index in nowhere]
        if nothing:
            await self._journal.settle({request.key: "no_match" for request in nothing})
        outcomes: dict[int, UpdateOutcome] = {request.index: "no_match" for request in nothing}
        outcomes.update({request.index: "replayed" for request in requests if request.key in settled})
        return outcomes

    async def _apply(
        self, document: str, store: MemoryStoreName, scope: MemoryScope, pending: Sequence[PendingChange]
    ) -> dict[int, UpdateOutcome]:
        results = await self._writer(document, store).apply(scope, pending)
        outcomes: dict[int, UpdateOutcome] = {}
        for each, result in zip(pending, results, strict=True):
            if isinstance(result, MemoryConflict):
                raise result
            outcomes[each.request.index] = result
        return outcomes

    async def _put(
        self,
        place: DocumentPlace,
        scope: MemoryScope,
        data: bytes,
        *,
        expected_version: str,
        action: MemoryAction,
        refers_to: int | None = None,
    ) -> MemoryDocument:
        request = request_to_put(scope, place.store, place.key, action, refers_to)
        each = PendingChange(request=request, data=data, expected_version=expected_version)
        await self._apply(place.key, place.store, request.scope, [each])
        snapshot = await asyncio.to_thread(self._snapshot, place)
        return _document(place, data, snapshot.signature if snapshot else None)

    def _place(self, scope: MemoryScope, store: MemoryStoreName) -> DocumentPlace:
        return locate_key(self._root, key_of(scope, store), store)

    def _writer(self, key: str, store: MemoryStoreName) -> DocumentWriter:
        writer = self._writers.get(key)
        if writer is None:
            if len(self._writers) >= _MOST_WRITERS:
                self._writers = {path: each for path, each in self._writers.items() if not each.is_idle}
            writer = self._writers[key] = DocumentWriter(
                partial(locate_key, self._root, key, store),
                self._journal,
                max_bytes=self._max_bytes,
                lock_timeout_s=self._lock_timeout_s,
                on_step=self._step,
            )
        return writer

    def _without_effect(self, document: str, requests: Sequence[JournalRequest]) -> Iterator[int]:
        """The requests of a document that can change nothing, in order: for them no lock and no directory is made."""
        is_there = False
        for request in requests:
            if request.document != document:
                continue
            has_effect = bool(document) and (request.action == "replace" or bool(request.content.strip()))
            if has_effect and request.action == "remove":
                has_effect = is_there or os.path.lexists(f"{self._root}{os.sep}{document}")
            is_there = is_there or has_effect
            if not has_effect:
                yield request.index

    def _known(self, scope: MemoryScope) -> tuple[str | None, str | None] | None:
        """Both texts where both files are as they were read last, None where one must be read."""
        texts = []
        for store in STORES:
            key = document_key(scope, store)
            kept = CachedText(None, None) if key is None else self._texts.look(key)
            if kept is None:
                return None
            texts.append(kept.text)
        return texts[0], texts[1]

    def _read_both(self, scope: MemoryScope) -> tuple[str | None, str | None]:
        """Both texts; one that cannot be read does not hide the other.

        Raises:
            FileError: neither can be read.
        """
        texts: dict[MemoryStoreName, str | None] = {}
        failures: list[FileError] = []
        for store in STORES:
            place = locate(self._root, scope, store)
            try:
                texts[store] = (
                    None if place is None else self._texts.read(place.key, place.path, partial(self._shown, place))
                )
            except FileError as error:
                _log.error("memory_file_unreadable", store=store, error=str(error))
                failures.append(error)
                texts[store] = None
        if len(failures) == len(STORES):
            raise failures[0]
        return texts["user"], texts["memory"]

    def _shown(self, place: DocumentPlace) -> str | None:
        snapshot = self._snapshot(place)
        text = "" if snapshot is None else rules.show(snapshot.data)
        return text if text.strip() else None

    def _snapshot(self, place: DocumentPlace) -> FileSnapshot | None:
        writer = self._writers.get(place.key)
        return read_settled(place.path, trusted=writer.trusted if writer else None)


def _cleaned_requests(scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> list[JournalRequest]:
    cleaned = [replace(update, content=rules.clean(update.content)) for update in updates]
    return requests_of(scope, cleaned, datetime.now(UTC))


async def all_ended(work: Sequence[Awaitable[T]]) -> list[T]:
    """Wait for all, and only then raise what the first to fail raised."""
    made: list[T] = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        made.append(result)
    return made


def _document(place: DocumentPlace, data: bytes, signature: Signature | None) -> MemoryDocument:
    modified_at = None if signature is None else datetime.fromtimestamp(signature.mtime_ns / 1e9, UTC)
    return MemoryDocument(
        content=rules.show(data), location=str(place.path), modified_at=modified_at, version=rules.version(data)
    )
