"""What the journal tells people: who changed which memory, when, where and how; and what a text was before."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence

from gateway.errors import NoSuchEntry
from gateway.memory import rules
from gateway.memory.journal import HistorySource, JournalEntry, JournalRequest
from gateway.memory.paths import check_ids, document_keys, key_of
from gateway.protocols import MemoryChange, MemoryScope, MemoryStoreName

_PAGE = 200


class History:
    """Reads the journal."""

    def __init__(self, journal: HistorySource) -> None:
        self._journal = journal

    async def log(self, document: str | None, limit: int, before: int | None = None) -> list[MemoryChange]:
        """The newest entries of one document or of all, newest first; `before`: those that follow this id."""
        if document is not None and before is not None:
            last = await self._journal.entry(before)
            if last is None or last.request.document != document or last.position is None:
                return []
            before = last.position
        return [await self._shown(entry) for entry in await self._journal.entries(document, limit, before)]

    async def entry(self, entry_id: int) -> MemoryChange | None:
        """One entry that was settled; None where there is none of that id."""
        entry = await self._journal.entry(entry_id)
        return None if entry is None or entry.outcome is None else await self._shown(entry)

    async def texts(self, entry_id: int) -> tuple[bytes, bytes]:
        """The bytes from before an entry, and those that it left.

        Raises:
            NoSuchEntry: there is no such change, or its texts are not known any more.
        """
        entry = await self._journal.entry(entry_id)
        if entry is None or entry.outcome != "applied" or entry.position is None:
            raise NoSuchEntry(f"entry {entry_id} is not a change of a document; the history lists them")
        return await self.text_before(entry), await self.text_after(entry)

    async def why(self, scope: MemoryScope, line: str, store: MemoryStoreName | None) -> MemoryChange | None:
        """The newest entry that brought a line, or a part of one, in; without a store in the user's document first."""
        wanted = rules.encode(line.strip())
        if not wanted:
            return None
        for document in [key for each, key in document_keys(scope).items() if store in (None, each)]:
            before: int | None = None
            while page := await self._journal.entries(document, _PAGE, before):
                for entry in page:
                    if await self._brought(entry, wanted):
                        return await self._shown(entry)
                before = page[-1].position
        return None

    async def undoable(self, scope: MemoryScope, entry_id: int) -> JournalEntry:
        """A change of one of the scope's documents.

        Raises:
            InvalidId: an id is malformed, or the change is of a user's document and the scope has no user.
            NoSuchEntry: there is no such change in the documents of the scope.
        """
        check_ids(scope)
        entry = await self._journal.entry(entry_id)
        if entry is None or entry.outcome != "applied" or entry.position is None or entry.hash_after is None:
            raise NoSuchEntry(f"entry {entry_id} is not a change that can be undone; `log` lists them")
        key = key_of(scope, entry.request.store)
        if key != entry.request.document:
            raise NoSuchEntry(f"entry {entry_id} belongs to {entry.request.document}, not to {key}")
        return entry

    async def text_before(self, entry: JournalEntry) -> bytes:
        """The bytes that an entry found.

        Raises:
            NoSuchEntry: they are not known any more.
        """
        after = await self.text_after(entry)
        if entry.delta is not None:
            return entry.delta.revert(after)
        position = entry.position or 0
        earlier = await self._journal.entries(entry.request.document, _PAGE, position)
        for candidate in earlier:
            if candidate.outcome == "applied" and candidate.hash_after == entry.hash_before:
                return await self.text_after(candidate)
        if not earlier:
            return b""
        raise NoSuchEntry(f"the text before entry {entry.id} is not known any more")

    async def text_after(self, entry: JournalEntry) -> bytes:
        """The bytes that an entry left, rebuilt from the nearest checkpoint.

        Raises:
            NoSuchEntry: they are not known any more.
        """
        return await asyncio.to_thread(
            rebuilt, entry, await self._journal.chain(entry.request.document, entry.position or 0)
        )

    async def _brought(self, entry: JournalEntry, wanted: bytes) -> bool:
        if entry.delta is not None:
            return wanted in entry.delta.inserted and wanted not in entry.delta.removed
        if entry.checkpoint is None or wanted not in entry.checkpoint:
            return False
        try:
            return wanted not in await self.text_before(entry)
        except NoSuchEntry:
            return True

    async def _shown(self, entry: JournalEntry) -> MemoryChange:
        request: JournalRequest = entry.request
        return MemoryChange(
            id=entry.id,
            at=entry.written_at or request.at,
            document=request.document,
            personality_id=request.scope.personality_id,
            user_id=request.scope.user_id,
            channel=request.scope.channel,
            session_id=request.scope.session_id,
            turn_id=request.scope.turn_id,
            action=request.action,
            content=request.content,
            outcome=entry.outcome or "no_match",
            hash_before=entry.hash_before,
            hash_after=entry.hash_after,
            diff=await self._diff(entry),
            refers_to=request.refers_to,
            author_id=request.scope.author_id or request.scope.user_id,
        )

    async def _diff(self, entry: JournalEntry) -> str:
        if entry.delta is not None:
            return difference(entry.delta.removed, entry.delta.inserted)
        if entry.request.action != "edit" or entry.checkpoint is None:
            return ""
        try:
            return difference(await self.text_before(entry), entry.checkpoint)
        except NoSuchEntry:
            return ""


def rebuilt(entry: JournalEntry, chain: Sequence[JournalEntry]) -> bytes:
    """The bytes that an entry left, of the chain that leads to it. Takes time for a long one.

    Raises:
        NoSuchEntry: they are not known any more.
    """
    data = b""
    for step in chain:
        if step.checkpoint is not None:
            data = step.checkpoint
        elif step.delta is not None:
            data = step.delta.apply(data)
    if not chain or chain[-1].id != entry.id or rules.version(data) != entry.hash_after:
        raise NoSuchEntry(f"the text of entry {entry.id} is not known any more")
    return data


def difference(before: bytes | str, after: bytes | str) -> str:
    """A unified diff without file names, one line of context."""
    old, new = (_lines(text) for text in (before, after))
    return "\n".join(line.rstrip("\n") for line in list(difflib.unified_diff(old, new, n=1, lineterm=""))[2:])


def _lines(text: bytes | str) -> Sequence[str]:
    shown = rules.show(text) if isinstance(text, bytes) else text
    return shown.removesuffix("\n").split("\n") if shown else []
