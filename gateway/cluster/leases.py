"""Leases: what one worker at a time may do, and how its holder knows that it still may.

The database decides, by its own clock. The holder trusts a lease by its own steady clock, from before it asked and for
a tenth less than it asked for. So it always stops before another can begin, also after a pause of the process, or while
the database cannot be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from gateway.domain.channels import Hold
from gateway.errors import StoreError
from gateway.runtime.failpoints import reach
from gateway.runtime.rhythm import until_next_moment

LEASE_S = 6.0
# Of a lease: so often it is renewed, and so long it is trusted.
_RENEWED_EACH, _TRUSTED = 1 / 3, 0.9
# At a start, and where the database cannot be asked, so long until the next look.
AGAIN_S = 1.0
# One that holds much of these waits a little before it takes more.
_SPREAD = "channel:"
_SHY_S, _SHYEST_S = 0.1, 0.5
# Where no news tell of what is given back.
LOOK_WITHOUT_NEWS_S = 0.25
# Behind the end of another's lease, so that it is over.
_BEHIND_S = 0.02
# Goes on while the machine sleeps, where there is such a clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """A lease as the database has it; `for_s` below 0: it is over."""

    name: str
    worker: str
    epoch: int
    for_s: float


class LeaseStore(Protocol):
    """Leases by name. Each method may raise StoreUnavailable."""

    async def take(self, name: str, *, worker: str, lease_s: float) -> int | None:
        """Hold the lease for so long from now; its epoch, which no holder before had. None while another holds it.

        What the worker holds already stays its own, with its epoch.
        """

    async def renew(self, epochs: Mapping[str, int], *, worker: str, lease_s: float) -> Collection[str]:
        """Hold leases for so long from now; the names of those that still were the worker's, with these epochs."""

    async def give_back(self, name: str, epoch: int, *, worker: str) -> None:
        """Let others take what the worker holds; harmless where another holder has it."""

    async def release(self, name: str) -> bool:
        """Take a lease from its holder, who cannot renew it; others can take it when its time is over.

        Returns whether anybody held it.
        """

    async def standing(self) -> Sequence[LeaseRow]:
        """The leases of channels and jobs, also those that are over."""


def steady_s() -> float:
    """Seconds of a clock that never jumps, and does not stand still while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class Held:
    """A lease as its holder sees it."""

    def __init__(self, name: str, epoch: int, until_s: float, clock: Callable[[], float]) -> None:
        self.name = name
        self.epoch = epoch
        self.until_s = until_s
        """How long it is trusted, by the holder's clock."""
        self._clock = clock
        self._lost = asyncio.Event()

    @property
    def is_good(self) -> bool:
        """Whether it is held at this moment, certainly."""
        return not self._lost.is_set() and self._clock() < self.until_s

    async def lost(self) -> None:
        """Wait until it is held no more."""
        await self._lost.wait()

    def lose(self) -> None:
        """Let everybody who waits know that it is over."""
        self._lost.set()


async def while_held(hold: Hold, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work until it ends, and then True; or until the hold is lost: then it is cancelled, and has ended."""
    doing, losing = asyncio.create_task(work), asyncio.create_task(hold.lost())
    try:
        await asyncio.wait([doing, losing], return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
        return doing.done()
    finally:
        doing.cancel()
        losing.cancel()
        await asyncio.wait([doing, losing])


class Leases:
    """Those of one worker; `run` renews them, and takes those that are waited for."""

    def __init__(
        self,
        store: LeaseStore,
        worker: str,
        *,
        lease_s: float = LEASE_S,
        hears_news: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = steady_s,
    ) -> None:
        """Nothing is held yet.

        Args:
            worker: its id.
            hears_news: whether `look` is called when another worker gives something back.
            clock: seconds of a steady clock.
        """
        self._store = store
        self._worker = worker
        self._lease_s = lease_s
        self._hears_news = hears_news
        self._clock = clock
        self._held: dict[str, Held] = {}
        self._wanted: dict[str, asyncio.Future[Held]] = {}
        self._not_before_s: dict[str, float] = {}
        self._watching: dict[str, asyncio.TimerHandle] = {}
        self._looked = asyncio.Event()
        self._is_holding = asyncio.Event()
        self._is_reachable = True

    @property
    def held(self) -> Mapping[str, Held]:
        """What is held now, by name."""
        return self._held

    async def take(self, name: str) -> Held | None:
        """Take a lease now; None where another worker has it, or a part of this one.

        Raises:
            StoreUnavailable: it is not known whose it is.
        """
        if name in self._held:
            return None
        asked_s = self._clock()
        epoch = await self._store.take(name, worker=self._worker, lease_s=self._lease_s)
        if epoch is None or name in self._held:
            return None
        held = Held(name, epoch, asked_s + self._lease_s * _TRUSTED, self._clock)
        if not held.is_good:  # the answer came late
            return None
        self._held[name] = held
        self._watch(held)
        self._is_holding.set()
        reach("lease.taken")
        return held

    async def wait_for(self, name: str) -> Held:
        """Take a lease as soon as no other worker has it; one that is held here, at once. For one caller a name."""
        if name in self._held:
            return self._held[name]
        future: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        self._wanted[name] = future
        self._looked.set()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it came in the same moment
                await self.give_back(name, future.result().epoch)
            raise
        finally:
            del self._wanted[name]

    async def give_back(self, name: str, epoch: int) -> None:
        """End it, if it is not over, so that others can take it now."""
        held = self._held.get(name)
        if held is not None and held.epoch == epoch:
            self._drop(held)
        try:
            await self._store.give_back(name, epoch, worker=self._worker)
        except StoreError as error:  # it ends on its own soon
            _log.warning("lease_not_given_back", lease=name, error=str(error))

    def lose(self, name: str, *, pause_s: float) -> None:
        """Have what is held here stopped, as if it were over, and leave it to others for so long."""
        held = self._held.get(name)
        if held is not None:
            self._not_before_s[name] = self._clock() + pause_s
            self._lose(held, "an operator gave it to others")

    def look(self) -> None:
        """Look now whether what is waited for is free: news came."""
        self._looked.set()

    async def run(self) -> None:
        """Renew what is held, and take what is waited for, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew(), name="leases")
            tasks.create_task(self._take_wanted(), name="leases that are waited for")

    async def close(self) -> None:
        """Give everything back."""
        await asyncio.gather(*(self.give_back(name, held.epoch) for name, held in [*self._held.items()]))

    # ---- what is held ------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        while True:
            await self._is_holding.wait()
            await until_next_moment(self._lease_s * _RENEWED_EACH)
            before = dict(self._held)
            if not before:
                self._is_holding.clear()
                continue
            asked_s = self._clock()
            try:
                epochs = {name: held.epoch for name, held in before.items()}
                still = await self._store.renew(epochs, worker=self._worker, lease_s=self._lease_s)
            except StoreError as error:
                self._note_reachable(error)
                continue
            self._note_reachable(None)
            for name, held in before.items():
                if name not in still:
                    self._lose(held, "another has it")
                elif self._held.get(name) is held:
                    held.until_s = asked_s + self._lease_s * _TRUSTED

    def _watch(self, held: Held) -> None:
        """Look at it again when its time is over, and lose it if it was not renewed."""
        left_s = held.until_s - self._clock()
        if left_s <= 0:
            self._lose(held, "its time is over")
        elif self._held.get(held.name) is held:
            loop = asyncio.get_running_loop()
            self._watching[held.name] = loop.call_later(left_s, self._watch, held)

    def _lose(self, held: Held, reason: str) -> None:
        if self._held.get(held.name) is held:
            _log.warning("lease_lost", lease=held.name, epoch=held.epoch, reason=reason)
            self._drop(held)
            reach("lease.lost")

    def _drop(self, held: Held) -> None:
        if self._held.get(held.name) is held:
            del self._held[held.name]
            self._watching.pop(held.name).cancel()
        held.lose()

    def _note_reachable(self, error: StoreError | None) -> None:
        if (error is None) != self._is_reachable:
            self._is_reachable = error is None
            if error is not None:
                _log.warning("leases_not_renewed", error=str(error))

    # ---- what is waited for ------------------------------------------------------------------------------------------

    async def _take_wanted(self) -> None:
        while True:
            try:
                next_s = await self._take_free()
                self._note_reachable(None)
            except StoreError as error:
                self._note_reachable(error)
                next_s = AGAIN_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(next_s):
                    await self._looked.wait()
            self._looked.clear()

    async def _take_free(self) -> float | None:
        """Take what is free of what is waited for; the seconds until the next look, None where there is none."""
        while wanted := [name for name, future in self._wanted.items() if not future.done()]:
            rows = {row.name: row for row in await self._store.standing()}
            waits = {name: self._wait_s(name, rows.get(name)) for name in wanted}
            name = min(waits, key=lambda one: waits[one])
            if waits[name] > 0:
                longest_s = self._lease_s if self._hears_news() else LOOK_WITHOUT_NEWS_S
                return min(waits[name] + _BEHIND_S, longest_s)
            if name.startswith(_SPREAD):
                await asyncio.sleep(min(_SHY_S * sum(each.startswith(_SPREAD) for each in self._held), _SHYEST_S))
            held = await self.take(name)
            future = self._wanted.get(name)
            if held is not None and future is not None and not future.done():
                future.set_result(held)
            elif held is not None:
                await self.give_back(name, held.epoch)
        return None

    def _wait_s(self, name: str, row: LeaseRow | None) -> float:
        paused_s = self._not_before_s.get(name, 0.0) - self._clock()
        others_s = 0.0 if row is None or row.worker == self._worker else row.for_s
        return max(paused_s, others_s)
