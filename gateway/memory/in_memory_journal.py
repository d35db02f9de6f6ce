"""A memory journal that lives as long as the process; held to the same tests as the one in the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from gateway.memory.journal import (
    HASH_OF_NOTHING,
    LATELY_ENTRIES,
    Ask,
    EntryOutcome,
    JournalEntry,
    Key,
    PastChange,
    Tail,
    Write,
    is_due,
    iso,
)
from gateway.protocols import MemoryScope, MemoryUpdate


class InMemoryJournal:
    """The `MemoryJournal` of `journal.py`, in a dict."""

    def __init__(self) -> None:
        self._rows: dict[Key, JournalEntry] = {}
        self._ids = 0

    async def begin(self, asks: Sequence[Ask]) -> Mapping[Key, EntryOutcome]:
        """Note what is not noted yet; returns the outcomes of those that are settled."""
        for ask in asks:
            self._insert(ask)
        return self._outcomes([ask.key for ask in asks])

    async def tail(self, document: str) -> Tail:
        """What was applied last."""
        waiting = [row for row in self._of(document) if row.outcome is None and row.position is not None]
        applied = self._applied(document)
        return Tail(
            hash=applied[-1].hash_after if applied else HASH_OF_NOTHING,
            at=applied[-1].written_at if applied else None,
            unsettled=frozenset(row.ask.key for row in waiting),
        )

    async def knows(self, document: str, text_hash: str) -> bool:
        """Whether a text is one that the document had lately."""
        return any(text_hash in (row.hash_before, row.hash_after) for row in self._applied(document)[-LATELY_ENTRIES:])

    async def record(self, write: Write) -> Mapping[Key, EntryOutcome]:
        """Note what is about to be written."""
        for row in self._of(write.document):
            if row.outcome is None and row.position is not None and row.ask.action in {"write", "undo", "edit"}:
                del self._rows[row.ask.key]
        settled = self._outcomes([change.ask.key for change in write.changes])
        if settled:
            return settled
        applied = self._applied(write.document)
        is_known = not applied or applied[-1].hash_after is not None
        for change in write.changes:
            self._insert(change.ask)
            self._rows[change.ask.key] = replace(
                self._rows[change.ask.key],
                position=self._next_position(write.document),
                written_at=change.ask.at if change.ask.is_by_hand else write.at,
                hash_before=change.hash_before,
                hash_after=change.hash_after,
                delta=change.delta,
                checkpoint=change.checkpoint,
            )
        position = self._next_position(write.document) - 1
        if write.changes and (not is_known or is_due(position, len(write.after), len(write.changes))):
            key = write.changes[-1].ask.key
            self._rows[key] = replace(self._rows[key], checkpoint=write.after)
        return {}

    async def settle(self, outcomes: Mapping[Key, EntryOutcome], *, is_durable: bool = False) -> None:  # noqa: ARG002 (nothing here is)
        """Note what became of them."""
        for key, outcome in outcomes.items():
            row = self._rows.get(key)
            if row is None or row.outcome is not None:
                continue
            position = row.position
            if position is None and outcome == "applied":
                position = self._next_position(row.ask.document)
            at = row.written_at or datetime.now(UTC)
            self._rows[key] = replace(row, outcome=outcome, position=position, written_at=at)

    async def pending(self, document: str) -> Collection[Key]:
        """What is not settled yet."""
        return {row.ask.key for row in self._of(document) if row.outcome is None}

    async def unsettled(self) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        """Whole turns of which something is not settled, oldest first."""
        open_turns = {row.ask.scope.turn_id for row in self._rows.values() if row.outcome is None}
        turns: dict[str, tuple[MemoryScope, list[MemoryUpdate]]] = {}
        for row in self._rows.values():
            ask = row.ask
            if ask.scope.turn_id not in open_turns or ask.refers_to is not None:
                continue
            if ask.action == "add" or ask.action == "replace" or ask.action == "remove":  # noqa: PLR1714 (narrows the type)
                update = MemoryUpdate(action=ask.action, store=ask.store, content=ask.content)
                turns.setdefault(ask.scope.turn_id, (ask.scope, []))[1].append(update)
        return list(turns.values())

    async def entries(self, document: str | None, limit: int, before: int | None = None) -> Sequence[JournalEntry]:
        """What was settled, newest first."""
        done = [row for row in self._rows.values() if row.outcome is not None]
        if document is None:
            oldest = datetime.min.replace(tzinfo=UTC)
            newest_first = sorted(done, key=lambda row: (row.written_at or oldest, row.id), reverse=True)
            ids = [row.id for row in newest_first]
            start = 0 if before is None else ids.index(before) + 1 if before in ids else len(ids)
            return newest_first[start : start + limit]
        mine = [row for row in done if row.ask.document == document and row.position is not None]
        mine = [row for row in mine if before is None or (row.position or 0) < before]
        return sorted(mine, key=lambda row: row.position or 0, reverse=True)[:limit]

    async def past(self, document: str, since: datetime, limit: int) -> Sequence[PastChange]:
        """What was applied, newest first."""
        found: list[PastChange] = []
        for row in reversed(self._applied(document)[-limit:]):
            if row.written_at is None or row.written_at < since:
                break
            at, delta = iso(row.written_at), row.delta
            change = PastChange(row.id, row.ask.action, row.ask.refers_to, at, None, None, None, None)
            if delta is not None:
                change = change._replace(
                    prefix_bytes=delta.prefix_bytes,
                    suffix_bytes=delta.suffix_bytes,
                    removed=delta.removed,
                    inserted=delta.inserted,
                )
            found.append(change)
        return found

    async def entry(self, entry_id: int) -> JournalEntry | None:
        """One entry."""
        return next((row for row in self._rows.values() if row.id == entry_id), None)

    async def chain(self, document: str, position: int) -> Sequence[JournalEntry]:
        """Applied entries up to `position`, oldest first, from the nearest checkpoint on."""
        rows = [row for row in self._applied(document) if (row.position or 0) <= position]
        start = max((at for at, row in enumerate(rows) if row.checkpoint is not None), default=0)
        return rows[start:]

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _insert(self, ask: Ask) -> None:
        if ask.key not in self._rows:
            self._ids += 1
            self._rows[ask.key] = JournalEntry(id=self._ids, ask=ask)

    def _outcomes(self, keys: Sequence[Key]) -> dict[Key, EntryOutcome]:
        rows = [self._rows[key] for key in keys if key in self._rows]
        return {row.ask.key: row.outcome for row in rows if row.outcome is not None}

    def _of(self, document: str) -> list[JournalEntry]:
        return [row for row in self._rows.values() if row.ask.document == document]

    def _applied(self, document: str) -> list[JournalEntry]:
        rows = [row for row in self._of(document) if row.outcome == "applied"]
        return sorted(rows, key=lambda row: row.position or 0)

    def _next_position(self, document: str) -> int:
        return max((row.position or 0 for row in self._of(document)), default=0) + 1
