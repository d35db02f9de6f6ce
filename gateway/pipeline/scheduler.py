"""A fair queue: it serves many conversations at once, and each of them one thing at a time.

A key is a conversation. Keys of one owner (a person) take turns among themselves. Owners take turns, too: a person with
a thousand messages, in one conversation or in a thousand, delays another by one of them at most. Only the keys are in
memory; the work stays in the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

Key = TypeVar("Key", bound=Hashable)

IDLE = None
AGAIN = 0.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Owner(Generic[Key]):
    """The keys of one owner; `is_queued`: the owner stands in the queue."""

    keys: deque[Key] = field(default_factory=deque)
    served: int = 0
    is_queued: bool = False


class FairQueue(Generic[Key]):
    """Workers that call `serve(key)` for every key that was woken.

    `serve` does one piece of work and says when the key has more: `IDLE` (None) when it is woken again, `AGAIN` (0)
    at once, or a number of seconds. It must not raise; if it does all the same, the key is tried again later.
    """

    def __init__(
        self,
        serve: Callable[[Key], Awaitable[float | None]],
        *,
        workers: int,
        after_fault_s: float,
        workers_of: Callable[[Hashable], int] | None = None,
    ) -> None:
        """Nothing is served before `run`; `workers_of` says how many an owner may have, None lets it have all."""
        self._serve = serve
        self._workers = workers
        self._after_fault_s = after_fault_s
        self._workers_of = workers_of or (lambda _owner: workers)
        self._queue: asyncio.Queue[Hashable] = asyncio.Queue()  # of owners
        self._owners: dict[Hashable, _Owner[Key]] = {}
        self._owner_of: dict[Key, Hashable] = {}  # while the key waits, is served or has a timer
        self._queued: set[Key] = set()
        self._served: set[Key] = set()
        self._woken_while_served: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._has_ended = asyncio.Event()
        self._is_ending = False

    @property
    def waiting(self) -> int:
        """Keys that have work now and no worker yet."""
        return len(self._queued)

    def belongs(self, key: Key, owner: Hashable) -> None:
        """Say whose work is next in the key; holds from the next time that it waits. Unsaid, the key counts alone."""
        self._owner_of[key] = owner

    def wake(self, key: Key, owner: Hashable | None = None) -> None:
        """Say that the key has work. Cheap, and harmless when it has none.

        Args:
            owner: whose work it is, where the key had none; what is in it already stays whose it is.
        """
        if owner is not None:
            self._owner_of.setdefault(key, owner)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._served:
            self._woken_while_served.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            name = self._owner_of.setdefault(key, key)
            self._owners.setdefault(name, _Owner()).keys.append(key)
            self._call(name)

    def wake_in(self, key: Key, delay_s: float) -> None:
        """Wake the key later; a `wake` before that takes its place."""
        earlier = self._timers.pop(key, None)
        if earlier is not None:
            earlier.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(delay_s, self.wake, key)

    async def idle(self) -> None:
        """Wait until no key has work now; those that wait for a time to come do not count."""
        while self._queued or self._served:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def rested(self, key: Key) -> None:
        """Wait until a key has no work, neither now nor at a time to come."""
        while key in self._queued or key in self._served or key in self._timers:
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
        """Put the owner into the queue, at its end, if it has work and may have another worker."""
        owner = self._owners[name]
        if owner.keys and not owner.is_queued and owner.served < min(self._workers, self._workers_of(name)):
            owner.is_queued = True
            self._queue.put_nowait(name)
        elif not owner.keys and not owner.served:
            del self._owners[name]

    async def _work(self) -> None:
        while not self._is_ending:  # also where what was served has kept its cancellation to itself
            name = await self._queue.get()
            owner = self._owners[name]
            owner.is_queued = False
            key = owner.keys.popleft()
            owner.served += 1
            self._call(name)
            self._queued.discard(key)
            self._served.add(key)
            more: float | None = self._after_fault_s
            try:
                more = await self._serve(key)
            except asyncio.CancelledError:
                if self._is_ending:
                    raise
                _log.exception("queue_fault", key=str(key))
            except Exception:  # noqa: BLE001 (a fault of ours must not end the worker, nor the key)
                _log.exception("queue_fault", key=str(key))
            finally:
                owner.served -= 1
                self._call(name)
                self._served.discard(key)
                if key in self._woken_while_served:
                    self._woken_while_served.discard(key)
                    more = AGAIN
                self._next(key, more)
                self._has_ended.set()

    def _next(self, key: Key, more: float | None) -> None:
        if more is None:
            self._owner_of.pop(key, None)
        elif more <= 0:
            self.wake(key)
        else:
            self.wake_in(key, more)
