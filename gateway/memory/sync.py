"""From the journal to the memory: what a turn has committed is brought into it, once and in order.

A turn's updates are durable in the journal before they are applied here. So a failure (a lock that is held too long, a
full disk, a server that is away) loses nothing: they are applied later, and a crash is made good at the next start. Of
what is late only the owners are kept here, and the journal is read again. While the memory is away, all updates wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Literal, Protocol, TypeVar
from weakref import WeakValueDictionary

import structlog

from gateway.errors import EthosError, FileError, InvalidId, MemoryUnavailable, StoreError
from gateway.memory.availability import TIMEOUT_S, Availability, NotInTime, in_words, within_time
from gateway.protocols import (
    MemoryContext,
    MemoryProvider,
    MemoryScope,
    MemoryStoreName,
    MemoryUpdate,
    OpensMemory,
    ReportsProblems,
    SyncReport,
)
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import note, span

RETRY_S = 5.0
# Turns that are read from the journal at once.
PAGE_TURNS = 100

_log = structlog.get_logger(__name__)
Batch = tuple[MemoryScope, Sequence[MemoryUpdate]]
Result = Literal["applied", "late", "away"]
"""`late`: these updates could not be applied; `away`: the memory cannot be used, so no others can be, either."""
T = TypeVar("T")
# What is asked for to see whether the memory answers: it is about nobody.
_NOBODY = MemoryScope(personality_id="assistant", user_id=None, session_id=None, turn_id="probe")


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
    """Reads and writes the memory so that a turn sees all that earlier turns have committed.

    Attributes:
        kind: of the provider, for people.
        within_time: the provider as people ask it directly, see `within_time`.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        store: CommittedMemory,
        *,
        kind: str = "markdown",
        timeout_s: float = TIMEOUT_S,
        write_timeout_s: float | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            kind: of the provider, for people.
            timeout_s: how long a turn waits for the memory.
            write_timeout_s: how long an update may take, if not as long.
        """
        self.kind = kind
        self.availability = Availability(self._probe, timeout_s=timeout_s)
        self._provider = provider
        self._store = store
        self._write_timeout_s = write_timeout_s or timeout_s
        self.within_time = within_time(provider, self.availability, self._write_timeout_s)
        self._is_opened = False
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._late_owners: set[str] = set()
        self._late_turns = 0
        self._put_off: dict[str, set[str]] = {}  # turns that became late since the journal was read, and whose they are
        self._has_late = asyncio.Event()
        self._all_wait = False  # the memory was away; before the journal is read, anybody may have something late
        self._is_reading_journal = False
        self._one_reader = asyncio.Lock()
        self._forgotten: set[str] = set()  # ids are never given twice

    @property
    def late(self) -> int:
        """Turns whose updates could not be applied yet; at least so many while the memory is away."""
        return self._late_turns + len(self._put_off)

    @property
    def problems(self) -> Sequence[str]:
        """What does not work, for people: it is away, or what the provider itself says."""
        if self.availability.problem is not None:
            return (self.availability.problem,)
        return tuple(self._provider.problems) if isinstance(self._provider, ReportsProblems) else ()

    async def open(self) -> None:
        """Open the provider; one that cannot be opened now is opened when it answers."""
        try:
            await self.availability.call(self._opened)
        except Exception as error:  # noqa: BLE001 (the gateway starts without it)
            if not isinstance(error, EthosError):
                _log.exception("memory_fault")
            self.availability.failed(error, is_down=True)

    async def close(self) -> None:
        """Close the provider, if that does not take too long."""
        if isinstance(self._provider, OpensMemory):
            try:
                await self.availability.call(self._provider.close)
            except Exception:  # noqa: BLE001 (it ends with the process)
                _log.exception("memory_fault")

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        """What is remembered, after the updates that are on their way.

        Raises:
            MemoryUnavailable: the memory cannot be read now; the log says why. At once where that is known.
        """
        for owner in (owner_of(scope, "user"), owner_of(scope, "memory")):
            gate = self._gates.get(owner)
            if gate is not None and self.availability.is_up:
                async with gate:  # an earlier turn of the owner is committed and not yet applied
                    pass
        self.availability.check()
        try:
            return await self._read(scope)
        except MemoryUnavailable as error:
            self.availability.failed(error, is_down=True)
            raise
        except (InvalidId, FileError) as error:  # of this person only
            _log.error("memory_unreadable", turn_id=scope.turn_id, error=str(error))
            self.availability.failed(error, is_down=False)
            raise MemoryUnavailable(str(error)) from error
        except Exception as error:
            _log.exception("memory_fault", turn_id=scope.turn_id)
            self.availability.failed(error, is_down=False)
            raise MemoryUnavailable(in_words(error)) from error

    async def apply(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> None:
        """Apply what a turn has committed; what cannot be applied now is applied later, never dropped."""
        batch = (scope, updates)
        async with self._gated(batch):
            is_behind = self._all_wait or not _owners(batch).isdisjoint(self._late_owners)
            result = "late" if is_behind else await self._apply(batch)
            if result != "applied":
                self._all_wait |= result == "away"
                self._wait(batch)

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
        """Apply what was committed, as by an earlier process, and may not have been applied; how many turns.

        A memory that is away is asked once.

        Raises:
            StoreUnavailable: the journal cannot be read.
        """
        tried = await self._apply_late()
        if self.late:
            self._has_late.set()
        return tried

    def look_for_late(self) -> None:
        """Look into the journal, soon: another process may have committed something, and died before it was applied."""
        self._has_late.set()

    async def run(self) -> None:
        """Try late updates again, and ask a memory that is away whether it is back, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.availability.run(), name="memory probe")
            await self._retry()

    async def _retry(self) -> None:
        while True:
            await self._has_late.wait()
            if not await self.availability.until_up():
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

    # ---- the journal ------------------------------------------------------------------------------------------------

    async def _apply_late(self) -> int:
        """Try each that the journal still has, oldest first; how many. Nothing newer overtakes one that stays late."""
        async with self._one_reader:
            self._late_turns, self._put_off = self.late, {}
            self._is_reading_journal = True
            try:
                return await self._read_journal()
            finally:
                self._is_reading_journal = False

    async def _read_journal(self) -> int:
        still_late: set[str] = set()
        applied = waiting = 0
        async with aclosing(self._pages()) as pages:
            async for page in pages:
                for batch in page:
                    owners = _owners(batch)
                    result = await self._apply_again(batch) if owners.isdisjoint(still_late) else "late"
                    if result == "away":
                        self._all_wait = True
                        self._late_turns, self._put_off = max(self.late - applied, 1), {}
                        return applied
                    self._put_off.pop(batch[0].turn_id, None)
                    if result == "applied":
                        applied += 1
                        continue
                    still_late |= owners
                    self._late_owners |= owners  # at once: a turn that ends now must not overtake it
                    waiting += 1
        self._all_wait = False
        self._late_turns = waiting
        self._late_owners = still_late.union(*self._put_off.values())
        return applied + waiting

    async def _pages(self) -> AsyncGenerator[Sequence[Batch]]:
        """What the journal has, each turn once; from its beginning again until there is nothing new.

        Many workers write it, and what one of them commits later may stand before what another has committed.
        """
        seen: set[str] = set()
        while True:
            last, found = None, len(seen)
            while page := await self._store.unsettled_memory(after=last, limit=PAGE_TURNS):
                yield [batch for batch in page if batch[0].turn_id not in seen]
                seen.update(scope.turn_id for scope, _ in page)
                last = page[-1][0].turn_id
            if len(seen) == found:
                return

    async def _apply_again(self, batch: Batch) -> Result:
        async with self._gated(batch):
            result = await self._apply(batch)
        return result if result != "late" or await self.availability.ask() else "away"

    def _wait(self, batch: Batch) -> None:
        """Have what is late applied later."""
        if self._all_wait and not self._is_reading_journal:
            self._late_turns += 1  # of so many not even the owners are kept
        else:
            owners = _owners(batch)
            self._late_owners |= owners
            self._put_off[batch[0].turn_id] = owners
        self._has_late.set()

    @asynccontextmanager
    async def _gated(self, batch: Batch) -> AsyncGenerator[None]:
        """Keep others from reading and writing what the batch changes."""
        async with AsyncExitStack() as gates:
            for owner in sorted(_owners(batch)):  # in one order, so that no two wait for each other
                await gates.enter_async_context(self._gates.setdefault(owner, asyncio.Lock()))
            yield

    async def _apply(self, batch: Batch) -> Result:
        """Whether the memory has it now, or never will."""
        if not self._forgotten.isdisjoint((batch[0].user_id, batch[0].author_id)):
            return "applied"
        if not self.availability.is_up:
            return "away"
        with span("memory.sync", turn_id=batch[0].turn_id, updates=len(batch[1]), result="late"):
            result = await self._applied(batch)
            if result == "applied":
                note(result=result)
            return result

    async def _applied(self, batch: Batch) -> Result:
        scope, updates = batch
        try:
            outcomes = await self._outcomes(scope, updates)
            reach("memory.settling")
            await self._store.settle_memory(scope.turn_id, outcomes)
            reach("memory.settled")
        except MemoryUnavailable as error:  # it may be that it can still be read
            _log.error("memory_late", turn_id=scope.turn_id, error=str(error))
            self.availability.failed(error, is_down=isinstance(error, NotInTime))
            return "away"
        except StoreError as error:
            _log.error("memory_late", turn_id=scope.turn_id, error=str(error), retry_s=RETRY_S)
            return "late"
        except (FileError, OSError) as error:
            _log.error("memory_late", turn_id=scope.turn_id, error=str(error), retry_s=RETRY_S)
            self.availability.failed(error, is_down=False)
            return "late"
        except Exception as error:  # noqa: BLE001 (whatever fault it is, what was committed is not dropped for it)
            _log.exception("memory_fault", turn_id=scope.turn_id, retry_s=RETRY_S)
            self.availability.failed(error, is_down=False)
            return "late"
        return "applied"

    # ---- the provider, which may be anybody's -----------------------------------------------------------------------

    async def _read(self, scope: MemoryScope) -> MemoryContext | None:
        return self._checked(await self.availability.call(lambda: self._provider.prefetch(scope)))

    def _checked(self, found: object) -> MemoryContext | None:
        if found is not None and not isinstance(found, MemoryContext):
            raise TypeError(f"`prefetch` of {self.kind} must give a MemoryContext or None, not {type(found).__name__}")
        return found

    async def _outcomes(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> Sequence[str]:
        limit_s = self._write_timeout_s
        try:
            report: object = await self.availability.call(lambda: self._provider.sync(scope, updates), limit_s)
        except InvalidId as error:  # it never will be applied
            _log.error("memory_refused", turn_id=scope.turn_id, error=str(error))
            return ["no_match"] * len(updates)
        if not isinstance(report, SyncReport) or len(report.outcomes) != len(updates):
            raise TypeError(f"`sync` of {self.kind} must give a SyncReport with an outcome for each update")
        return report.outcomes

    async def _opened(self) -> None:
        if isinstance(self._provider, OpensMemory) and not self._is_opened:
            await self._provider.open()
        self._is_opened = True

    async def _probe(self) -> None:
        await self._opened()
        self._checked(await self._provider.prefetch(_NOBODY))
