"""The one way into a document: whoever waits for it in this process shares one write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from gateway.files.atomic import Signature, make_private_directory
from gateway.files.locks import FileLock
from gateway.memory.atomic_document import Step
from gateway.memory.draft import PendingChange
from gateway.memory.journal import Ask, EntryOutcome, Key, MemoryJournal
from gateway.memory.paths import DocumentPlace
from gateway.memory.rewrite import Result, Rewriter, Rewritten
from gateway.protocols import MemoryScope

T = TypeVar("T")

# Whoever was just served needs a few turns of the event loop to come again, and then shares the next write.
_TURNS_TO_COME_AGAIN = 4


@dataclass(slots=True)
class _Job:
    scope: MemoryScope
    wishes: Sequence[PendingChange]
    done: asyncio.Future[list[Result]]


class DocumentWriter:
    """Gathers the wishes of all tasks of an event loop for one document."""

    def __init__(
        self,
        locate: Callable[[], DocumentPlace],
        journal: MemoryJournal,
        *,
        max_bytes: int,
        lock_timeout_s: float,
        on_step: Step,
    ) -> None:
        """Prepare; `locate` finds the document, before each write, because links may lead elsewhere by then."""
        self._locate = locate
        self._journal = journal
        self._step = on_step
        self._lock_timeout_s = lock_timeout_s
        loop = asyncio.get_running_loop()
        self._new_rewriter = partial(Rewriter, journal=journal, max_bytes=max_bytes, on_step=on_step, loop=loop)
        self._rewriter: Rewriter | None = None
        self._queue: list[_Job] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._tasks

    @property
    def trusted(self) -> Signature | None:
        """The signature of our own last write."""
        known = None if self._rewriter is None else self._rewriter.known
        return None if known is None else known.signature

    async def apply(self, scope: MemoryScope, wishes: Sequence[PendingChange]) -> list[Result]:
        """Bring the wishes in, in order; what became of each.

        A caller that is cancelled does not stop what it asked for.

        Raises:
            FileError: nothing of it was written now.
            StoreError: the journal could not be written.
        """
        job = _Job(scope, wishes, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        if not self._is_draining:
            self._is_draining = True
            self._start(self._drain())
        return await job.done

    async def close(self) -> None:
        """Finish what was asked."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="memory-writer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self) -> None:
        """One rewrite after the other, each for all who wait by then, until nobody does."""
        jobs: list[_Job] = []
        noting: asyncio.Task[Mapping[Key, EntryOutcome]] | None = None
        try:
            while self._queue:
                try:
                    place = self._locate()
                    if not place.lock_path.parent.is_dir():
                        await _in_thread(make_private_directory, place.lock_path.parent)
                    rewriter = self._rewriter
                    if rewriter is None or rewriter.place != place:
                        rewriter = self._rewriter = self._new_rewriter(place)
                    async with FileLock(place.lock_path, self._lock_timeout_s):
                        jobs, self._queue = self._queue, []
                        wishes = [wish for job in jobs for wish in job.wishes]
                        noting = self._note(wishes)
                        made = await _in_thread(rewriter.rewrite, jobs[0].scope, wishes)
                except Exception as error:  # noqa: BLE001 (every caller gets it, and the next rewrite is a new try)
                    if not jobs:
                        jobs, self._queue = self._queue, []
                    noting = noting or self._note([wish for job in jobs for wish in job.wishes])
                    await asyncio.gather(noting, return_exceptions=True)  # what failed is tried again later
                    _fail(jobs, error)
                else:
                    await _deliver(jobs, made, noting)
                    for _ in range(_TURNS_TO_COME_AGAIN):
                        await asyncio.sleep(0)
                jobs, noting = [], None
        finally:
            self._is_draining = False
            _fail([*jobs, *self._queue], asyncio.CancelledError())  # nobody, unless the event loop is ending
            self._queue = []

    def _note(self, wishes: Sequence[PendingChange]) -> asyncio.Task[Mapping[Key, EntryOutcome]]:
        """Have the journal note all that is asked for, at once; it takes its calls in order, so before the rewrite's.

        Returns:
            What was settled before.
        """
        return asyncio.create_task(self._begin([wish.ask for wish in wishes if wish.data is None]))

    async def _begin(self, asks: Sequence[Ask]) -> Mapping[Key, EntryOutcome]:
        if not asks:
            return {}
        settled = await self._journal.begin(asks)
        self._step("begun")
        return settled


async def _in_thread(work: Callable[..., T], *args: object) -> T:
    """Run blocking work in a thread. It is never left behind: a cancelled caller waits for it, with the lock held."""
    future = asyncio.get_running_loop().run_in_executor(None, work, *args)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


async def _deliver(jobs: Sequence[_Job], made: Rewritten, noting: asyncio.Task[Mapping[Key, EntryOutcome]]) -> None:
    """Give each caller its own report once the journal has it; a key that two asked for was applied for the first."""
    try:
        settled = await noting
        if made.settled is not None:
            await asyncio.wrap_future(made.settled)
    except BaseException as error:
        _fail(jobs, error)
        if isinstance(error, Exception):
            return
        raise
    told: set[Key] = set()
    for job in jobs:
        results: list[Result] = []
        for wish in job.wishes:
            result = made.results[wish.ask.key]
            is_old = wish.ask.key in settled or (wish.ask.key in told and result == "applied")
            results.append("replayed" if is_old else result)
            told.add(wish.ask.key)
        if not job.done.done():
            job.done.set_result(results)


def _fail(jobs: Sequence[_Job], error: BaseException) -> None:
    for job in jobs:
        if job.done.done():
            continue
        if isinstance(error, Exception):
            job.done.set_exception(error)
        else:
            job.done.cancel()
