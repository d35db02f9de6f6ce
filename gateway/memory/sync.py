"""From the journal to the memory: what a turn has committed is brought into the files, once and in order.

A turn's updates are durable in the journal before they are applied here. So a failure (a lock that is held too long, a
full disk) loses nothing: they are applied later, and a crash is made good at the next start. Of what is late only the
owners are kept here, and the journal is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol
from weakref import WeakValueDictionary

import structlog

from gateway.errors import FileError, MemoryStoreError, StoreError
from gateway.protocols import MemoryContext, MemoryProvider, MemoryScope, MemoryStoreName, MemoryUpdate
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import note, span

RETRY_S = 5.0
# Turns that are read from the journal at once.
PAGE_TURNS = 100

_log = structlog.get_logger(__name__)
Batch = tuple[MemoryScope, Sequence[MemoryUpdate]]


class CommittedMemory(Protocol):
    """What turns have committed for the memory, in order."""

    async def unsettled_memory(
        self, *, after: str | None = None, limit: int | None = None
    ) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        """Updates of committed turns that may not have reached the memory, by whole turns, oldest first.

        Args:
            after: a turn; only those that were committed after it.
        """

    async def settle_memory(self, turn_id: str, outcomes: Sequence[str]) -> None:
        """Note that the memory has the updates of the turn; harmless when it is noted already."""


def owner_of(scope: MemoryScope, store: MemoryStoreName) -> str:
    """Whose document it is; two scopes with the same owner share the document."""
    if store == "user":
        return f"user {scope.user_id}"
    return {
        "per-personality": f"personality {scope.personality_id}",
        "global": "all",
        "per-user": f"user {scope.user_id} personality {scope.personality_id}",
    }[scope.place]


def _owners(batch: Batch) -> set[str]:
    scope, updates = batch
    return {owner_of(scope, update.store) for update in updates}


class MemorySync:
    """Reads and writes the memory so that a turn sees all that earlier turns have committed."""

    def __init__(self, provider: MemoryProvider, store: CommittedMemory) -> None:
        self._provider = provider
        self._store = store
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._late_owners: set[str] = set()
        self._late_turns = 0
        self._put_off: dict[str, set[str]] = {}  # turns that became late since the journal was read, and whose they are
        self._has_late = asyncio.Event()
        self._forgotten: set[str] = set()  # ids are never given twice

    @property
    def late(self) -> int:
        """Turns whose updates could not be applied yet."""
        return self._late_turns + len(self._put_off)

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        """What is remembered, after the updates that are on their way; None where memory cannot be read."""
        for owner in (owner_of(scope, "user"), owner_of(scope, "memory")):
            gate = self._gates.get(owner)
            if gate is not None:
                async with gate:  # an earlier turn of the owner is committed and not yet applied
                    pass
        try:
            return await self._provider.prefetch(scope)
        except (MemoryStoreError, FileError) as error:
            _log.error("memory_unreadable", turn_id=scope.turn_id, error=str(error))
            return None

    async def apply(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> None:
        """Apply what a turn has committed; what cannot be applied now is applied later, never dropped."""
        batch = (scope, updates)
        async with self._gated(batch):
            owners = _owners(batch)
            is_behind = not owners.isdisjoint(self._late_owners)  # earlier ones of the same owner
            if is_behind or not await self._apply(batch):
                self._late_owners |= owners
                self._put_off[scope.turn_id] = owners
                self._has_late.set()

    async def is_behind(self, user_id: str) -> bool:
        """Whether something that this user's turns have committed is not in the memory yet."""
        return any(scope.user_id == user_id for scope, _ in await self._store.unsettled_memory())

    async def forget(self, user_ids: Collection[str]) -> None:
        """Apply nothing more that comes from these users, who are being erased, and end what is under way."""
        self._forgotten.update(user_ids)
        for gate in tuple(self._gates.values()):
            async with gate:
                pass

    async def replay(self) -> int:
        """Apply what an earlier process committed and may not have applied; returns the number of turns.

        Raises:
            StoreUnavailable: the journal cannot be read.
        """
        tried = await self._apply_late()
        if self.late:
            self._has_late.set()
        return tried

    async def run(self) -> None:
        """Try late updates again, until cancelled."""
        while True:
            await self._has_late.wait()
            await asyncio.sleep(RETRY_S)
            self._has_late.clear()
            try:
                await self._apply_late()
            except StoreError as error:
                _log.error("memory_late", error=str(error), retry_s=RETRY_S)
            except Exception:  # noqa: BLE001 (whatever fault it is, the late ones are tried again)
                _log.exception("memory_fault", retry_s=RETRY_S)
            if self.late:
                self._has_late.set()

    async def _apply_late(self) -> int:
        """Try each that the journal still has, oldest first; how many. Nothing newer overtakes one that stays late."""
        self._late_turns, self._put_off = self.late, {}
        still_late: set[str] = set()
        tried = waiting = 0
        last: str | None = None
        while page := await self._store.unsettled_memory(after=last, limit=PAGE_TURNS):
            for batch in page:
                owners = _owners(batch)
                if owners.isdisjoint(still_late):
                    async with self._gated(batch):
                        if await self._apply(batch):
                            self._put_off.pop(batch[0].turn_id, None)
                            continue
                still_late |= owners
                self._late_owners |= owners  # at once: a turn that ends now must not overtake it
                self._put_off.pop(batch[0].turn_id, None)
                waiting += 1
            tried += len(page)
            last = page[-1][0].turn_id
        self._late_turns = waiting
        self._late_owners = still_late.union(*self._put_off.values())
        return tried

    @asynccontextmanager
    async def _gated(self, batch: Batch) -> AsyncGenerator[None]:
        """Keep others from reading and writing what the batch changes."""
        async with AsyncExitStack() as gates:
            for owner in sorted(_owners(batch)):  # in one order, so that no two wait for each other
                await gates.enter_async_context(self._gates.setdefault(owner, asyncio.Lock()))
            yield

    async def _apply(self, batch: Batch) -> bool:
        """Whether the memory has it now, or never will."""
        if not self._forgotten.isdisjoint((batch[0].user_id, batch[0].author_id)):
            return True
        with span("memory.sync", turn_id=batch[0].turn_id, updates=len(batch[1]), result="late"):
            return await self._applied(batch)

    async def _applied(self, batch: Batch) -> bool:
        scope, updates = batch
        try:
            outcomes = await self._outcomes(scope, updates)
            reach("memory.settling")
            await self._store.settle_memory(scope.turn_id, outcomes)
            reach("memory.settled")
        except (FileError, StoreError, OSError) as error:
            _log.error("memory_late", turn_id=scope.turn_id, error=str(error), retry_s=RETRY_S)
            return False
        except Exception:  # noqa: BLE001 (whatever fault it is, what was committed is not dropped for it)
            _log.exception("memory_fault", turn_id=scope.turn_id, retry_s=RETRY_S)
            return False
        note(result="applied")
        return True

    async def _outcomes(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> Sequence[str]:
        try:
            return (await self._provider.sync(scope, updates)).outcomes
        except MemoryStoreError as error:  # a malformed id: it never will be applied
            _log.error("memory_refused", turn_id=scope.turn_id, error=str(error))
            return ["no_match"] * len(updates)
