"""Lanes: one thing at a time in each, many at once, fair among all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

from gateway.lanes import AGAIN, IDLE, Lanes


@asynccontextmanager
async def running(serve: Callable[[str], Awaitable[float | None]], *, workers: int):
    lanes: Lanes[str] = Lanes(serve, workers=workers, after_fault_s=0.001)
    task = asyncio.create_task(lanes.run())
    try:
        yield lanes
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_lane_is_served_by_one_worker_at_a_time_however_often_it_is_woken() -> None:
    served: set[str] = set()
    work = {f"lane{number}": 20 for number in range(50)}

    async def serve(lane: str) -> float | None:
        assert lane not in served
        served.add(lane)
        for _ in range(3):
            await asyncio.sleep(0)
        served.discard(lane)
        work[lane] -= 1
        return AGAIN if work[lane] else IDLE

    async with running(serve, workers=16) as lanes:
        for lane in work:
            lanes.wake(lane)
            lanes.wake(lane)
        await asyncio.wait_for(lanes.idle(), 20)
    assert all(left <= 0 for left in work.values())


async def test_a_lane_with_much_work_delays_another_by_one_piece() -> None:
    order: deque[str] = deque()
    work = {"flood": 10_000, "other": 1}

    async def serve(lane: str) -> float | None:
        order.append(lane)
        work[lane] -= 1
        if len(order) == 100:
            lanes.wake("other")
        return AGAIN if work[lane] else IDLE

    async with running(serve, workers=1) as lanes:
        lanes.wake("flood")
        await asyncio.wait_for(lanes.idle(), 20)
    assert order.index("other") <= 101


async def test_a_lane_that_is_woken_while_it_is_served_is_served_again() -> None:
    times = 0

    async def serve(_lane: str) -> float | None:
        nonlocal times
        times += 1
        if times == 1:
            lanes.wake("a")
        return IDLE

    async with running(serve, workers=2) as lanes:
        lanes.wake("a")
        await asyncio.wait_for(lanes.idle(), 20)
    assert times == 2


async def test_a_fault_in_one_lane_ends_neither_the_lane_nor_the_worker() -> None:
    times = 0
    done = asyncio.Event()

    async def serve(_lane: str) -> float | None:
        nonlocal times
        times += 1
        if times < 3:
            raise RuntimeError("boom")
        done.set()
        return IDLE

    async with running(serve, workers=1) as lanes:
        lanes.wake("a")
        await asyncio.wait_for(done.wait(), 20)
    assert times == 3


async def test_a_lane_that_waits_for_its_time_is_served_earlier_when_it_is_woken() -> None:
    times = 0

    async def serve(_lane: str) -> float | None:
        nonlocal times
        times += 1
        return 3600.0 if times == 1 else IDLE

    async with running(serve, workers=1) as lanes:
        lanes.wake("a")
        await asyncio.wait_for(lanes.idle(), 20)
        assert times == 1
        lanes.wake("a")
        await asyncio.wait_for(lanes.idle(), 20)
        assert times == 2
