"""Moments that regular work shares."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import uvloop

from gateway.runtime.rhythm import at_moment, next_moment_s, until_next_moment


@pytest.mark.parametrize("now_s", [0.0, 0.3, 1_234.56, 987_654.321])
def test_moments_of_longer_periods_are_moments_of_shorter_ones(now_s: float) -> None:
    seconds = [next_moment_s(1.0, now_s=now_s + k) for k in range(20)]
    assert all(0 < moment_s - now_s - k <= 1.01 for k, moment_s in enumerate(seconds))
    for each_s in (2.0, 4.0, 5.0):
        assert next_moment_s(each_s, now_s=now_s) in seconds


def test_a_timer_that_is_early_does_not_come_twice() -> None:
    come_s = next_moment_s(2.0, now_s=100.0)
    assert next_moment_s(2.0, now_s=come_s - 1e-6) == come_s + 2.0
    assert next_moment_s(2.0, now_s=come_s) == come_s + 2.0


async def test_one_waits_until_the_moment() -> None:
    loop = asyncio.get_running_loop()
    moment_s = next_moment_s(0.05)
    await until_next_moment(0.05)
    assert moment_s <= loop.time() + 1e-3


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_all_that_wait_for_a_moment_go_on_together(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Though each came at a time of its own, in a loop that had much to do."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(_all_wait())


async def _all_wait() -> None:
    loop, went, ticks = asyncio.get_running_loop(), list[int](), 0
    moment_s = next_moment_s(0.2, now_s=loop.time() + 0.3)
    with ExitStack() as stack:
        for number in range(10):
            time.sleep(0.003 * number)  # the loop has more and more to do
            stack.enter_context(at_moment(moment_s, lambda: went.append(ticks)))
            await asyncio.sleep(0)
        while not went:
            ticks += 1
            await asyncio.sleep(0)
    assert went == [ticks] * 10


async def test_who_waits_no_longer_is_not_called() -> None:
    loop, called = asyncio.get_running_loop(), []
    moment_s = loop.time() + 0.05
    with at_moment(moment_s, lambda: called.append("kept")):
        with at_moment(moment_s, lambda: called.append("left")):
            pass
        await asyncio.sleep(0.1)
    with at_moment(loop.time() + 0.01, lambda: called.append("late")):
        pass
    await asyncio.sleep(0.05)
    assert called == ["kept"]
