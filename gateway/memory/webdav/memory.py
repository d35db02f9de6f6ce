"""The Markdown memory with a copy of each document on a server: what changes here goes there, and the other way round.

The files in the data directory are the memory, with their locks, journal and history. Before a turn the server is asked
whether somebody edited a document there; such an edit is merged like any other by hand. What changes here is sent
after it is durable. The three texts of a merge (what the server had, what it has, what is here) are all on the disk,
so a crash between any two steps loses nothing, and a server that is away only makes the copy late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import structlog

from gateway.errors import FileError, MemoryConflict, MemoryUnavailable, StoreError
from gateway.files.atomic import is_id
from gateway.files.locks import FileLock
from gateway.memory import rules
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.memory.markdown_erasing import remove_user
from gateway.memory.markdown_originals import FileOriginals
from gateway.memory.merging import merge_for_mine
from gateway.memory.paths import STORES, check_ids, document_key, documents, is_document, is_original, scope_of_key
from gateway.memory.stored.change import StoredDocument
from gateway.memory.stored.whole import WholeDocument
from gateway.memory.union import USER, Union
from gateway.memory.webdav.copies import Copies
from gateway.memory.webdav.cut_uploads import base_of
from gateway.memory.webdav.known import KnownDocuments
from gateway.memory.webdav.remote_file import RemoteFile
from gateway.memory.webdav.server import FileUnavailable, WebdavServer
from gateway.protocols import (
    MemoryChange,
    MemoryContext,
    MemoryDocument,
    MemoryScope,
    MemoryStoreName,
    MemoryUpdate,
    SyncReport,
)
from gateway.runtime.failpoints import reach

_log = structlog.get_logger(__name__)
_LOCK_TIMEOUT_S = 60.0
_TRIES = 100
_AT_ONCE = 8
_MOST_TOLD = 5
_LOOK_AGAIN_S = 0.1
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
# An export, or a link, waits longer than a turn for what was edited on the server.
_NEWS_OF_PERSON_S = 10.0


class _Overtaken(Exception):
    """Somebody has edited the document on the server meanwhile."""


class WebdavMemory:
    """A `MemoryProvider` on Markdown files and a server, with all protocols but a search."""

    def __init__(
        self, files: MarkdownFileMemoryProvider, server: WebdavServer, *, copies: Path, news_s: float = 0.3
    ) -> None:
        """Nothing is asked yet.

        Args:
            files: the memory here.
            server: the folder there.
            copies: a directory for what the server had last.
            news_s: how long a turn waits for the server; then it has the text that is here.
        """
        self._files = files
        self._server = server
        self._copies = Copies(copies)
        self._known = KnownDocuments(files.root)
        self._union = Union(self, FileOriginals(files.root))
        self._news_s = news_s
        self._exchanges: dict[str, asyncio.Task[None]] = {}
        self._unsent: dict[str, None] = {}  # what failed last comes last
        self._wait_s = 0.0
        self._sending: asyncio.Task[None] | None = None
        self._troubles: dict[str, str] = {}  # of single documents
        self.problem: str | None = None

    async def open(self) -> None:
        """Send what an earlier process could not; the server may be away."""
        keys = await asyncio.to_thread(lambda: [place.key for place in documents(self._files.root)])
        self._unsent.update(dict.fromkeys(keys))
        self._send_late()

    async def close(self) -> None:
        """End what is under way; what the server lacks is sent at the next start."""
        running = [*self._exchanges.values(), *([self._sending] if self._sending else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._files.close()
        await self._server.close()

    async def check(self) -> Sequence[str]:
        """See `ChecksMemory`."""
        try:
            await self._server.check()
        except MemoryUnavailable as error:
            return [str(error)]
        return ()

    # ---- MemoryProvider ---------------------------------------------------------------------------------------------

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        check_ids(scope)
        await self._news(scope, STORES)
        return await self._files.prefetch(scope)

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        report = await self._files.sync(scope, updates)
        self._send(scope, {update.store for update in updates})
        return report

    # ---- EditableMemory ---------------------------------------------------------------------------------------------

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        check_ids(scope)
        await self._news(scope, (store,))
        return self._placed(scope, store, await self._files.read(scope, store))

    async def write(
        self, scope: MemoryScope, store: MemoryStoreName, content: str, expected_version: str
    ) -> MemoryDocument:
        document = await self._files.write(scope, store, content, expected_version)
        self._send(scope, (store,))
        return self._placed(scope, store, document)

    # ---- HistoricMemory ---------------------------------------------------------------------------------------------

    async def log(
        self,
        scope: MemoryScope | None = None,
        store: MemoryStoreName = "memory",
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[MemoryChange]:
        return await self._files.log(scope, store, limit, before)

    async def change(self, change_id: int) -> MemoryChange | None:
        return await self._files.change(change_id)

    async def texts(self, change_id: int) -> tuple[bytes, bytes]:
        return await self._files.texts(change_id)

    async def why(self, scope: MemoryScope, line: str, store: MemoryStoreName | None = None) -> MemoryChange | None:
        return await self._files.why(scope, line, store)

    async def difference(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> str:
        return await self._files.difference(scope, updates)

    async def undo(self, scope: MemoryScope, change_id: int) -> MemoryDocument:
        document = await self._files.undo(scope, change_id)
        self._send(scope, STORES)
        return document

    async def restore(
        self, scope: MemoryScope, store: MemoryStoreName, data: bytes, expected_version: str
    ) -> MemoryDocument:
        document = await self._files.restore(scope, store, data, expected_version)
        self._send(scope, (store,))
        return self._placed(scope, store, document)

    # ---- ErasableMemory, ExportableMemory ---------------------------------------------------------------------------

    async def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        """See `ErasableMemory.erase`; the server first, and the history last, because it says what is still to do."""
        for key, added in lines.items():
            if added and is_document(key):
                await self._erase_lines(user_ids, key, added)
        for user_id in user_ids:
            if is_id(user_id):
                await self._erase_user(user_id)
        await self._files.erase(user_ids, lines)

    async def export(self, user_ids: Collection[str]) -> Mapping[str, bytes]:
        """Every file that is one of these users' own, with what was edited on the server, if it answers."""
        await self._news_of_people(user_ids)
        return await self._files.export(user_ids)

    async def _erase_lines(self, user_ids: Collection[str], key: str, lines: Collection[str]) -> None:
        """Take lines out of a document here and there; an edit of others that comes meanwhile stays."""
        async with FileLock(await asyncio.to_thread(self._copies.lock_path, key), _LOCK_TIMEOUT_S):
            for _ in range(_TRIES):
                base = await self._taken(key, await asyncio.to_thread(self._copies.read, key))
                with suppress(_Overtaken):
                    async with self._files.lines_taken_out(user_ids, key, lines):
                        reach("memory.webdav.lines_erased")
                        if not await self._is_sent(key, base):
                            raise _Overtaken
                    return
        raise FileError(f"{self._server.location(key)} changes faster than it can be written")

    async def _erase_user(self, user_id: str) -> None:
        """Delete a person's own documents there and here, while no exchange of them runs."""
        keys = await asyncio.to_thread(self._keys_of, [user_id])
        self._forget(keys)
        running = [self._exchanges[key] for key in keys if key in self._exchanges]
        if running:
            await asyncio.wait(running)
        async with AsyncExitStack() as locks:
            for key in sorted(keys):
                path = await asyncio.to_thread(self._copies.lock_path, key)
                await locks.enter_async_context(FileLock(path, _LOCK_TIMEOUT_S))
            await self._server.delete(f"users/{user_id}/")
            reach("memory.webdav.user_erased")
            await asyncio.to_thread(remove_user, self._files.root, user_id)
            await asyncio.to_thread(self._copies.remove, user_id)
            self._forget(keys)

    def _forget(self, keys: Collection[str]) -> None:
        for key in keys:
            self._unsent.pop(key, None)
            self._troubles.pop(key, None)

    # ---- SupportsUnion ----------------------------------------------------------------------------------------------

    async def unite(self, link_id: str, survivor: str, absorbed: str) -> None:
        await self._news_of_people([survivor, absorbed])
        await self._union.unite(link_id, survivor, absorbed)

    async def part(self, link_id: str, survivor: str, absorbed: str, successors: Sequence[str]) -> bool:
        await self._news_of_people(successors)
        return await self._union.part(link_id, survivor, absorbed, successors)

    async def read_bytes(self, scope: MemoryScope, store: MemoryStoreName) -> bytes:
        """The bytes of the document here, none where there is none."""
        return await self._files.read_bytes(scope, store)

    # ---- CopiesMemory -----------------------------------------------------------------------------------------------

    async def keys(self) -> Sequence[str]:
        known = await asyncio.to_thread(self._copies.keys)  # the journal knows those of other files, too
        return [key for key in await self._files.keys() if key in known or is_original(key)]

    async def whole(self, key: str) -> WholeDocument:
        await self._met(key)
        return await self._files.whole(key)

    async def numbers(self, count: int) -> int:
        return await self._files.numbers(count)

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        is_put = await self._files.put_whole(key, whole, instead_of=instead_of)
        await self._met(key)
        return is_put

    async def _met(self, key: str) -> None:
        """Have the server and the file agree; originals of links are kept here alone."""
        if is_original(key):
            return
        await asyncio.wait([self._exchange(key)])
        problem = self._troubles.get(key) or self.problem
        if problem is not None:
            raise MemoryUnavailable(problem)

    # ---- with the server --------------------------------------------------------------------------------------------

    @property
    def problems(self) -> Sequence[str]:
        """See `ReportsProblems`: turns have the text that is here meanwhile."""
        return (*(() if self.problem is None else (self.problem,)), *islice(self._troubles.values(), _MOST_TOLD))

    @property
    def late(self) -> int:
        """Documents of which the server may lack the last text."""
        return len(self._unsent)

    async def settle(self) -> None:
        """Wait until every exchange has ended, but for those that failed and are tried again."""
        while running := [*self._exchanges.values(), *([self._sending] if self._sending and not self.problems else [])]:
            await asyncio.wait(running, timeout=_LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED)

    async def _news(self, scope: MemoryScope, stores: Collection[MemoryStoreName]) -> None:
        """Bring in what was edited on the server, if it answers in time; an exchange that is late goes on."""
        keys = [key for store in stores if (key := document_key(scope, store)) is not None]
        await self._news_of(keys, self._news_s)

    async def _news_of_people(self, user_ids: Collection[str]) -> None:
        await self._news_of(await asyncio.to_thread(self._keys_of, user_ids), _NEWS_OF_PERSON_S)

    async def _news_of(self, keys: Collection[str], timeout_s: float) -> None:
        if keys and self.problem is None:  # else it is known to be away, and asked again in the background
            await asyncio.wait([self._exchange(key) for key in keys], timeout=timeout_s)

    def _may_ask(self, key: str) -> bool:
        """Whether nothing is known to be wrong; else it is asked again in the background."""
        return self.problem is None and key not in self._troubles

    def _keys_of(self, user_ids: Collection[str]) -> set[str]:
        """The documents of these users that are here, or that the server had, and the one that everybody has."""
        own = tuple(f"users/{user_id}/" for user_id in user_ids if is_id(user_id))
        known = {*self._copies.keys(), *(place.key for place in documents(self._files.root))}
        return {f"{place}{USER}" for place in own} | {key for key in known if key.startswith(own)}

    def _send(self, scope: MemoryScope, stores: Collection[MemoryStoreName]) -> None:
        """Have the server get what is here, soon."""
        for store in stores:
            key = document_key(scope, store)
            if key is not None:
                self._unsent[key] = None
                if self._may_ask(key):
                    self._exchange(key)

    def _exchange(self, key: str) -> asyncio.Task[None]:
        """Bring a document here and its copy there together; one that is under way looks again at its end."""
        task = self._exchanges.get(key)
        if task is None:
            task = self._exchanges[key] = asyncio.create_task(self._exchanged(key), name="memory copy")
            task.add_done_callback(lambda done: self._exchanges.get(key) is done and self._exchanges.pop(key))
        return task

    async def _exchanged(self, key: str) -> None:
        try:
            is_together = await self._is_still_together(key)
            while not is_together:
                lock_path = await asyncio.to_thread(self._copies.lock_path, key)
                async with FileLock(lock_path, _LOCK_TIMEOUT_S):
                    await self._bring_together(key)
                is_together = key not in self._unsent  # it may have changed while the lock was let go
            if self.problem is not None:
                await self._server.check_folder()  # all that it said may be that there is no such file
            self.problem, self._wait_s = None, 0.0
            self._troubles.pop(key, None)
            if key in self._unsent:
                self._send_late()
        except (MemoryUnavailable, FileError, StoreError, OSError) as error:
            self._put_off(key, error)
        except BaseException:
            self._unsent[key] = None
            raise
        finally:
            self._exchanges.pop(key, None)  # at once: what changes from here on needs another one

    async def _bring_together(self, key: str) -> None:
        for _ in range(_TRIES):
            is_sent = key in self._unsent and self._may_ask(key)  # else the server itself must say that all is well
            self._unsent.pop(key, None)
            if await self._is_together(key, is_sent=is_sent) and key not in self._unsent:
                return
        raise FileError(f"{self._server.location(key)} changes faster than it can be written")

    async def _is_still_together(self, key: str) -> bool:
        """Whether nothing has changed since both sides were the same: one question, and no lock."""
        if key in self._unsent or not self._known.has(key):
            return False
        there = await self._server.get(key, self._known.etag(key))
        return key not in self._unsent and self._known.is_same(key, there)

    async def _is_together(self, key: str, *, is_sent: bool) -> bool:
        """One try: what the server has is merged in, and it gets what it lacks."""
        base = await asyncio.to_thread(self._copies.read, key)
        if not is_sent or await asyncio.to_thread(self._copies.upload, key, base) is not None:
            base = await self._taken(key, base)  # else `put` finds out whether the server still has `base`
        if await self._is_sent(key, base):
            return True
        await self._taken(key, await asyncio.to_thread(self._copies.read, key))
        self._unsent[key] = None
        return False

    async def _is_sent(self, key: str, base: RemoteFile) -> bool:
        """Whether the server has what is here; it gets that if it still has `base`."""
        stamp = self._known.stamp(key)
        scope, store = scope_of_key(key)
        here = await self._files.read_bytes(scope, store)
        if here == base.data:
            await asyncio.to_thread(self._copies.end_upload, key)
            self._known.note(key, stamp, base)
            return True
        await asyncio.to_thread(self._copies.begin_upload, key, base, here)
        reach("memory.webdav.sending")
        there = await self._server.put(key, here, base)
        reach("memory.webdav.put")
        if there is None:
            await asyncio.to_thread(self._copies.end_upload, key)
            return False
        is_sent = there.data == here  # else another was faster than the question for the new ETag
        await asyncio.to_thread(self._copies.write, key, there if is_sent else RemoteFile(here, base.etag))
        reach("memory.webdav.noted")
        return is_sent

    async def _taken(self, key: str, base: RemoteFile) -> RemoteFile:
        """Merge what was edited on the server; returns what it has now, which is the base from here on."""
        there = await self._server.get(key, base.etag)
        if there is not None and there != base:
            there = await self._server.settled(key, there)
        if there is None or there == base:
            return base
        if there == RemoteFile():
            await self._server.check_folder()
        reach("memory.webdav.asked")
        scope, store = scope_of_key(key)
        scope = replace(scope, turn_id=_turn_of(there))
        if await self._is_known_here(key, base, there):
            await asyncio.to_thread(self._copies.write, key, there)
            return there
        upload = await asyncio.to_thread(self._copies.upload, key, base)
        had = base.data if upload is None else await asyncio.to_thread(base_of, base.data, upload, there.data)
        for _ in range(_TRIES):
            here = await self._files.read_bytes(scope, store)
            merged = await asyncio.to_thread(_merged, had, here, there.data)
            try:
                if merged != here:
                    await self._files.take_edit(scope, store, merged, rules.version(here))
            except MemoryConflict:  # a turn was faster
                continue
            reach("memory.webdav.merged")
            await asyncio.to_thread(self._copies.write, key, there)
            reach("memory.webdav.taken")
            return there
        raise FileError(f"{key} changes faster than an edit on the server can be merged")

    async def _is_known_here(self, key: str, base: RemoteFile, there: RemoteFile) -> bool:
        """Whether a process that died wrote this there, or took it in here, and had no time to note it."""
        version, turn = rules.version(there.data), _turn_of(there)
        changes = await self._files.versions_since(key, rules.version(base.data))
        return any(left == version or turn_id.startswith(turn) for turn_id, left in changes)

    def _put_off(self, key: str, error: Exception) -> None:
        """Go on with what is here, and ask the server again in the background; for all documents where it is away."""
        self._unsent.pop(key, None)
        self._unsent[key] = None
        self._wait_s = min(max(2 * self._wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
        is_of_document = isinstance(error, FileUnavailable | FileError)
        if str(error) != (self._troubles.get(key) if is_of_document else self.problem):
            event = "memory_document_late" if is_of_document else "memory_server_away"
            _log.error(event, error=str(error), retry_s=self._wait_s)
        if is_of_document:
            self._troubles[key] = str(error)
        else:
            self.problem = str(error)
        self._send_late()

    def _send_late(self) -> None:
        if self._unsent and self._sending is None:
            self._sending = asyncio.create_task(self._sent(), name="memory server")

    async def _sent(self) -> None:
        """Exchange what is late: a few documents at once, or one after a pause while the server is away."""
        try:
            while self._unsent:
                if not any(map(self._may_ask, self._unsent)):
                    await asyncio.sleep(self._wait_s)
                late = [*islice(self._unsent, _AT_ONCE if self.problem is None else 1)]
                if late:
                    done, _ = await asyncio.wait([self._exchange(key) for key in late])
                    if any(task.cancelled() or task.exception() is not None for task in done):
                        await asyncio.sleep(_LONGEST_WAIT_S)  # a fault of ours, which must not be repeated at once
        finally:
            self._sending = None

    def _placed(self, scope: MemoryScope, store: MemoryStoreName, document: MemoryDocument) -> MemoryDocument:
        return replace(document, location=self._server.location(document_key(scope, store) or ""))


def _turn_of(there: RemoteFile) -> str:
    """Under this turn id what was edited there is taken in; a part of it, by which it is found again."""
    return f"edit:{rules.version(there.data)[:32]}"


def _merged(base: bytes, here: bytes, there: bytes) -> bytes:
    """The text here with what was edited there; a line that both changed is the person's there."""
    if here in (base, there):
        return there
    mine, old, theirs = (rules.to_newlines(rules.decode(data)) for data in (there, base, here))
    if mine == old:
        return here
    text, _ = merge_for_mine(old, mine, theirs)
    return rules.encode(text)
