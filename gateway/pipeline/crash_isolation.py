"""Crash isolation: turns run at the same time, and one that may end the process runs alone.

First come, first served. But when one that ran alone ends, all that may share go next. So a turn waits for at most one
that runs alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import itemgetter


class CrashIsolation:
    """How many run now, and who waits: `async with isolation.shared():` or `async with isolation.alone():`."""

    def __init__(self) -> None:
        self._running = 0
        self._is_one_alone = False
        self._queue: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Run with others, when none is alone and none waits to be."""
        await self._enter(is_alone=False)
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Run when all others have ended; who comes meanwhile waits."""
        await self._enter(is_alone=True)
        try:
            yield
        finally:
            self._is_one_alone = False
            self._queue = deque(sorted(self._queue, key=itemgetter(0)))
            self._leave()

    async def _enter(self, *, is_alone: bool) -> None:
        if not self._queue and self._may_enter(is_alone=is_alone):
            self._let_in(is_alone=is_alone)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((is_alone, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let in at this very moment
                self._is_one_alone = self._is_one_alone and not is_alone
                self._leave()
            else:
                self._call_next()
            raise

    def _may_enter(self, *, is_alone: bool) -> bool:
        return not self._is_one_alone and not (is_alone and self._running)

    def _let_in(self, *, is_alone: bool) -> None:
        self._running += 1
        self._is_one_alone = is_alone

    def _leave(self) -> None:
        self._running -= 1
        self._call_next()

    def _call_next(self) -> None:
        while self._queue:
            is_alone, turn = self._queue[0]
            if turn.cancelled():  # its task may not have heard of it yet
                self._queue.popleft()
                continue
            if not self._may_enter(is_alone=is_alone):
                return
            self._queue.popleft()
            self._let_in(is_alone=is_alone)
            turn.set_result(None)
