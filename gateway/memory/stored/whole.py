"""A document with all that is kept of it: for copies to another memory, and for erasures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

from gateway.memory import rules
from gateway.memory.journal import JournalEntry
from gateway.memory.paths import scope_of_key
from gateway.memory.stored.change import StoredDocument, edit_by_hand
from gateway.protocols import ListsDocuments


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeDocument:
    """A document, its history (oldest first) and the oldest lines of a text that became too long."""

    document: StoredDocument
    entries: Sequence[JournalEntry] = ()
    archive: bytes = b""

    @property
    def is_there(self) -> bool:
        """Whether there is a document, and not only its history."""
        return self.document.modified_at is not None


@runtime_checkable
class CopiesMemory(ListsDocuments, Protocol):
    """A memory whose documents can be read and put in place with all that is kept of them.

    The keys are those of `ListsDocuments`, and originals from before links: `users/<id>/before-<link>/USER.md`. Every
    method raises `FileError` or `MemoryUnavailable` where the memory cannot be used now.
    """

    async def whole(self, key: str) -> WholeDocument:
        """A document with its history, oldest first, and its archive; an empty one where there is none."""

    async def numbers(self, count: int) -> int:
        """The first of so many ids for entries, which no other entry gets."""

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        """Keep this, and nothing else, of a document; None: nothing at all. The entries have their ids.

        Returns:
            False where the document is another by now; then nothing was changed.
        """


def with_edit_noted(key: str, whole: WholeDocument) -> WholeDocument:
    """The document with an entry for the text that somebody put there by hand, if they did; always the same one."""
    document = whole.document
    found = rules.version(document.data)
    if found == document.sha256:  # as it always is of originals from before links, which have no scope
        return whole
    scope, store = scope_of_key(key)
    edits = edit_by_hand(document, scope, key, store, document.modified_at or datetime.fromtimestamp(0, UTC))
    noted = replace(document, sha256=found, position=document.position + 1)
    return replace(whole, document=noted, entries=[*whole.entries, *edits])


def with_ids(entries: Sequence[JournalEntry], ids: Sequence[int]) -> Sequence[JournalEntry]:
    """The entries with these ids; what one refers to is named by its new id, 0 if it is gone."""
    new = {entry.id: number for entry, number in zip(entries, ids, strict=True) if entry.id}
    return [
        replace(
            entry,
            id=number,
            request=entry.request
            if entry.request.refers_to is None
            else replace(entry.request, refers_to=new.get(entry.request.refers_to, 0)),
        )
        for entry, number in zip(entries, ids, strict=True)
    ]


def is_same_history(one: Sequence[JournalEntry], other: Sequence[JournalEntry]) -> bool:
    """Whether two histories say the same, whatever ids their entries have."""
    return len(one) == len(other) and with_ids(one, range(len(one))) == with_ids(other, range(len(one)))


def without_person(
    whole: WholeDocument, user_ids: Collection[str], lines: Collection[str], links: Collection[str] = ()
) -> WholeDocument:
    """The document without what only this person's turns added, and its history without the person.

    Where the person changed something, changes of others stay in it, but cannot be undone any more: the text to restore
    may name the person.

    Args:
        links: of the person with others. What came in with one, and went with its end, is the person's.
    """
    theirs = [entry for entry in whole.entries if _is_of(entry, user_ids, links)]
    others = [entry for entry in whole.entries if not _is_of(entry, user_ids, links)]
    if not theirs and not lines:
        return whole
    gone = {*lines, *_added_lines(theirs)} - {
        line for entry in others if entry.request.action == "add" for line in _lines(entry.request.content)
    }
    kept = [
        replace(
            entry,
            request=replace(entry.request, content=rules.without_lines(entry.request.content, gone)),
            delta=None,
            checkpoint=None,
        )
        for entry in others
    ]
    data = rules.encode(rules.without_lines(rules.decode(whole.document.data), gone))
    return WholeDocument(
        document=replace(whole.document, data=data, sha256=rules.version(data)),
        entries=kept,
        archive=rules.encode(rules.without_lines(rules.decode(whole.archive), gone)),
    )


def _is_of(entry: JournalEntry, user_ids: Collection[str], links: Collection[str]) -> bool:
    scope = entry.request.scope
    match scope.turn_id.split(":"):
        case ["link" | "unlink", link_id, *_] if link_id in links:
            return True
    return scope.user_id in user_ids or scope.author_id in user_ids


def _added_lines(entries: Sequence[JournalEntry]) -> set[str]:
    found: set[str] = set()
    for entry in entries:
        new = _lines(rules.show(entry.delta.inserted)) if entry.delta else set()
        if entry.request.action == "add":
            new |= _lines(entry.request.content)
        found |= new - (_lines(rules.show(entry.delta.removed)) if entry.delta else set())
    return found


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n") if line.strip()}
