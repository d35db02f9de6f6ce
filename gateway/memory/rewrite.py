"""One replacement of a document, start to end, in a thread, while the lock is held.

The order: look, work the new text out, have the journal record it while the next version is written beside the file
with its evidence, compare, rename, fsync the directory, settle in the journal. It may be cut anywhere: what is in the
file is told by the evidence, and what is not there yet by the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from gateway.errors import FileError, MemoryConflict
from gateway.files import FileSnapshot, Signature
from gateway.memory.draft import Draft, Wish, draft, overwritten
from gateway.memory.history import History, NoSuchEntry
from gateway.memory.journal import Key, MemoryJournal, Tail, Write
from gateway.memory.live_file import LiveFile, Look, Staged, Step
from gateway.memory.paths import DocumentPlace
from gateway.protocols import MemoryScope, UpdateOutcome

T = TypeVar("T")
Result = UpdateOutcome | MemoryConflict

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
class Rewritten:
    """What became of the wishes, and the journal's settling, which need not be waited for under the lock."""

    results: dict[Key, Result] = field(default_factory=dict)
    settled: Future[None] | None = None


@dataclass(frozen=True, slots=True)
class _Base:
    """What the new text starts from.

    Attributes:
        overtaken: these bytes when they are not the file's, but a save that went into the replaced version.
        again: what such a save, or another one by hand, took back without meaning to.
    """

    data: bytes
    overtaken: bytes | None = None
    again: Sequence[Wish] = ()


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
        """Prepare; nothing is read yet.

        Args:
            place: of the document.
            journal: used on `loop`, which must not be the caller's thread's.
            max_bytes: what the file may hold.
            on_step: told of every step.
            loop: the event loop that the journal belongs to.
        """
        self._place = place
        self._journal = journal
        self._max_bytes = max_bytes
        self._step = on_step
        self._loop = loop
        self._file = LiveFile(place.path, on_step)
        self._is_first = True
        self.known: Known | None = None

    def rewrite(self, scope: MemoryScope, wishes: Sequence[Wish]) -> Rewritten:
        """Bring the wishes in, in order, each key once.

        Raises:
            FileError: nothing was written now.
            StoreError: the journal could not be written, and so the file was not.
        """
        made = Rewritten()
        unique = {wish.ask.key: wish for wish in reversed(wishes)}
        ordered = [wish for wish in wishes if unique[wish.ask.key] is wish]
        for _ in range(_TRIES):
            rest = [wish for wish in ordered if wish.ask.key not in made.results]
            published = self._attempt(made, scope, rest)
            if published == "overtaken":
                self._attempt(made, scope, [])  # if this fails, the next rewrite sees it too
            if published != "refused":
                return made
        raise FileError(f"{self._place.path} is being saved by an editor again and again; the update is kept for later")

    def _attempt(self, made: Rewritten, scope: MemoryScope, wishes: Sequence[Wish]) -> str:
        look = self._file.look()
        self._step("looked")
        found = [wish.ask.key for wish in wishes if self._file.has_applied(look, wish.ask.key)]
        if found:
            self._call(self._journal.settle(dict.fromkeys(found, "applied"))).result()
            made.results.update(dict.fromkeys(found, "replayed"))
        rest = [wish for wish in wishes if wish.ask.key not in made.results]
        base = _Base(look.data)
        # A person who has this very text on the screen, and saves another, has seen what was taken back.
        if not self._is_known(look) and all(wish.expected_version != look.sha256 for wish in rest):
            look, base = self._rebase(look)
        new = draft(base.data, [*base.again, *rest], max_bytes=self._max_bytes)
        published = self._write(made, scope, look, base, new)
        if published != "refused":
            made.results.update(new.conflicts)
            made.results.update(new.outcomes)
            self._settle(made, new, look)
        return published

    def _write(self, made: Rewritten, scope: MemoryScope, look: Look, base: _Base, new: Draft) -> str:
        is_new = new.after != look.data
        if not is_new and not new.changes:
            return "placed"
        write = Write(
            document=self._place.key,
            store=self._place.store,
            found=look.data,
            found_hash=look.sha256,
            changes=new.changes,
            after=new.after,
            scope=scope,
            at=datetime.now(UTC),
            overtaken=base.overtaken,
        )
        recording = self._call(self._journal.record(write))  # while the next version goes to the disk
        staged: Staged | None = None
        try:
            if is_new:
                staged = self._file.stage(new.after, [change.ask.key for change in new.changes], look)
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
            self.known = Known(staged.signature, new.hash, look.signature)
        return published

    def _settle(self, made: Rewritten, new: Draft, look: Look) -> None:
        """Settle, and now and then tidy up: what is removed then was made durable before."""
        leftovers = len(look.evidence) + len(look.staged) + len(look.stale)
        is_due = leftovers >= (1 if self._is_first else _TIDY_AT)
        self._is_first = False
        if not new.outcomes:
            return
        made.settled = self._call(self._journal.settle(new.outcomes, is_durable=is_due))
        if is_due:
            made.settled.result()
            pending = self._call(self._journal.pending(self._place.key)).result()
            self._file.tidy(pending)

    # ---- hand edits -------------------------------------------------------------------------------------------------

    def _is_known(self, look: Look) -> bool:
        known = self.known
        return (
            known is not None
            and look.signature == known.signature
            and look.sha256 == known.sha256
            and look.previous == known.previous
        )

    def _rebase(self, look: Look) -> tuple[Look, _Base]:
        """What to start from when the file is not as we left it; looks again when it is not as any of us left it.

        It is the file's own text, but for one case: an editor opened the file, we replaced it, and the editor then
        saved into the version before. That save is what the person means to be there.
        """
        tail = self._tail(look)
        if tail.hash not in (None, look.sha256):
            look = self._file.look(is_edited=True)
            tail = self._tail(look)
        if tail.hash in (None, look.sha256):
            late = self._late_save(look, tail)
            if late is None:
                return look, _Base(look.data)
            return look, _Base(late.data, late.data, self._overwritten(late.data, late.signature))
        if look.signature is None:
            return look, _Base(look.data)  # a file that was deleted was not deleted by mistake
        return look, _Base(look.data, None, self._overwritten(look.data, look.signature))

    def _tail(self, look: Look) -> Tail:
        """The end of the history, after settling what is in the file and was not settled yet."""
        tail = self._call(self._journal.tail(self._place.key)).result()
        landed = [key for key in tail.unsettled if self._file.has_applied(look, key)]
        if not landed:
            return tail
        self._call(self._journal.settle(dict.fromkeys(landed, "applied"))).result()
        return self._call(self._journal.tail(self._place.key)).result()

    def _overwritten(self, edited: bytes, signature: Signature) -> list[Wish]:
        """What the edit took back without having seen it."""
        moment = datetime.fromtimestamp(signature.mtime_ns / 1e9, UTC) - OVERWRITTEN_WITHIN
        unseen = self._call(self._journal.since(self._place.key, moment)).result()
        if not unseen:
            return []
        newest = self._call(self._journal.entries(self._place.key, 1)).result()
        try:
            ours = self._call(History(self._journal).text_after(newest[0])).result()
        except NoSuchEntry:  # a power cut took it; what the person wrote stands
            return []
        return overwritten(edited, unseen, ours)

    def _late_save(self, look: Look, tail: Tail) -> FileSnapshot | None:
        """A save into the version before, which must be younger than the file and not one of the journal's texts."""
        known = self.known
        if look.previous is None or look.signature is None or tail.hash is None:
            return None
        if known is not None and known.signature == look.signature and known.previous == look.previous:
            return None
        if look.previous.mtime_ns < look.signature.mtime_ns:
            return None
        late = self._file.read_previous()
        if late is None or not late.data:
            return None
        is_ours = self._call(self._journal.knows(self._place.key, late.sha256)).result()
        return None if is_ours else late

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
