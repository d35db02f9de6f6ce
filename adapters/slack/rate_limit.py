"""Spaces calls of one method, over all conversations."""

from __future__ import annotations

import asyncio


class RateLimit:
    """Lets one caller go every `interval_s`."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._turn = asyncio.Lock()
        self._next_at_s = 0.0

    async def wait(self) -> None:
        """Return when it is the caller's turn."""
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(self._next_at_s - clock())
            self._next_at_s = clock() + self.interval_s

    def pause(self, seconds: float) -> None:
        """Let no caller go for so long."""
        self._next_at_s = asyncio.get_running_loop().time() + seconds
