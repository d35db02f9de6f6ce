"""The memory journal: what was asked of the memory, by whom and where, and what became of it.

It is written before a file changes, so it is both the history that people read and the means to bring a change to its
end after a crash. An update goes through `begin` (it is known), `record` (the bytes before and after are known, the
file is about to change) and `settle` (the file has changed).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple, Protocol

from gateway.memory.delta import Delta
from gateway.memory.paths import document_key
from gateway.protocols import MemoryAction, MemoryOutcome, MemoryScope, MemoryStoreName, MemoryUpdate

Key = tuple[str, int]
"""Turn id and the update's index in it."""

HASH_OF_NOTHING = sha256(b"").hexdigest()
LATELY_ENTRIES = 1000
MERGE = "merge:"
"""How the turn id of an `edit` begins that brings back what an editor had not read.

Its content is what the edit displaced, until it is settled: JSON, [[action, content], ...].
"""
_CHECKPOINT_EVERY = 64
_BYTES_PER_STEP = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRequest:
    """One change that somebody wants.

    Attributes:
        index: of the update in its turn.
        document: the document's key.
        refers_to: the entry that this one takes back; of an `edit`, the oldest one that the editor had not read and
            that this one brings back.
    """

    scope: MemoryScope
    index: int
    document: str
    store: MemoryStoreName
    action: MemoryAction
    content: str
    at: datetime
    refers_to: int | None = None

    @property
    def key(self) -> Key:
        """What makes a repetition harmless."""
        return (self.scope.turn_id, self.index)

    @property
    def is_by_hand(self) -> bool:
        """Whether it is what a person saved, as they saved it; then `at` is when they did."""
        return self.action == "edit" and self.refers_to is None


def requests_of(scope: MemoryScope, updates: Sequence[MemoryUpdate], at: datetime) -> list[JournalRequest]:
    """The updates of a turn, in their order."""
    return [
        JournalRequest(
            scope=scope,
            index=index,
            document=document_key(scope, update.store) or "",
            store=update.store,
            action=update.action,
            content=update.content,
            at=at,
        )
        for index, update in enumerate(updates)
    ]


def request_to_put(
    scope: MemoryScope, store: MemoryStoreName, document: str, action: MemoryAction, refers_to: int | None = None
) -> JournalRequest:
    """That a document shall have other bytes; a turn of its own, because one scope may write many times."""
    return JournalRequest(
        scope=replace(scope, turn_id=f"{scope.turn_id}:{uuid.uuid4().hex[:12]}"),
        index=0,
        document=document,
        store=store,
        action=action,
        content="",
        at=datetime.now(UTC),
        refers_to=refers_to,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a request does to the bytes; hashes are SHA-256 in hex.

    Attributes:
        delta: None for an `edit` of a text that is not known any more.
        checkpoint: the whole text after it, for an `edit`.
    """

    request: JournalRequest
    hash_before: str
    hash_after: str
    delta: Delta | None
    checkpoint: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One replacement of a file, by what a person changed in it and the changes of one or several turns, in order.

    Attributes:
        after: the bytes that it is about to have.
    """

    document: str
    changes: Sequence[Change]
    after: bytes
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One row.

    Attributes:
        position: its place in the document's history, None until it was recorded.
        written_at: when the file was about to change.
        delta: None for an `edit` of a text that was not known, and where a power cut took it.
        checkpoint: the whole text after it, for some entries.
        outcome: None until it is settled.
    """

    id: int
    request: JournalRequest
    outcome: MemoryOutcome | None = None
    position: int | None = None
    written_at: datetime | None = None
    hash_before: str | None = None
    hash_after: str | None = None
    delta: Delta | None = None
    checkpoint: bytes | None = None


class PastChange(NamedTuple):
    """What an applied entry did to the text: light, because an edit by hand is fitted over thousands of them.

    Attributes:
        written_at: as in `JournalEntry`; ISO 8601 with microseconds, in UTC, so that it sorts by time.
        prefix_bytes: of the delta, as the next three; None where there is none.
    """

    id: int
    action: MemoryAction
    refers_to: int | None
    written_at: str
    prefix_bytes: int | None
    suffix_bytes: int | None
    removed: bytes | None
    inserted: bytes | None

    @property
    def is_by_hand(self) -> bool:
        """Whether it is what a person saved, as they saved it."""
        return self.action == "edit" and self.refers_to is None

    @property
    def delta(self) -> Delta | None:
        """What it changed."""
        if self.prefix_bytes is None or self.suffix_bytes is None or self.removed is None or self.inserted is None:
            return None
        return Delta(self.prefix_bytes, self.suffix_bytes, self.removed, self.inserted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The newest end of a document's history.

    Attributes:
        hash: of the text as we left it; None when a power cut took the record.
        at: when it was written; None where nothing was.
        unsettled: what was recorded and is not settled: another process is about to, has failed, or has died.
    """

    hash: str | None
    at: datetime | None
    unsettled: frozenset[Key]


class HistorySource(Protocol):
    """Where the history of documents is read from."""

    async def entries(self, document: str | None, limit: int, before: int | None = None) -> Sequence[JournalEntry]:
        """What was settled, newest first, of one document or of all.

        Args:
            document: the key, None for all.
            limit: how many at most.
            before: only entries at a lower position; without a document, only those after the entry of this id.
        """

    async def entry(self, entry_id: int) -> JournalEntry | None:
        """One entry."""

    async def chain(self, document: str, position: int) -> Sequence[JournalEntry]:
        """Applied entries up to `position`, oldest first, from the nearest checkpoint on."""


class MemoryJournal(HistorySource, Protocol):
    """Where the journal is kept. The callers of `record` and `settle` hold the document's lock."""

    async def begin(self, requests: Sequence[JournalRequest]) -> Mapping[Key, MemoryOutcome]:
        """Note what is not noted yet; returns the outcomes of those that are settled."""

    async def tail(self, document: str) -> Tail:
        """What was applied last."""

    async def knows(self, document: str, text_hash: str) -> bool:
        """Whether a text is one that the document had lately."""

    async def record(self, write: Write) -> Mapping[Key, MemoryOutcome]:
        """Note what is about to be written. What was recorded by hand before and did not come into place is forgotten.

        Returns:
            Those that are settled already; if there are any, the write must not be made.
        """

    async def settle(self, outcomes: Mapping[Key, MemoryOutcome], *, is_durable: bool = False) -> None:
        """Note what became of them; those that are settled stay as they are.

        With an `edit` that has a content, what it displaced becomes a proposal; see `gateway.memory.writer`.

        Args:
            is_durable: survive a power cut too, with all that was settled before.
        """

    async def pending(self, document: str) -> Collection[Key]:
        """What is not settled yet."""

    async def unsettled(self) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        """Whole turns of which something is not settled, oldest first, to be synced again."""

    async def past(self, document: str, since: datetime, limit: int) -> Sequence[PastChange]:
        """What was applied, newest first, as far back as `since` and no more than `limit`."""

    async def documents(self) -> Sequence[str]:
        """The keys of all documents of whose texts something is known."""

    async def whole_history(self, document: str) -> Sequence[JournalEntry]:
        """All that was settled of a document, oldest first."""

    async def replace_history(self, document: str, entries: Sequence[JournalEntry]) -> None:
        """Keep these entries, which have their ids, and nothing else that is settled of a document; durably."""

    async def numbers(self, count: int) -> int:
        """The first of so many ids for entries, which no other entry gets."""

    async def forget(self, user_ids: Collection[str], document: str, lines: Collection[str]) -> None:
        """Forget what these users did to a document, its earlier texts, and these lines in what others did to it."""

    async def erase(self, user_ids: Collection[str]) -> None:
        """Forget the documents of these users, and what they did to others."""


def iso(at: datetime) -> str:
    """A time as the journal writes it."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def is_due(position: int, size_bytes: int, entries: int) -> bool:
    """Whether a write of `entries` that ends at `position` carries a checkpoint.

    Every 64 entries, rarer for long texts, so that checkpoints cost at most 256 bytes an entry before compression.
    """
    every = max(_CHECKPOINT_EVERY, size_bytes // _BYTES_PER_STEP)
    return position // every != (position - entries) // every
