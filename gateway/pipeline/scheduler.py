"""Serve many conversations at once, and each of them one thing at a time.

A lane is a conversation, and lanes of one party (a person) take turns among themselves. Parties take turns, too, so
somebody with a thousand messages, in one conversation or in a thousand, delays another by one of them at most. Only the
names of the lanes are kept in memory; the work stays in the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

Lane = TypeVar("Lane", bound=Hashable)

IDLE = None
AGAIN = 0.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Party(Generic[Lane]):
    """The lanes of one party; `is_queued`: the party stands in the queue."""

    lanes: deque[Lane] = field(default_factory=deque)
    served: int = 0
    is_queued: bool = False


class Lanes(Generic[Lane]):
    """Workers that call `serve(lane)` for every lane that was woken.

    `serve` does one piece of work and says when the lane has more: `IDLE` (None) when it is woken again, `AGAIN` (0)
    at once, or a number of seconds. It must not raise; if it does all the same, the lane is tried again later.
    """

    def __init__(
        self,
        serve: Callable[[Lane], Awaitable[float | None]],
        *,
        workers: int,
        after_fault_s: float,
        workers_of: Callable[[Hashable], int] | None = None,
    ) -> None:
        """Nothing is served before `run`; `workers_of` says how many a party may have, None lets it have all."""
        self._serve = serve
        self._workers = workers
        self._after_fault_s = after_fault_s
        self._workers_of = workers_of or (lambda _party: workers)
        self._queue: asyncio.Queue[Hashable] = asyncio.Queue()  # of parties
        self._parties: dict[Hashable, _Party[Lane]] = {}
        self._party_of: dict[Lane, Hashable] = {}  # while the lane waits, is served or has a timer
        self._queued: set[Lane] = set()
        self._served: set[Lane] = set()
        self._woken_while_served: set[Lane] = set()
        self._timers: dict[Lane, asyncio.TimerHandle] = {}
        self._has_ended = asyncio.Event()
        self._is_ending = False

    @property
    def waiting(self) -> int:
        """Lanes that have work now and no worker yet."""
        return len(self._queued)

    def belongs(self, lane: Lane, party: Hashable) -> None:
        """Say whose work is next in the lane; holds from the next time that it waits. Unsaid, it is nobody else's."""
        self._party_of[lane] = party

    def wake(self, lane: Lane, party: Hashable | None = None) -> None:
        """Say that the lane has work. Cheap, and harmless when it has none.

        Args:
            party: whose work it is, where the lane had none; what is in it already stays whose it is.
        """
        if party is not None:
            self._party_of.setdefault(lane, party)
        timer = self._timers.pop(lane, None)
        if timer is not None:
            timer.cancel()
        if lane in self._served:
            self._woken_while_served.add(lane)
        elif lane not in self._queued:
            self._queued.add(lane)
            name = self._party_of.setdefault(lane, lane)
            self._parties.setdefault(name, _Party()).lanes.append(lane)
            self._call(name)

    def wake_in(self, lane: Lane, delay_s: float) -> None:
        """Wake the lane later; a `wake` before that takes its place."""
        earlier = self._timers.pop(lane, None)
        if earlier is not None:
            earlier.cancel()
        self._timers[lane] = asyncio.get_running_loop().call_later(delay_s, self.wake, lane)

    async def idle(self) -> None:
        """Wait until no lane has work now; those that wait for a time to come do not count."""
        while self._queued or self._served:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def rested(self, lane: Lane) -> None:
        """Wait until a lane has no work, neither now nor at a time to come."""
        while lane in self._queued or lane in self._served or lane in self._timers:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def run(self) -> None:
        """Serve until cancelled; what is being served then is cancelled too."""
        self._is_ending = False
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._workers):
                    workers.create_task(self._work())
                try:
                    await asyncio.Event().wait()
                finally:
                    self._is_ending = True
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _call(self, name: Hashable) -> None:
        """Put the party into the queue, at its end, if it has work and may have another worker."""
        party = self._parties[name]
        if party.lanes and not party.is_queued and party.served < min(self._workers, self._workers_of(name)):
            party.is_queued = True
            self._queue.put_nowait(name)
        elif not party.lanes and not party.served:
            del self._parties[name]

    async def _work(self) -> None:
        while not self._is_ending:  # also where what was served has kept its cancellation to itself
            name = await self._queue.get()
            party = self._parties[name]
            party.is_queued = False
            lane = party.lanes.popleft()
            party.served += 1
            self._call(name)
            self._queued.discard(lane)
            self._served.add(lane)
            more: float | None = self._after_fault_s
            try:
                more = await self._serve(lane)
            except asyncio.CancelledError:
                if self._is_ending:
                    raise
                _log.exception("lane_fault", lane=str(lane))
            except Exception:  # noqa: BLE001 (a fault of ours must not end the worker, nor the lane)
                _log.exception("lane_fault", lane=str(lane))
            finally:
                party.served -= 1
                self._call(name)
                self._served.discard(lane)
                if lane in self._woken_while_served:
                    self._woken_while_served.discard(lane)
                    more = AGAIN
                self._next(lane, more)
                self._has_ended.set()

    def _next(self, lane: Lane, more: float | None) -> None:
        if more is None:
            self._party_of.pop(lane, None)
        elif more <= 0:
            self.wake(lane)
        else:
            self.wake_in(lane, more)
