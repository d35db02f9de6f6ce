"""The watchdog on the loop sees what holds it, and nothing else."""

from __future__ import annotations

import asyncio
import time

from tests.loop_watchdog import LIMIT_S, shortest_of, watched_loop


def _busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        continue


async def test_a_task_that_computes_for_long_is_seen_with_the_place_where_it_stood() -> None:
    with watched_loop() as watch:
        await asyncio.sleep(0)
        _busy(0.03)
        await asyncio.sleep(0)
    assert watch.longest_cpu_s >= 0.03
    assert "_busy" in watch.report


async def test_work_in_pieces_and_work_in_threads_is_no_fault() -> None:
    async def polite() -> None:
        await asyncio.to_thread(_busy, 0.02)
        for _ in range(20):
            _busy(0.001)
            await asyncio.sleep(0)

    watch = await shortest_of(polite)
    assert watch.longest_cpu_s < LIMIT_S, watch.report
