"""From one memory to another: each document with its archive and its history, checked by its hash. May be cut anywhere.

A document that is at the target already is left as it is, so the same call again goes on where the last one ended. One
that is there with a text of its own is left, too, and named: what is there is replaced only where it is an earlier
version of the same document, or where that is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from gateway.errors import MemoryConflict, NotOffered
from gateway.memory import rules
from gateway.memory.paths import is_document, is_original, scope_of_key
from gateway.memory.stored.change import StoredDocument
from gateway.memory.stored.whole import CopiesMemory, WholeDocument, is_same_history, with_edit_noted, with_ids
from gateway.protocols import EditableMemory, ListsDocuments

_TRIES = 5
State = Literal["copied", "same", "conflict", "differs", "left"]
"""`left`: the target has no place for such a document. `differs`: what was written is not what was read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedDocument:
    """What became of one document.

    Attributes:
        sha256: of the text at the source.
        changes: of its history, which went along.
        lost: what does not go along, in words.
    """

    key: str
    state: State
    size_bytes: int
    sha256: str
    changes: int
    lost: tuple[str, ...] = ()


class TextsOnly:
    """The documents of a memory that gives and takes nothing but texts."""

    def __init__(self, memory: EditableMemory, lists: ListsDocuments) -> None:
        self._memory = memory
        self._lists = lists

    async def keys(self) -> Sequence[str]:
        """See `CopiesMemory`."""
        return await self._lists.keys()

    async def whole(self, key: str) -> WholeDocument:
        """The text alone."""
        scope, store = scope_of_key(key)
        found = await self._memory.read(scope, store)
        data = rules.encode(found.content)
        modified_at = found.modified_at or (datetime.now(UTC) if data else None)
        return WholeDocument(document=StoredDocument(data=data, sha256=found.version, modified_at=modified_at))

    async def put_whole(self, key: str, whole: WholeDocument, *, instead_of: StoredDocument) -> bool:
        """Write the text."""
        scope, store = scope_of_key(key)
        try:
            await self._memory.write(scope, store, rules.show(whole.document.data), instead_of.sha256)
        except MemoryConflict:
            return False
        return True


def copies(memory: object) -> CopiesMemory | TextsOnly:
    """How the documents of a memory are read and put in place.

    Raises:
        NotOffered: the memory cannot say which documents it has.
    """
    if isinstance(memory, CopiesMemory):
        return memory
    if isinstance(memory, EditableMemory) and isinstance(memory, ListsDocuments):
        return TextsOnly(memory, memory)
    raise NotOffered(
        f"{type(memory).__name__} cannot be copied: it does not say which documents it has (`keys`), or gives no texts"
    )


class Copying:
    """Copies one memory to another, document by document."""

    def __init__(self, source: CopiesMemory | TextsOnly, target: CopiesMemory | TextsOnly, *, overwrites: bool) -> None:
        """`overwrites`: a document at the target is replaced, even where it has a text of its own."""
        self._source = source
        self._target = target
        self._overwrites = overwrites
        self._offset: int | None = None

    async def copy(self, key: str) -> CopiedDocument:
        """Copy one document, and read it back.

        Raises:
            FileError, MemoryUnavailable, StoreError: the source or the target cannot be used now; call again.
        """
        if not is_document(key) and not is_original(key):  # it may become a path
            lost: tuple[str, ...] = ("documents with names that are none of a memory's",)
            return CopiedDocument(key=key, state="left", size_bytes=0, sha256="", changes=0, lost=lost)
        whole = await self._source.whole(key)
        lost = self._lost(key, whole)
        copied = CopiedDocument(
            key=key,
            state="same",
            size_bytes=len(whole.document.data),
            sha256=rules.version(whole.document.data),
            changes=0 if self._is_of_texts else len(whole.entries),
            lost=lost,
        )
        if isinstance(self._target, TextsOnly) and not is_document(key):
            return replace(copied, state="left")
        for _ in range(_TRIES):
            there = await self._target.whole(key)
            wanted = self._wanted(key, whole, there)
            if self._is_there(there, wanted):
                return copied
            if not (self._overwrites or self._may_replace(there, wanted)):
                return replace(copied, state="conflict")
            if await self._put(key, wanted, there):
                back = await self._target.whole(key)
                return replace(copied, state="copied" if self._is_there(back, wanted) else "differs")
        return replace(copied, state="conflict")  # somebody writes there all the time

    @property
    def _is_of_texts(self) -> bool:
        return isinstance(self._source, TextsOnly) or isinstance(self._target, TextsOnly)

    def _wanted(self, key: str, whole: WholeDocument, there: WholeDocument) -> WholeDocument:
        """What the target shall have: with an entry for an edit by hand that the source has not noted yet."""
        if isinstance(self._target, TextsOnly):
            return whole
        if not isinstance(self._source, TextsOnly):
            return with_edit_noted(key, whole)
        document = replace(there.document, data=whole.document.data, modified_at=whole.document.modified_at)
        return with_edit_noted(key, replace(there, document=document))  # a change of what is there

    def _is_there(self, there: WholeDocument, wanted: WholeDocument) -> bool:
        if self._is_of_texts:
            return rules.show(there.document.data) == rules.show(wanted.document.data)
        one, other = (
            (each.document.data, each.document.sha256, each.is_there, each.archive) for each in (there, wanted)
        )
        return one == other and is_same_history(there.entries, wanted.entries)

    def _may_replace(self, there: WholeDocument, wanted: WholeDocument) -> bool:
        """Whether nothing is lost with what is there: it is an earlier version of the same document."""
        if self._is_of_texts:
            return not there.document.data.strip()
        texts = {rules.version(wanted.document.data)}
        texts |= {each for entry in wanted.entries for each in (entry.hash_before, entry.hash_after) if each}
        known = {entry.request.key for entry in wanted.entries}
        is_known = not there.is_there or rules.version(there.document.data) in texts
        return is_known and wanted.archive.startswith(there.archive) and _applied(there) <= known

    async def _put(self, key: str, wanted: WholeDocument, there: WholeDocument) -> bool:
        if isinstance(self._target, TextsOnly):
            return await self._target.put_whole(key, wanted, instead_of=there.document)
        new = replace(wanted, entries=with_ids(wanted.entries, await self._ids(self._target, wanted)))
        return await self._target.put_whole(key, new, instead_of=there.document)

    async def _ids(self, target: CopiesMemory, wanted: WholeDocument) -> Sequence[int]:
        """Ids of the target for a history, in the order that the entries of all documents have at the source.

        One that the source does not have yet, as an edit by hand, is the newest.
        """
        old = sorted(entry.id for entry in wanted.entries if entry.id)
        if isinstance(self._source, TextsOnly):
            old = []
        elif old and self._offset is None:
            end = await self._source.numbers(1)  # above all of its ids
            self._offset = await target.numbers(end) - 1
        count = len(wanted.entries) - len(old)
        first = await target.numbers(count) if count else 0
        return [*((self._offset or 0) + each for each in old), *range(first, first + count)]

    def _lost(self, key: str, whole: WholeDocument) -> tuple[str, ...]:
        """What of a document has no place at the target."""
        if not isinstance(self._target, TextsOnly):
            return ()
        if not is_document(key):
            return ("originals from before links: after `/unlink`, what came in with the link stays",)
        found = []
        if whole.entries:
            found.append("histories: no change from before the copy can be listed, explained or taken back")
        if whole.archive:
            found.append("archives: the oldest lines of texts that became too long")
        if rules.encode(rules.show(whole.document.data)) != whole.document.data:
            found.append("bytes that are no UTF-8 text, and other line ends than LF")
        return tuple(found)


def left_behind(documents: Collection[CopiedDocument]) -> Sequence[str]:
    """One line for each sort of thing that did not go along."""
    counts: dict[str, int] = {}
    for document in documents:
        for what in document.lost:
            counts[what] = counts.get(what, 0) + 1
    return [f"{what} ({count} document{'s' if count > 1 else ''})" for what, count in counts.items()]


def _applied(whole: WholeDocument) -> set[tuple[str, int]]:
    return {entry.request.key for entry in whole.entries if entry.outcome == "applied"}
