"""A memory whose documents are kept by a store that changes one document at a time, with its history beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, runtime_checkable

from gateway.errors import MemoryConflict, MemoryUnavailable
from gateway.files.atomic import check_id
from gateway.memory import rules
from gateway.memory.draft import PendingChange, draft
from gateway.memory.history import History, difference
from gateway.memory.journal import HistorySource, JournalRequest, Key, request_to_put, requests_of
from gateway.memory.markdown import MAX_FILE_BYTES, all_ended
from gateway.memory.paths import (
    ARCHIVE_NAME,
    BEFORE,
    COMPLETE,
    STORES,
    check_ids,
    document_key,
    document_keys,
    is_original,
    key_of,
)
from gateway.memory.stored.change import Commit, Result, StoredDocument, work_out
from gateway.memory.stored.whole import CopiesMemory, WholeDocument, without_person
from gateway.memory.union import USER, Union
from gateway.protocols import (
    MemoryAction,
    MemoryChange,
    MemoryContext,
    MemoryDocument,
    MemoryOutcome,
    MemoryScope,
    MemoryStoreName,
    MemoryUpdate,
    SyncReport,
)

# A text that people let grow past its limit is still read, and cut with the next change; a much longer one is left.
TIMES_LONGER = 4
MAX_STORED_BYTES = TIMES_LONGER * MAX_FILE_BYTES
Work = Callable[[StoredDocument, Mapping[Key, MemoryOutcome]], Commit]


class DocumentStore(CopiesMemory, HistorySource, Protocol):
    """Where documents and their history are kept, by key: `users/<user id>/USER.md` and the like.

    Every method raises `MemoryUnavailable` when the store cannot be used now; then nothing was changed, or all of it.
    `keys` names those too of which only the history is left.
    """

    async def open(self) -> None:
        """Get ready; a server that is away is no error yet."""

    async def close(self) -> None:
        """Let go of everything."""

    async def check(self) -> Sequence[str]:
        """What is wrong with where the documents are; see `ChecksMemory`."""

    def location(self, key: str) -> str:
        """Where people find a document; no secret."""

    async def load(self, keys: Sequence[str]) -> Sequence[StoredDocument]:
        """The documents, in the order of the keys."""

    async def change(self, key: str, keys: Collection[Key], work: Work) -> Commit:
        """Write down what `work` makes of the document and of those of the keys that are settled.

        No other writer changes the document in between; `work` may be asked more than once.
        """


@runtime_checkable
class KnowsPending(Protocol):
    """A `DocumentStore` in the database in which turns commit what the memory shall become.

    It raises as `DocumentStore` does.
    """

    async def load_with_pending(self, keys: Sequence[str]) -> tuple[Sequence[StoredDocument], Sequence[JournalRequest]]:
        """The documents, and what was committed for them and is not in them yet, in the order of the commits."""

    async def forget_pending(self, user_ids: Collection[str]) -> None:
        """Let nothing come into a document any more that these users' turns have committed."""


def refuse_too_long(location: str, size: int, most: int) -> None:
    """A document that is too long to be used is left as it is.

    Raises:
        MemoryUnavailable: it is too long.
    """
    if size > most:
        raise MemoryUnavailable(
            f"{location} has {size:,} bytes and may have {most:,}, so it is left as it is; shorten it"
        )


class StoredMemory:
    """A `MemoryProvider`, `EditableMemory` and `HistoricMemory` over one `DocumentStore`."""

    def __init__(self, store: DocumentStore, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        """`max_bytes` is what a document may hold; older lines go to its archive."""
        self._store = store
        self._max_bytes = max_bytes
        self._history = History(store)
        self._union = Union(self, StoredOriginals(store))

    # ---- MemoryProvider ---------------------------------------------------------------------------------------------

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        check_ids(scope)
        named = document_keys(scope)
        found = await self._up_to_date([*named.values()])
        texts = {store: rules.show(document.data) for store, document in zip(named, found, strict=True)}
        user, project = (text if (text := texts.get(store, "")).strip() else None for store in STORES)
        if user is None and project is None:
            return None
        return MemoryContext(user_memory=user, project_memory=project)

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        check_ids(scope)
        requests = requests_of(
            scope, [replace(update, content=rules.clean(update.content)) for update in updates], datetime.now(UTC)
        )
        documents = {request.document for request in requests if request.document}
        earlier = await self._pending([*documents])
        known = {each.key for each in earlier}
        wanted = [*earlier, *(each for each in requests if each.key not in known)]
        made = await all_ended([self._apply(key, wanted) for key in documents])
        results = {key: result for each in made for key, result in each.items()}
        outcomes = [results.get(request.key, "no_match") for request in requests]
        return SyncReport(outcomes=tuple(outcome for outcome in outcomes if not isinstance(outcome, MemoryConflict)))

    # ---- EditableMemory ---------------------------------------------------------------------------------------------

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        key = key_of(scope, store)
        [found] = await self._store.load([key])
        return self._shown(key, found)

    async def write(
        self, scope: MemoryScope, store: MemoryStoreName, content: str, expected_version: str
    ) -> MemoryDocument:
        return await self.restore(scope, store, rules.encode(rules.clean(content)), expected_version)

    async def restore(
        self, scope: MemoryScope, store: MemoryStoreName, data: bytes, expected_version: str
    ) -> MemoryDocument:
        """Put bytes in place as they are, if it is still the version that was read; raises as `write` does."""
        return await self._put(scope, store, data, expected_version=expected_version)

    # ---- HistoricMemory ---------------------------------------------------------------------------------------------

    async def log(
        self,
        scope: MemoryScope | None = None,
        store: MemoryStoreName = "memory",
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[MemoryChange]:
        return await self._history.log(None if scope is None else key_of(scope, store), limit, before)

    async def why(self, scope: MemoryScope, line: str, store: MemoryStoreName | None = None) -> MemoryChange | None:
        return await self._history.why(scope, line, store)

    async def difference(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> str:
        key = document_key(scope, updates[0].store) if updates else None
        if key is None:
            return ""
        [found] = await self._store.load([key])
        pending = [PendingChange(request=request) for request in requests_of(scope, updates, datetime.now(UTC))]
        return difference(found.data, draft(found.data, pending, max_bytes=self._max_bytes).after)

    async def undo(self, scope: MemoryScope, change_id: int) -> MemoryDocument:
        entry = await self._history.undoable(scope, change_id)
        data, store = await self._history.text_before(entry), entry.request.store
        version = entry.hash_after or ""
        return await self._put(scope, store, data, expected_version=version, action="undo", refers_to=change_id)

    async def change(self, change_id: int) -> MemoryChange | None:
        return await self._history.entry(change_id)

    async def texts(self, change_id: int) -> tuple[bytes, bytes]:
        return await self._history.texts(change_id)

    # ---- OpensMemory, ChecksMemory, ErasableMemory, ExportableMemory ------------------------------------------------

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    async def check(self) -> Sequence[str]:
        return await self._store.check()

    async def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        if isinstance(self._store, KnowsPending):
            await self._store.forget_pending(user_ids)
        keys = await self._store.keys()
        own = [key for key in keys if _owner(key) in user_ids]
        links = {key.split("/")[2].removeprefix(BEFORE) for key in own if is_original(key)}
        for key in [*(key for key in keys if _owner(key) not in user_ids), *own]:  # their own last: they name the links
            while not await self._is_erased(key, user_ids, lines.get(key, ()), links):
                pass  # a turn of another person was faster

    async def export(self, user_ids: Collection[str]) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        for key in await self._store.keys():
            if _owner(key) in user_ids:
                whole = await self._store.whole(key)
                name = key.removeprefix("users/")
                found[name] = whole.document.data
                if whole.archive:
                    found[f"{name.rpartition('/')[0]}/{ARCHIVE_NAME}"] = whole.archive
        return found

    # ---- CopiesMemory -----------------------------------------------------------------------------------------------

    async def keys(self) -> Sequence[str]:
        return await self._store.keys()

    async def whole(self, key: str) -> WholeDocument:
        return await self._store.whole(key)

    async def numbers(self, count: int) -> int:
        return await self._store.numbers(count)

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        return await self._store.put_whole(key, whole, instead_of=instead_of)

    # ---- SupportsUnion ----------------------------------------------------------------------------------------------

    async def unite(self, link_id: str, survivor: str, absorbed: str) -> None:
        await self._union.unite(link_id, survivor, absorbed)

    async def part(self, link_id: str, survivor: str, absorbed: str, successors: Sequence[str]) -> bool:
        return await self._union.part(link_id, survivor, absorbed, successors)

    async def read_bytes(self, scope: MemoryScope, store: MemoryStoreName) -> bytes:
        """The document's own bytes, none where there is none."""
        [found] = await self._store.load([key_of(scope, store)])
        return found.data

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _up_to_date(self, keys: Sequence[str]) -> Sequence[StoredDocument]:
        """The documents with all that was committed for them, whichever process has left it."""
        if not isinstance(self._store, KnowsPending):
            return await self._store.load(keys)
        found, pending = await self._store.load_with_pending(keys)
        if not pending:
            return found
        await all_ended([self._apply(key, pending) for key in {each.document for each in pending}])
        return await self._store.load(keys)

    async def _pending(self, keys: Sequence[str]) -> Sequence[JournalRequest]:
        """What was committed for these documents and comes before anything new."""
        if not isinstance(self._store, KnowsPending) or not keys:
            return ()
        return (await self._store.load_with_pending(keys))[1]

    async def _apply(self, key: str, requests: Sequence[JournalRequest]) -> Mapping[Key, Result]:
        """Those of the requests that are for this document."""
        return await self._change(key, [PendingChange(request=each) for each in requests if each.document == key])

    async def _is_erased(
        self, key: str, user_ids: Collection[str], lines: Collection[str], links: Collection[str]
    ) -> bool:
        whole = await self._store.whole(key)
        cleaned = None if _owner(key) in user_ids else without_person(whole, user_ids, lines, links)
        return cleaned == whole or await self._store.put_whole(key, cleaned, instead_of=whole.document)

    async def _put(
        self,
        scope: MemoryScope,
        store: MemoryStoreName,
        data: bytes,
        *,
        expected_version: str,
        action: MemoryAction = "write",
        refers_to: int | None = None,
    ) -> MemoryDocument:
        key = key_of(scope, store)
        request = request_to_put(scope, store, key, action, refers_to)
        pending = [PendingChange(request=request, data=data, expected_version=expected_version)]
        results = await self._change(key, pending)
        result = results[request.key]
        if isinstance(result, MemoryConflict):
            raise result
        [found] = await self._store.load([key])
        return self._shown(key, replace(found, data=data))

    async def _change(self, key: str, pending: Sequence[PendingChange]) -> Mapping[Key, Result]:
        work = partial(work_out, pending=pending, max_bytes=self._max_bytes, at=datetime.now(UTC))
        commit = await self._store.change(key, [each.request.key for each in pending], work)
        return commit.results

    def _shown(self, key: str, found: StoredDocument) -> MemoryDocument:
        return MemoryDocument(
            content=rules.show(found.data),
            location=self._store.location(key),
            modified_at=found.modified_at,
            version=rules.version(found.data),
        )


def _owner(key: str) -> str | None:
    """The user whose document it is; None for one that others read, too."""
    first, _, rest = key.partition("/")
    return rest.partition("/")[0] if first == "users" else None


class StoredOriginals:
    """The `Originals` of a link, as documents of their own: `users/<id>/before-<link>/USER.md`."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    async def keep(self, link_id: str, user_id: str) -> None:
        """See `Originals.keep`."""
        place, done = _originals(link_id, user_id), f"{_originals(link_id, user_id)}{COMPLETE}"
        names = await self._names(f"users/{user_id}/")
        if f"{BEFORE}{link_id}/{COMPLETE}" in names:
            return
        now = datetime.now(UTC)
        for name in [name for name in names if not name.startswith(BEFORE)]:
            [found] = await self._store.load([f"users/{user_id}/{name}"])
            await self._put(f"{place}{name}", StoredDocument(data=found.data, modified_at=now))
        await self._put(done, StoredDocument(modified_at=now))

    async def names(self, link_id: str, user_id: str) -> Sequence[str]:
        """See `Originals.names`."""
        names = await self._names(_originals(link_id, user_id))
        return sorted((name for name in names if name != COMPLETE), key=lambda name: (name != USER, name))

    async def read(self, link_id: str, user_id: str, name: str) -> bytes:
        """See `Originals.read`."""
        [found] = await self._store.load([f"{_originals(link_id, user_id)}{name}"])
        return found.data

    async def _names(self, prefix: str) -> list[str]:
        return [key.removeprefix(prefix) for key in await self._store.keys() if key.startswith(prefix)]

    async def _put(self, key: str, document: StoredDocument) -> None:
        whole = WholeDocument(document=replace(document, sha256=rules.version(document.data)))
        [now] = await self._store.load([key])
        while now.data != document.data or now.modified_at is None:
            await self._store.put_whole(key, whole, instead_of=now)
            [now] = await self._store.load([key])


def _originals(link_id: str, user_id: str) -> str:
    return f"users/{check_id('user', user_id)}/{BEFORE}{check_id('link', link_id)}/"
