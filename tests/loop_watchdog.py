"""Measures how long an event loop is held in one piece, so that a test can say: never above 5 ms.

In a test::

    with watched_loop() as watch:
        await something()
    assert watch.longest_cpu_s < LIMIT_S, watch.report

One piece is one callback of the loop: a task from one `await` that waits to the next. It is measured in CPU time of the
loop's thread, so that a busy machine and other threads do not count; `longest_wall_s` has the waiting in it, which is
what a blocking call on the loop costs. What was there before is frozen for the garbage collector meanwhile: a test
process holds far more than a gateway does.

A piece that is too long each time is a fault; once is chance. `shortest_of` tells them apart.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

LIMIT_S = 0.005


@dataclass
class LoopWatch:
    """What was seen.

    Attributes:
        longest_cpu_s: CPU time of the longest piece.
        longest_wall_s: of the piece that took longest by the clock.
        report: what the longest piece was, and where it stood when it was over the limit.
    """

    longest_cpu_s: float = 0.0
    longest_wall_s: float = 0.0
    report: str = "nothing ran"
    _stack: str = field(default="", repr=False)


@contextmanager
def watched_loop(limit_s: float = LIMIT_S) -> Iterator[LoopWatch]:
    """Measure each piece of every loop that runs in this thread inside the block."""
    watch = LoopWatch()
    thread = threading.get_ident()
    run = asyncio.Handle._run
    begun_at: list[float] = []
    over = threading.Event()

    def timed(handle: asyncio.Handle) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        watch._stack = ""
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        begun_at.append(wall_s)
        run(handle)  # raises nothing: it tells the loop of errors
        begun_at.clear()
        if over.is_set():  # the piece in which the block ended: what came after it does not count
            return
        cpu_s, wall_s = time.thread_time() - cpu_s, time.perf_counter() - wall_s
        watch.longest_wall_s = max(watch.longest_wall_s, wall_s)
        if cpu_s > watch.longest_cpu_s:
            watch.longest_cpu_s = cpu_s
            watch.report = f"{cpu_s * 1e3:.1f} ms of CPU, {wall_s * 1e3:.1f} ms in {_name(handle)}\n{watch._stack}"

    def sample() -> None:
        """Note where the thread stands as soon as a piece is over the limit."""
        while not over.wait(limit_s / 4):
            started = begun_at[-1:]
            if started and time.perf_counter() - started[0] > limit_s and not watch._stack:
                watch._stack = _stack_of(sys._current_frames().get(thread))

    gc.collect()
    gc.freeze()
    sampler = threading.Thread(target=sample, name="loop watchdog", daemon=True)
    asyncio.Handle._run = timed  # type: ignore[method-assign]
    sampler.start()
    try:
        yield watch
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        over.set()
        sampler.join()
        gc.unfreeze()


async def shortest_of(work: Callable[[], Awaitable[object]], times: int = 5) -> LoopWatch:
    """Do it until no piece was too long, and so often at most; the watch whose longest piece was the shortest."""
    watches: list[LoopWatch] = []
    while not watches or (watches[-1].longest_cpu_s >= LIMIT_S and len(watches) < times):
        with watched_loop() as watch:
            await work()
        watches.append(watch)
    return min(watches, key=lambda each: each.longest_cpu_s)


def _stack_of(frame: FrameType | None) -> str:
    """The innermost places, without their source: reading it would give the interpreter back to what is watched."""
    places = []
    while frame is not None and len(places) < 12:
        places.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}\n")
        frame = frame.f_back
    return "".join(reversed(places))


def _name(handle: asyncio.Handle) -> str:
    callback = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {task.get_name()} ({getattr(task.get_coro(), '__qualname__', '')})"
    return getattr(callback, "__qualname__", repr(callback))
