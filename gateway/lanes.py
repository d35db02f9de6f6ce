"""Serve many conversations at once, and each of them one thing at a time.

A lane is a conversation. Lanes that have work wait in one queue and take turns, so a person with a thousand messages
delays another by one of them at most. Only the names of the lanes are kept in memory; the work stays in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from gateway.cancellation import is_cancelled_from_outside

Lane = TypeVar("Lane", bound=Hashable)

IDLE = None
AGAIN = 0.0

_log = structlog.get_logger(__name__)


class Lanes(Generic[Lane]):
    """Workers that call `serve(lane)` for every lane that was woken.

    `serve` does one piece of work and says when the lane has more: `IDLE` (None) when it is woken again, `AGAIN` (0)
    at once, or a number of seconds. It must not raise; if it does all the same, the lane is tried again later.
    """

    def __init__(self, serve: Callable[[Lane], Awaitable[float | None]], *, workers: int, after_fault_s: float) -> None:
        self._serve = serve
        self._workers = workers
        self._after_fault_s = after_fault_s
        self._queue: asyncio.Queue[Lane] = asyncio.Queue()
        self._queued: set[Lane] = set()
        self._served: set[Lane] = set()
        self._woken_while_served: set[Lane] = set()
        self._timers: dict[Lane, asyncio.TimerHandle] = {}
        self._has_ended = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Lanes that have work now and no worker yet."""
        return len(self._queued)

    def wake(self, lane: Lane) -> None:
        """Say that the lane has work. Cheap, and harmless when it has none."""
        timer = self._timers.pop(lane, None)
        if timer is not None:
            timer.cancel()
        if lane in self._served:
            self._woken_while_served.add(lane)
        elif lane not in self._queued:
            self._queued.add(lane)
            self._queue.put_nowait(lane)

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
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._workers):
                    workers.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _work(self) -> None:
        while True:
            lane = await self._queue.get()
            self._queued.discard(lane)
            self._served.add(lane)
            more: float | None = self._after_fault_s
            try:
                more = await self._serve(lane)
            except asyncio.CancelledError:
                if is_cancelled_from_outside():
                    raise
                _log.exception("lane_fault", lane=str(lane))
            except Exception:  # noqa: BLE001 (a fault of ours must not end the worker, nor the lane)
                _log.exception("lane_fault", lane=str(lane))
            finally:
                self._served.discard(lane)
                if lane in self._woken_while_served:
                    self._woken_while_served.discard(lane)
                    more = AGAIN
                self._next(lane, more)
                self._has_ended.set()

    def _next(self, lane: Lane, more: float | None) -> None:
        if more is None:
            return
        if more <= 0:
            self.wake(lane)
        else:
            self.wake_in(lane, more)
