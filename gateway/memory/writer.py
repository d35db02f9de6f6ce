"""Brings wishes into one document: whoever waits for it in this process shares one write.

The order of a write, under the lock: look, work out the new text, write it beside the file with its evidence, record
in the journal, compare, rename, fsync the directory, settle in the journal. It can be cut anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from gateway.errors import FileError, MemoryConflict
from gateway.files import FileSnapshot, Signature, make_private_directory
from gateway.locks import FileLock
from gateway.memory.draft import Draft, Wish, draft, overwritten
from gateway.memory.journal import JournalEntry, Key, MemoryJournal, Tail, Write
from gateway.memory.live_file import LiveFile, Look, Staged, Step
from gateway.memory.paths import DocumentPlace
from gateway.protocols import MemoryScope, UpdateOutcome

T = TypeVar("T")

OVERWRITTEN_WITHIN = timedelta(seconds=2)
"""A hand edit that lacks an update which is younger than this had not seen it; an older one it meant to take out."""
_TIDY_AT = 64
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Known:
    """Our own last write: its signature and hash, and the signature of the version that it replaced."""

    signature: Signature
    sha256: str
    previous: Signature | None


@dataclass(slots=True)
class _Job:
    scope: MemoryScope
    wishes: Sequence[Wish]
    done: asyncio.Future[list[UpdateOutcome | MemoryConflict]]


@dataclass(slots=True, kw_only=True)
class _Plan:
    """One attempt at a write."""

    look: Look
    found: list[Key]
    draft: Draft
    overtaken: bytes | None
    staged: Staged | None


@dataclass(slots=True)
class _Pass:
    """All that one holding of the lock brings in."""

    scope: MemoryScope
    wishes: dict[Key, Wish]
    results: dict[Key, UpdateOutcome | MemoryConflict] = field(default_factory=dict)
    is_overtaken: bool = False


class DocumentWriter:
    """The one way into a document, for all tasks of an event loop."""

    def __init__(
        self, place: DocumentPlace, journal: MemoryJournal, *, max_bytes: int, lock_timeout_s: float, on_step: Step
    ) -> None:
        self._place = place
        self._journal = journal
        self._max_bytes = max_bytes
        self._lock_timeout_s = lock_timeout_s
        self._step = on_step
        self._file = LiveFile(place.path, on_step)
        self._queue: list[_Job] = []
        self._task: asyncio.Task[None] | None = None
        self._is_first = True
        self.known: Known | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return self._task is None

    async def apply(self, scope: MemoryScope, wishes: Sequence[Wish]) -> list[UpdateOutcome | MemoryConflict]:
        """Bring the wishes in, in order; what became of each.

        A caller that is cancelled does not stop what it asked for.

        Raises:
            FileError: nothing of it was written now.
            StoreError: the journal could not be written.
        """
        job = _Job(scope, wishes, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), name=f"memory-writer {self._place.key}")
        return await job.done

    async def close(self) -> None:
        """Finish what was asked."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        """One pass after the other, each with all who wait by then, until nobody does."""
        jobs: list[_Job] = []
        try:
            while self._queue:
                try:
                    if not self._place.lock_path.parent.is_dir():
                        await _in_thread(make_private_directory, self._place.lock_path.parent)
                    async with FileLock(self._place.lock_path, self._lock_timeout_s):
                        jobs, self._queue = self._queue, []
                        results = await self._pass(jobs)
                    _deliver(jobs, results)
                except Exception as error:  # noqa: BLE001 (every caller gets it, and the next pass is a new try)
                    jobs, self._queue = jobs or self._queue, self._queue if jobs else []
                    _fail(jobs, error)
                jobs = []
        except BaseException as error:
            _fail([*jobs, *self._queue], error)
            self._queue = []
            raise
        finally:
            self._task = None

    # ---- one pass, under the lock -----------------------------------------------------------------------------------

    async def _pass(self, jobs: Sequence[_Job]) -> dict[Key, UpdateOutcome | MemoryConflict]:
        wishes: dict[Key, Wish] = {}
        for job in jobs:
            for wish in job.wishes:
                wishes.setdefault(wish.ask.key, wish)
        work = _Pass(jobs[0].scope, wishes)
        for _ in range(_TRIES):
            plan = await self._attempt(work)
            if plan is not None:
                break
        else:
            raise FileError(f"{self._place.path} is being saved by an editor again and again; the update is kept")
        if work.is_overtaken:
            await self._attempt(_Pass(work.scope, {}))
        return work.results

    async def _attempt(self, work: _Pass) -> _Plan | None:
        """Try to bring in what is left; None when somebody came between, and it is to be tried anew."""
        wishes = [wish for key, wish in work.wishes.items() if key not in work.results]
        plan = await _in_thread(self._plan, wishes, None)
        if plan is None:
            now = datetime.now(UTC)
            tail = await self._journal.tail(self._place.key, now - 10 * OVERWRITTEN_WITHIN)
            plan = await _in_thread(self._plan, wishes, tail)
        if plan is None:
            raise RuntimeError("a plan with the journal's tail is always possible")
        if plan.found:
            await self._journal.settle(dict.fromkeys(plan.found, "applied"))
            work.results.update(dict.fromkeys(plan.found, "replayed"))
        if (plan.draft.changes or plan.staged is not None) and not await self._write(work, plan):
            return None
        leftovers = len(plan.look.evidence) + len(plan.look.staged)
        tidy = bool(plan.draft.outcomes) and leftovers >= (1 if self._is_first else _TIDY_AT)
        self._is_first = False
        if plan.draft.outcomes:
            await self._journal.settle(plan.draft.outcomes, is_durable=tidy)
        self._step("settled")
        if tidy:
            pending = await self._journal.pending(self._place.key)
            await _in_thread(self._file.tidy, pending, self.known and self.known.signature)
        work.results.update(plan.draft.outcomes)
        work.results.update(plan.draft.conflicts)
        return plan

    async def _write(self, work: _Pass, plan: _Plan) -> bool:
        changes, look = plan.draft.changes, plan.look
        write = Write(
            document=self._place.key,
            store=self._place.store,
            found=look.data,
            found_hash=look.sha256,
            changes=changes,
            after=plan.draft.after,
            scope=work.scope,
            at=datetime.now(UTC),
            overtaken=plan.overtaken,
        )
        try:
            settled = await self._journal.record(write)
        except BaseException:
            await _in_thread(self._unstage, plan)
            raise
        self._step("recorded")
        if settled:
            await _in_thread(self._unstage, plan)
            work.results.update(dict.fromkeys(settled, "replayed"))
            return False
        if plan.staged is None:
            return True
        published = await _in_thread(self._file.publish, plan.staged, look, plan.draft.cut)
        if published == "refused":
            return False
        work.is_overtaken = published == "overtaken"
        self.known = Known(plan.staged.signature, plan.draft.hash, look.signature)
        return True

    # ---- in a thread ------------------------------------------------------------------------------------------------

    def _unstage(self, plan: _Plan) -> None:
        if plan.staged is not None:
            self._file.unstage(plan.staged)

    def _plan(self, wishes: Sequence[Wish], tail: Tail | None) -> _Plan | None:
        """Look, work the new text out and put it beside the file; None when the journal must be asked first."""
        known = self.known
        look = self._file.look(known.signature if known else None)
        self._step("looked")
        base, overtaken, again = look.data, None, list[Wish]()
        if tail is not None:
            base, overtaken, again = self._rebase(look, tail)
        elif not _is_known(look, known):
            return None
        found = [wish.ask.key for wish in wishes if self._file.has_applied(look, wish.ask.key)]
        rest = [wish for wish in wishes if wish.ask.key not in found]
        made = draft(base, [*again, *rest], max_bytes=self._max_bytes)
        staged = None
        if made.after != look.data:
            keys = [change.ask.key for change in made.changes]
            staged = self._file.stage(made.after, keys, look)
        return _Plan(look=look, found=found, draft=made, overtaken=overtaken, staged=staged)

    def _rebase(self, look: Look, tail: Tail) -> tuple[bytes, bytes | None, list[Wish]]:
        """The bytes to start from, those of a save that went into the replaced version, and what is to be made again.

        The bytes are the file's own, but for one case: an editor opened the file, we replaced it, and the editor then
        saved into the version before. That save is what the person means to be there.
        """
        ours = tail.hash is None or look.sha256 == tail.hash or look.sha256 in tail.unsettled
        late = self._late_save(look, tail) if ours else None
        if late is not None:
            return late.data, late.data, overwritten(late.data, _since(late.signature, tail))
        if ours or look.signature is None:
            return look.data, None, []
        return look.data, None, overwritten(look.data, _since(look.signature, tail))

    def _late_save(self, look: Look, tail: Tail) -> FileSnapshot | None:
        known = self.known
        if look.previous is None or look.signature is None or tail.hash is None:
            return None
        if known is not None and known.signature == look.signature and known.previous == look.previous:
            return None
        if look.previous.mtime_ns < look.signature.mtime_ns:
            return None
        late = self._file.read_previous()
        if late is None or not late.data or late.sha256 == tail.hash or late.sha256 in tail.earlier:
            return None
        return late


def _is_known(look: Look, known: Known | None) -> bool:
    return (
        known is not None
        and look.signature == known.signature
        and look.sha256 == known.sha256
        and look.previous == known.previous
    )


def _since(edit: Signature, tail: Tail) -> list[JournalEntry]:
    edited_at = datetime.fromtimestamp(edit.mtime_ns / 1e9, UTC)
    return [e for e in tail.recent if e.written_at is not None and e.written_at >= edited_at - OVERWRITTEN_WITHIN]


async def _in_thread(work: Callable[..., T], *args: object) -> T:
    """Run blocking work in a thread. It is never left behind: a cancelled caller waits for it, with the lock held."""
    future = asyncio.get_running_loop().run_in_executor(None, work, *args)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


def _deliver(jobs: Sequence[_Job], results: dict[Key, UpdateOutcome | MemoryConflict]) -> None:
    """Give each caller its own report; a key that two asked for was applied for the first."""
    told: set[Key] = set()
    for job in jobs:
        outcomes: list[UpdateOutcome | MemoryConflict] = []
        for wish in job.wishes:
            outcome = results[wish.ask.key]
            outcomes.append("replayed" if wish.ask.key in told and outcome == "applied" else outcome)
            told.add(wish.ask.key)
        if not job.done.done():
            job.done.set_result(outcomes)


def _fail(jobs: Sequence[_Job], error: BaseException) -> None:
    for job in jobs:
        if job.done.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            job.done.cancel()
        else:
            job.done.set_exception(error)
