"""From the threads that ask a database back to the event loop: one wake-up for all that has come meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class Arrivals:
    """What was done for one event loop and has not been handed to those who wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_woken = False

    def add(self, done: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
        """Hand over, from any thread."""
        self._arrived.append((done, value, error))
        if not self._is_woken and not self.loop.is_closed():
            self._is_woken = True
            self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        self._is_woken = False  # before the look: whatever comes after it wakes the loop again
        while self._arrived:
            resolve(*self._arrived.popleft())


def resolve(done: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    """Hand a value, or an error as a coroutine would raise it, to who waits for it, in the event loop."""
    if isinstance(error, StopIteration):  # no future takes one (PEP 479)
        raised = RuntimeError(f"work of the store raised {error!r}")
        raised.__cause__ = error
        error = raised
    if done.cancelled():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(value)
