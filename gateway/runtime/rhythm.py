"""Moments that regular work shares, so that what is asked of a server then can go together."""

from __future__ import annotations

import asyncio
import math
import random

# Of a period: who comes so little before a moment waits for the one after it. A timer can be a trace early.
_EARLY = 0.01
_PHASE_S = random.random()  # noqa: S311 (no secret): the processes of one machine do not all come at once


def next_moment_s(each_s: float, *, now_s: float | None = None) -> float:
    """The next moment of a period, in seconds of the loop's clock; those of longer periods are among those of shorter.

    Args:
        each_s: the period; its multiples share their moments with it.
    """
    if now_s is None:
        now_s = asyncio.get_running_loop().time()
    return _PHASE_S + math.floor((now_s - _PHASE_S) / each_s + 1 + _EARLY) * each_s


async def until_next_moment(each_s: float) -> None:
    """Wait for it."""
    come = asyncio.Event()
    timer = asyncio.get_running_loop().call_at(next_moment_s(each_s), come.set)
    try:
        await come.wait()
    finally:
        timer.cancel()
