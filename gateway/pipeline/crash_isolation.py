"""Crash isolation: turns run at the same time, and one that may end the process runs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CrashIsolation:
    """`async with isolation.shared():` or `async with isolation.alone():`; first come, first served.

    But when one that ran alone ends, all go next that share: a turn waits for at most one that runs alone.
    """

    def __init__(self) -> None:
        self._door = asyncio.Lock()  # held by the one alone, and by the others only while they come in
        self._next_alone = asyncio.Lock()  # so that only one of them stands before the door
        self._running = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Run with others, when none is alone and none waits to be."""
        async with self._door:
            self._running += 1
            self._is_idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._is_idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Run when all others have ended; who comes meanwhile waits."""
        async with self._next_alone, self._door:
            await self._is_idle.wait()
            yield
