"""Keeps calls of one kind apart, over all conversations."""

from __future__ import annotations

import asyncio


class Pace:
    """Lets one caller go after the other.

    Args:
        gap_s: between two of them.
    """

    def __init__(self, gap_s: float) -> None:
        self.gap_s = gap_s
        self._turn = asyncio.Lock()
        self._next_at_s = 0.0

    async def wait(self) -> None:
        """Return when it is the caller's turn."""
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(self._next_at_s - clock())
            self._next_at_s = clock() + self.gap_s

    def hold(self, seconds: float) -> None:
        """Let nobody go for so long."""
        self._next_at_s = asyncio.get_running_loop().time() + seconds
