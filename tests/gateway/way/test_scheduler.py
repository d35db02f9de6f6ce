"""The fair queue (`scheduler.py`): one thing at a time in each, many at once, fair among all."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

from gateway.pipeline.scheduler import AGAIN, IDLE, FairQueue


@asynccontextmanager
async def running(
    serve: Callable[[str], Awaitable[float | None]], *, workers: int, workers_per_party: int | None = None
):
    lanes = FairQueue(
        serve,  # type: ignore[arg-type]
        workers=workers,
        after_fault_s=0.001,
        workers_of=lambda _party: workers_per_party or workers,
    )
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
        await asyncio.wait_for(lanes.idle(), 60)
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
        await asyncio.wait_for(lanes.idle(), 60)
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
        await asyncio.wait_for(lanes.idle(), 60)
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
        await asyncio.wait_for(done.wait(), 60)
    assert times == 3


async def test_a_lane_that_waits_for_its_time_is_served_earlier_when_it_is_woken() -> None:
    times = 0

    async def serve(_lane: str) -> float | None:
        nonlocal times
        times += 1
        return 3600.0 if times == 1 else IDLE

    async with running(serve, workers=1) as lanes:
        lanes.wake("a")
        await asyncio.wait_for(lanes.idle(), 60)
        assert times == 1
        lanes.wake("a")
        await asyncio.wait_for(lanes.idle(), 60)
        assert times == 2


async def test_a_party_with_many_lanes_delays_another_by_one_piece() -> None:
    order: list[str] = []

    async def serve(lane: str) -> float | None:
        order.append(lane)
        if len(order) == 100:
            lanes.wake("other", "ben")
        await asyncio.sleep(0)
        return IDLE

    async with running(serve, workers=1, workers_per_party=4) as lanes:
        for number in range(1_000):
            lanes.wake(f"flood {number}", "ada")
        await asyncio.wait_for(lanes.idle(), 60)
    assert order.index("other") <= 101
    assert len(order) == 1_001


async def test_a_party_has_no_more_workers_than_its_share_and_loses_no_lane_for_it() -> None:
    at_once = {"ada": 0, "ben": 0}
    most = {"ada": 0, "ben": 0}
    served: list[str] = []

    async def serve(lane: str) -> float | None:
        party = lane.split(maxsplit=1)[0]
        at_once[party] += 1
        most[party] = max(most[party], at_once[party])
        for _ in range(3):
            await asyncio.sleep(0)
        at_once[party] -= 1
        served.append(lane)
        return AGAIN if served.count(lane) < 3 else IDLE

    async with running(serve, workers=6, workers_per_party=2) as lanes:
        for number in range(20):
            for party in ("ada", "ben"):
                lanes.wake(f"{party} {number}", party)
        await asyncio.wait_for(lanes.idle(), 60)
    assert most == {"ada": 2, "ben": 2}
    assert len(served) == 120
    assert not lanes._owners
    assert not lanes._owner_of


async def test_a_lane_whose_next_work_is_somebody_elses_waits_with_theirs() -> None:
    order: list[str] = []

    async def serve(lane: str) -> float | None:
        order.append(lane)
        if order.count("group") == 1 and lane == "group":
            lanes.belongs("group", "ben")
            return AGAIN
        return IDLE

    async with running(serve, workers=1) as lanes:
        lanes.wake("group", "ada")
        for number in range(5):
            lanes.wake(f"ada {number}", "ada")
        await asyncio.wait_for(lanes.idle(), 60)
    assert order[:4] == ["group", "ada 0", "group", "ada 1"]


async def test_they_end_though_what_is_served_keeps_its_cancellation_to_itself() -> None:
    """As libraries do that tell an end from outside as a failure of their own."""
    serving = asyncio.Event()

    async def serve(_lane: str) -> float | None:
        try:
            serving.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise TimeoutError from error

    lanes = FairQueue(serve, workers=2, after_fault_s=0.001, workers_of=lambda _party: 2)  # type: ignore[arg-type]
    running = asyncio.create_task(lanes.run())
    lanes.wake("a")
    await serving.wait()
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=60)
    assert done
    assert running.cancelled()


async def test_a_library_that_cancels_its_own_work_takes_no_worker_away() -> None:
    async def serve(lane: str) -> float | None:
        served.append(lane)
        task = asyncio.current_task()
        if lane != "plain" and task is not None:
            task.cancel()  # and nobody takes that back
            with contextlib.suppress(*([asyncio.CancelledError] if lane == "quiet" else [])):
                await asyncio.sleep(0)
        return IDLE

    served: list[str] = []
    async with running(serve, workers=1) as lanes:
        for lane in ("quiet", "loud", "plain"):
            lanes.wake(lane)
        async with asyncio.timeout(60):
            while len(set(served)) < 3:
                await asyncio.sleep(0)
    assert {"quiet", "loud", "plain"} == set(served)
