"""A few threads that read from a database, each on a connection of its own.

A thread pool of the standard library takes two futures, three locks and a wake-up of the event loop for each call: as
much time as a small read itself. Here a call has one future, and what is read while the loop is busy wakes it once.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gateway.store.arrivals import Arrivals

T = TypeVar("T")

# Whatever waits longer to be read is read by another thread.
HELP_AFTER_S = 0.01


@dataclass(frozen=True, slots=True)
class _Reading:
    work: Callable[[Any], Any]
    done: asyncio.Future[Any]
    arrivals: Arrivals


class Readers:
    """One thread for the small reads of every turn, and helpers that start when a long one holds it up.

    Threads that read at the same time cost more than what they read: after each call of SQLite they wait for one
    another to let the interpreter go. At 100 conversations three take 7 % more CPU for a turn than one.
    """

    def __init__(self, connect: Callable[[], Any], *, most: int) -> None:
        """Nothing is started yet; `connect` opens a connection, `most` is the number of threads."""
        self._connect = connect
        self._most = most
        self._jobs: queue.SimpleQueue[_Reading | None] = queue.SimpleQueue()
        self._calls_for_help: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._arrivals: Arrivals | None = None
        self._is_watched = False
        self._is_closed = False

    async def read(self, work: Callable[[Any], T]) -> T:
        """Run `work` in a thread and return its result; raises what it raises."""
        loop = asyncio.get_running_loop()
        if self._arrivals is None or self._arrivals.loop is not loop:
            self._arrivals, self._is_watched = Arrivals(loop), False
        done: asyncio.Future[T] = loop.create_future()
        if not self._threads:
            self._start(self._jobs.get)
        self._jobs.put(_Reading(work, done, self._arrivals))
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(HELP_AFTER_S, self._look)
        return await done

    async def close(self) -> None:
        """Finish what was asked, then close the connections."""
        self._is_closed = True
        self._jobs.put(None)
        for _ in self._threads:
            self._calls_for_help.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _look(self) -> None:
        """Call a helper where something waits to be read, and look again."""
        self._is_watched = not self._jobs.empty() and not self._is_closed
        if not self._is_watched:
            return
        if len(self._threads) < self._most:
            self._start(self._next_when_called)
        self._calls_for_help.put(None)
        asyncio.get_running_loop().call_later(HELP_AFTER_S, self._look)

    def _start(self, next_job: Callable[[], _Reading | None]) -> None:
        name = f"store-reader-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(next_job,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _next_when_called(self) -> _Reading | None:
        """The next job; without one, sleep until the next call for help."""
        while True:
            try:
                return self._jobs.get_nowait()
            except queue.Empty:
                self._calls_for_help.get()

    def _serve(self, next_job: Callable[[], _Reading | None]) -> None:
        connection: Any | None = None
        while (job := next_job()) is not None:
            if job.done.cancelled():
                continue
            value: Any = None
            fault: BaseException | None = None
            try:
                connection = connection or self._connect()
                value = job.work(connection)
            except BaseException as error:  # noqa: BLE001 (the caller gets it; the thread must live on)
                fault = error
            job.arrivals.add(job.done, value, fault)
            del job, value, fault  # nothing is kept while it waits
        self._jobs.put(None)  # the end is for the other threads, too
        if connection is not None:
            connection.close()
