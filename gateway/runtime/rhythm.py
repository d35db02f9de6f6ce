"""Moments that regular work shares, so that what is asked of a server then can go together."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

# Of a period. A timer can be a little early: who comes so little before a moment waits for the one after it.
_EARLY = 0.01
_PHASE_S = random.random()  # noqa: S311 (no secret): the processes of one machine do not all come at once


@dataclass(slots=True)
class _Moment:
    timer: asyncio.TimerHandle
    acts: list[Callable[[], None]] = field(default_factory=list)


_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, _Moment]] = WeakKeyDictionary()


def next_moment_s(each_s: float, *, now_s: float | None = None) -> float:
    """The next moment of a period, in seconds of the loop's clock.

    Args:
        each_s: the period. Each moment of one of 4 s is also one of 2 s and of 1 s.
        now_s: the time from which to look; the loop's own where it is not given.
    """
    if now_s is None:
        now_s = asyncio.get_running_loop().time()
    return _PHASE_S + math.floor((now_s - _PHASE_S) / each_s + 1 + _EARLY) * each_s


@contextmanager
def at_moment(moment_s: float, act: Callable[[], None]) -> Iterator[None]:
    """Have `act` called at a moment of the loop's clock, with all else that waits for it, unless the block ends before.

    One timer wakes all of them in one step of the loop, so that what they ask of a server then can go together.
    """
    loop = asyncio.get_running_loop()
    moments = _waiting.setdefault(loop, {})
    if moment_s not in moments:
        moments[moment_s] = _Moment(loop.call_at(moment_s, lambda: _come(moments, moment_s)))
    moment = moments[moment_s]
    moment.acts.append(act)
    try:
        yield
    finally:
        if moments.get(moment_s) is moment:
            moment.acts.remove(act)
            if not moment.acts:
                moment.timer.cancel()
                del moments[moment_s]


def _come(moments: dict[float, _Moment], moment_s: float) -> None:
    for act in moments.pop(moment_s).acts:
        act()


async def until_next_moment(each_s: float) -> None:
    """Wait for the next moment of a period of so many seconds."""
    come = asyncio.Event()
    with at_moment(next_moment_s(each_s), come.set):
        await come.wait()
