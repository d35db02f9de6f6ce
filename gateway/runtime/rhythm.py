"""Moments that regular work shares, so that what is asked of a server then can go together."""

from __future__ import annotations

import asyncio
import math
import random

# Of a period. A timer can be a little early: who comes so little before a moment waits for the one after it.
_EARLY = 0.01
_PHASE_S = random.random()  # noqa: S311 (no secret): the processes of one machine do not all come at once


def next_moment_s(each_s: float, *, now_s: float | None = None) -> float:
    """The next moment of a period, in seconds of the loop's clock.

    Args:
        each_s: the period. Each moment of one of 4 s is also one of 2 s and of 1 s.
        now_s: the time from which to look; the loop's own where it is not given.
    """
    if now_s is None:
        now_s = asyncio.get_running_loop().time()
    return _PHASE_S + math.floor((now_s - _PHASE_S) / each_s + 1 + _EARLY) * each_s


async def until_next_moment(each_s: float) -> None:
    """Wait for the next moment of a period of so many seconds."""
    come = asyncio.Event()
    timer = asyncio.get_running_loop().call_at(next_moment_s(each_s), come.set)
    try:
        await come.wait()
    finally:
        timer.cancel()
