"""The one way into a document: all who wait for it in this process share one write, in a thread, under the lock.

The order: look, work the new text out, have the journal record it while the next version is written next to the file
with its evidence, compare, rename, fsync the directory, settle in the journal. It may be cut anywhere: the evidence
says what is in the file, and the journal what is not there yet.

What a person changed by hand is recorded and settled like everything else. So until a version of ours is in place, the
newest entry is the text as we left it, however often somebody saves or a process dies; the same is worked out again.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from gateway.errors import FileError, MemoryConflict, NoSuchEntry
from gateway.files.atomic import FileSnapshot, Signature, make_private_directory
from gateway.files.locks import FileLock
from gateway.memory import rules
from gateway.memory.atomic_document import AtomicDocument, DocumentState, StagedVersion, Step
from gateway.memory.delta import Delta
from gateway.memory.draft import Draft, PendingChange, draft
from gateway.memory.hand_edit import LOOK_BACK, LOOK_BACK_ENTRIES, MergedEdit, both, fit
from gateway.memory.history import rebuilt
from gateway.memory.journal import (
    HASH_OF_NOTHING,
    MERGE,
    Change,
    JournalRequest,
    Key,
    MemoryJournal,
    Tail,
    Write,
)
from gateway.memory.paths import DocumentPlace
from gateway.protocols import MemoryOutcome, MemoryScope, UpdateOutcome

T = TypeVar("T")

# A caller that was just served needs a few turns of the event loop to come again, and then shares the next write.
_TURNS_TO_COME_AGAIN = 4

Result = UpdateOutcome | MemoryConflict
_TIDY_AT = 64
_NEWEST = 1 << 62
_TRIES = 100
_CLOCK = timedelta(milliseconds=10)
"""A file's time may be so much older than the clock's: the kernel takes it from its last tick."""
_SAVING = timedelta(seconds=10)
"""So long an editor takes at most from writing a file to renaming it."""


@dataclass(slots=True)
class _Job:
    scope: MemoryScope
    pending: Sequence[PendingChange]
    done: asyncio.Future[list[Result]]


class DocumentWriter:
    """Gathers the changes of all tasks of an event loop for one document."""

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
        """Whether no caller waits."""
        return not self._tasks

    @property
    def trusted(self) -> Signature | None:
        """The signature of our own last write."""
        known = None if self._rewriter is None else self._rewriter.known
        return None if known is None else known.signature

    async def apply(self, scope: MemoryScope, pending: Sequence[PendingChange]) -> list[Result]:
        """Bring the changes in, in order; what became of each.

        A caller that is cancelled does not stop what it asked for.

        Raises:
            FileError: nothing of it was written now.
            StoreError: the journal could not be written.
        """
        job = _Job(scope, pending, asyncio.get_running_loop().create_future())
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
        """One rewrite after the other, each for all callers that wait by then, until none does."""
        jobs: list[_Job] = []
        noting: asyncio.Task[Mapping[Key, MemoryOutcome]] | None = None
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
                        pending = [each for job in jobs for each in job.pending]
                        noting = self._note(pending)
                        made = await _in_thread(rewriter.rewrite, jobs[0].scope, pending)
                except Exception as error:  # noqa: BLE001 (every caller gets it, and the next rewrite is a new try)
                    if not jobs:
                        jobs, self._queue = self._queue, []
                    noting = noting or self._note([each for job in jobs for each in job.pending])
                    await asyncio.gather(noting, return_exceptions=True)  # what failed is tried again later
                    _fail(jobs, error)
                else:
                    await _deliver(jobs, made, noting)
                    for _ in range(_TURNS_TO_COME_AGAIN):
                        await asyncio.sleep(0)
                jobs, noting = [], None
        finally:
            self._is_draining = False
            _fail([*jobs, *self._queue], asyncio.CancelledError())  # none, unless the event loop is ending
            self._queue = []

    def _note(self, pending: Sequence[PendingChange]) -> asyncio.Task[Mapping[Key, MemoryOutcome]]:
        """Have the journal note all that is asked for, at once; it takes its calls in order, so before the rewrite's.

        Returns:
            What was settled before.
        """
        return asyncio.create_task(self._begin([each.request for each in pending if each.data is None]))

    async def _begin(self, requests: Sequence[JournalRequest]) -> Mapping[Key, MemoryOutcome]:
        if not requests:
            return {}
        settled = await self._journal.begin(requests)
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


async def _deliver(
    jobs: Sequence[_Job], made: RewriteResult, noting: asyncio.Task[Mapping[Key, MemoryOutcome]]
) -> None:
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
        for each in job.pending:
            result = made.results[each.request.key]
            is_old = each.request.key in settled or (each.request.key in told and result == "applied")
            results.append("replayed" if is_old else result)
            told.add(each.request.key)
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


@dataclass(frozen=True, slots=True)
class LastWrite:
    """Our own last write: its signature and hash, and the signature of the version that it replaced."""

    signature: Signature | None
    sha256: str
    previous: Signature | None


@dataclass(slots=True)
class RewriteResult:
    """What became of the changes, and the journal's settling, which need not be waited for under the lock."""

    results: dict[Key, Result] = field(default_factory=dict)
    settled: Future[None] | None = None


@dataclass(frozen=True, slots=True)
class _Start:
    """What the updates start from, and the changes by hand that lead there from the text as we left it."""

    data: bytes
    edits: Sequence[Change] = ()


@dataclass(frozen=True, slots=True)
class _Save:
    """What a person saved, and when; nothing where they removed the file."""

    data: bytes
    sha256: str
    at: datetime


class Rewriter:
    """Rewrites one document; knows what it wrote last. Its methods block."""

    def __init__(
        self,
        place: DocumentPlace,
        journal: MemoryJournal,
        *,
        max_bytes: int,
        on_step: Step,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """The journal is used on `loop`, which must not be the caller's thread's; `max_bytes` is of the file."""
        self.place = place
        self._journal = journal
        self._max_bytes = max_bytes
        self._step = on_step
        self._loop = loop
        self._file = AtomicDocument(place.path, on_step)
        self._is_first = True
        self._settled: Future[None] | None = None
        self.known: LastWrite | None = None

    def rewrite(self, scope: MemoryScope, pending: Sequence[PendingChange]) -> RewriteResult:
        """Bring the changes in, in order, each key once.

        Raises:
            FileError: nothing was written now.
            StoreError: the journal could not be written, and so the file was not.
        """
        made = RewriteResult()
        if self._settled is not None and self._settled.done() and self._settled.exception() is not None:
            self.known = None  # what is in place has to be settled first
        unique = {each.request.key: each for each in reversed(pending)}
        ordered = [each for each in pending if unique[each.request.key] is each]
        for _ in range(_TRIES):
            rest = [each for each in ordered if each.request.key not in made.results]
            published = self._attempt(made, scope, rest)
            if published == "overtaken":
                self._attempt(made, scope, [])  # if this fails, the next rewrite sees it too
            if published != "refused":
                return made
        raise FileError(f"{self.place.path} is being saved by an editor again and again; the update is kept for later")

    def _attempt(self, made: RewriteResult, scope: MemoryScope, pending: Sequence[PendingChange]) -> str:
        look = self._file.look()
        if look.replaced:
            self._file.finish_exchange(look)
            look = self._file.look()
        self._step("looked")
        found = [each.request.key for each in pending if self._file.has_applied(look, each.request.key)]
        if found:
            self._call(self._journal.settle(dict.fromkeys(found, "applied"))).result()
            made.results.update(dict.fromkeys(found, "replayed"))
        rest = [each for each in pending if each.request.key not in made.results]
        look, start = self._start(look, scope, rest)
        new = draft(start.data, rest, max_bytes=self._max_bytes)
        published = self._write(made, look, start, new)
        if published != "refused":
            made.results.update(new.conflicts)
            made.results.update(new.outcomes)
            self._settle(made, start, new, look)
        return published

    def _write(self, made: RewriteResult, look: DocumentState, start: _Start, new: Draft) -> str:
        is_new = new.after != look.data
        if not is_new and not _is_told(new):
            return "placed"
        changes = [*start.edits, *new.changes]
        write = Write(document=self.place.key, changes=changes, after=new.after, at=datetime.now(UTC))
        recording = self._call(self._journal.record(write))  # while the next version goes to the disk
        staged: StagedVersion | None = None
        try:
            if is_new:
                staged = self._file.stage(new.after, [change.request.key for change in changes], look)
            settled = recording.result()
        except BaseException:
            if staged is not None:
                self._file.unstage(staged)
            raise
        self._step("recorded")
        if settled:
            made.results.update(dict.fromkeys(settled, "replayed"))
            if staged is not None:
                self._file.unstage(staged)
            return "refused"
        if staged is None:
            return "placed"
        published = self._file.publish(staged, look, new.cut)
        if published != "refused":
            self.known = LastWrite(staged.signature, new.hash, look.signature)
        return published

    def _settle(self, made: RewriteResult, start: _Start, new: Draft, look: DocumentState) -> None:
        """Settle, and now and then tidy up: what is removed then was made durable before."""
        leftovers = len(look.evidence) + len(look.staged) + len(look.stale)
        is_due = leftovers >= (1 if self._is_first else _TIDY_AT)
        self._is_first = False
        outcomes = new.outcomes
        if _is_told(new) or new.after != look.data:
            outcomes = {**dict.fromkeys((edit.request.key for edit in start.edits), "applied"), **outcomes}
        if not outcomes:
            return
        self._settled = made.settled = self._call(self._journal.settle(outcomes, is_durable=is_due))
        if is_due:
            made.settled.result()
            pending = self._call(self._journal.pending(self.place.key)).result()
            self._file.tidy(pending)

    # ---- hand edits -------------------------------------------------------------------------------------------------

    def _start(
        self, look: DocumentState, scope: MemoryScope, pending: Sequence[PendingChange]
    ) -> tuple[DocumentState, _Start]:
        """What to start from; looks again when the file is not as any of us left it.

        It is the file's own text, but for two cases. A person saved a text that they had opened before our last
        changes: then these are in it, too. And an editor had the file open, we replaced it, and the editor then saved
        into the version before: then that save counts. Both may have happened: then both do.
        """
        if self.known == LastWrite(look.signature, look.sha256, look.previous):
            return look, _Start(look.data)
        tail = self._tail(look)
        if tail.hash not in (None, look.sha256):
            look = self._file.look(is_edited=True)
            tail = self._tail(look)
        if tail.hash is None:
            return look, _Start(look.data)
        found = self._late_save(look, tail)
        late = None if found is None else self._save(found, tail)
        if tail.hash == look.sha256:
            return look, (_Start(look.data) if late is None else self._edited(tail, scope, late, is_late=True))
        saved = FileSnapshot(look.data, look.signature, look.sha256) if look.signature is not None else None
        # A person who has this very text on the screen, and saves another, has seen what it lacks.
        is_read = any(each.expected_version == look.sha256 for each in pending)
        return look, self._edited(tail, scope, self._save(saved, tail), late=late, is_read=is_read)

    def _tail(self, look: DocumentState) -> Tail:
        """The end of the history, after settling what is in the file and was not settled yet."""
        tail = self._call(self._journal.tail(self.place.key)).result()
        landed = [key for key in tail.unsettled if self._file.has_applied(look, key)]
        if not landed:
            return tail
        self._call(self._journal.settle(dict.fromkeys(landed, "applied"))).result()
        return self._call(self._journal.tail(self.place.key)).result()

    def _save(self, saved: FileSnapshot | None, tail: Tail) -> _Save:
        now = datetime.now(UTC)
        if saved is None:
            return _Save(b"", HASH_OF_NOTHING, now)
        at = datetime.fromtimestamp(saved.signature.mtime_ns / 1e9, UTC)
        if tail.at is not None and at < tail.at:  # a file that was put here with its time
            at = now
        return _Save(saved.data, saved.sha256, at)

    def _edited(
        self,
        tail: Tail,
        scope: MemoryScope,
        save: _Save,
        *,
        late: _Save | None = None,
        is_read: bool = False,
        is_late: bool = False,
    ) -> _Start:
        """A hand edit of the text as we left it, and what a save that came too late for it changed."""
        before = tail.hash or HASH_OF_NOTHING
        at = min(save.at, datetime.now(UTC))
        since = min(save.at, tail.at or save.at) - LOOK_BACK
        entries = self._call(self._journal.past(self.place.key, since, LOOK_BACK_ENTRIES)).result()
        ours = self._ours(before)
        edit = Change(
            request=self._edit(scope, f"edit:{uuid.uuid4().hex}", at),
            hash_before=before,
            hash_after=save.sha256,
            delta=None if ours is None else Delta.between(ours, save.data),
            checkpoint=save.data,
        )
        if ours is None:
            return _Start(save.data, [edit])
        fitted = MergedEdit(save.data)
        if save.data.strip() and not is_read:
            fitted = fit(save.data, save.at, ours, entries, is_late=is_late)
        if late is not None:
            fitted = both(fitted, fit(late.data, late.at, ours, entries, is_late=True), ours, entries)
        if fitted.data == save.data:
            return _Start(save.data, [edit])
        merge = Change(
            request=self._merge(scope, at, fitted),
            hash_before=save.sha256,
            hash_after=rules.version(fitted.data),
            delta=Delta.between(save.data, fitted.data),
        )
        return _Start(fitted.data, [edit, merge])

    def _ours(self, text_hash: str) -> bytes | None:
        """The text as we left it; None where a power cut took it: then what the person wrote stands."""
        if text_hash == HASH_OF_NOTHING:
            return b""
        chain = self._call(self._journal.chain(self.place.key, _NEWEST)).result()
        try:
            return rebuilt(chain[-1], chain) if chain and chain[-1].hash_after == text_hash else None
        except NoSuchEntry:
            return None

    def _edit(self, scope: MemoryScope, turn_id: str, at: datetime) -> JournalRequest:
        """Of a change by hand: who made it is not known."""
        unknown = replace(scope, user_id=None, author_id=None, session_id=None, channel=None, turn_id=turn_id)
        store = self.place.store
        return JournalRequest(
            scope=unknown, index=0, document=self.place.key, store=store, action="edit", content="", at=at
        )

    def _merge(self, scope: MemoryScope, at: datetime, fitted: MergedEdit) -> JournalRequest:
        """Of the change that brings back what an editor had not read; with what the edit displaced of it."""
        request = self._edit(scope, f"{MERGE}{uuid.uuid4().hex}", at)
        request = replace(request, refers_to=fitted.unread[-1].id)
        proposed = fitted.proposed()
        if proposed is None:
            return request
        entry_id, text = proposed
        entry = self._call(self._journal.entry(entry_id)).result()
        whose = scope if entry is None else entry.request.scope
        content = json.dumps([["add", text]], ensure_ascii=False)
        return replace(request, scope=replace(whose, turn_id=request.scope.turn_id), content=content)

    def _late_save(self, look: DocumentState, tail: Tail) -> FileSnapshot | None:
        """A save into the version before: none of the journal's texts, and not older than our last write.

        Who saves by a rename wrote the file before that, so its time says less.
        """
        known = self.known
        if look.previous is None or tail.at is None:
            return None
        if known is not None and known.signature == look.signature and known.previous == look.previous:
            return None
        tolerance = _CLOCK if look.previous.inode in look.written else _SAVING
        if datetime.fromtimestamp(look.previous.mtime_ns / 1e9, UTC) < tail.at - tolerance:
            return None
        late = self._file.read_previous()
        if late is None or not late.data:
            return None
        is_ours = self._call(self._journal.knows(self.place.key, late.sha256)).result()
        return None if is_ours else late

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


def _is_told(new: Draft) -> bool:
    """Whether an edit that stays as it is becomes an entry now: with a change, or when somebody asks who was first."""
    return bool(new.changes or new.conflicts)
