"""The documents of two people who turn out to be one: merged, and separated again; see `SupportsUnion`.

They are merged paragraph by paragraph, each once; a paragraph is what stands between blank lines. The originals of both
people are kept beside their documents, where no prompt reads them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from gateway.errors import FileError, MemoryConflict
from gateway.memory import rules
from gateway.memory.paths import scope_of_key
from gateway.protocols import MemoryProvider, MemoryScope, MemoryStoreName, MemoryUpdate

CHANNEL = "link"
"""Stands in the history where a channel stands for other changes."""
USER = "USER.md"
_TRIES = 20
_BLANK_LINES = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")


class Documents(MemoryProvider, Protocol):
    """A memory whose documents can be read and put back byte by byte."""

    async def read_bytes(self, scope: MemoryScope, store: MemoryStoreName) -> bytes:
        """A document's own bytes, none where there is none."""

    async def restore(self, scope: MemoryScope, store: MemoryStoreName, data: bytes, expected_version: str) -> object:
        """Put bytes in place as they are, if it is still the version that was read; else `MemoryConflict`."""


class Originals(Protocol):
    """Copies of a person's documents from before a link, by name: `USER.md`, `personalities/<id>/MEMORY.md`."""

    async def keep(self, link_id: str, user_id: str) -> None:
        """Copy the person's documents, once: what was kept completely stays as it is."""

    async def names(self, link_id: str, user_id: str) -> Sequence[str]:
        """What was kept, `USER.md` first."""

    async def read(self, link_id: str, user_id: str, name: str) -> bytes:
        """One copy; no bytes where there was no such document."""


class Union:
    """The `SupportsUnion` of a memory of documents."""

    def __init__(self, documents: Documents, originals: Originals) -> None:
        self._documents = documents
        self._originals = originals

    async def unite(self, link_id: str, survivor: str, absorbed: str) -> None:
        """See `SupportsUnion.unite`."""
        for user_id in (survivor, absorbed):
            await self._originals.keep(link_id, user_id)
        for name in await self._originals.names(link_id, absorbed):
            brought = await self._brought(link_id, survivor, absorbed, name)
            if brought:
                scope, store = _scope(name, survivor, f"link:{link_id}")
                await self._documents.sync(scope, [MemoryUpdate.add(store, "\n\n".join(brought))])

    async def part(self, link_id: str, survivor: str, absorbed: str, successors: Sequence[str]) -> bool:
        """See `SupportsUnion.part`."""
        is_changed = False
        for name in await self._originals.names(link_id, absorbed):
            brought = await self._brought(link_id, survivor, absorbed, name)
            for heir in successors if brought else ():
                before = await self._originals.read(link_id, survivor, name) if heir == survivor else None
                is_changed |= await self._taken_out(_scope(name, heir, f"unlink:{link_id}"), brought, before)
        return is_changed

    async def _taken_out(
        self, place: tuple[MemoryScope, MemoryStoreName], brought: Sequence[str], before: bytes | None
    ) -> bool:
        """Take it out of one document, however often somebody else writes meanwhile."""
        scope, store = place
        update = MemoryUpdate.add(store, "\n\n".join(brought))
        merged = None if before is None else rules.apply(rules.decode(before), update)
        for _ in range(_TRIES):
            now = await self._documents.read_bytes(scope, store)
            text = rules.decode(now)
            if before is not None and now == before:
                return False
            if before is not None and text == merged:
                data, is_changed = before, False
            elif not has_any(rules.to_newlines(text), brought):
                return True
            else:
                data, is_changed = rules.encode(without(rules.to_newlines(text), brought)), True
            try:
                await self._documents.restore(scope, store, data, rules.version(now))
            except MemoryConflict:
                continue
            return is_changed
        raise FileError(f"{scope.user_id}: the document changes faster than it can be written")

    async def _brought(self, link_id: str, survivor: str, absorbed: str, name: str) -> list[str]:
        texts = [await self._originals.read(link_id, user_id, name) for user_id in (absorbed, survivor)]
        return only_in(*(rules.to_newlines(rules.decode(data)).removeprefix("\ufeff") for data in texts))


def _scope(name: str, user_id: str, turn_id: str) -> tuple[MemoryScope, MemoryStoreName]:
    """Where a person's document of this name is."""
    scope, store = scope_of_key(f"users/{user_id}/{name}")
    own_turn_id = turn_id if store == "user" else f"{turn_id}:{scope.personality_id}"
    return replace(scope, turn_id=own_turn_id, place="per-user", channel=CHANNEL), store


def paragraphs(text: str) -> list[str]:
    """The paragraphs, without the blank lines around them."""
    return [part for block in _BLANK_LINES.split(text) if (part := block.strip("\n").rstrip()).strip()]


def only_in(one: str, other: str) -> list[str]:
    """The paragraphs of one text that the other does not have, each once; indented or not is the same."""
    known = {part.strip() for part in paragraphs(other)}
    found = {part.strip(): part for part in reversed(paragraphs(one)) if part.strip() not in known}
    return [*reversed(found.values())]


def has_any(text: str, wanted: Sequence[str]) -> bool:
    """Whether one of these paragraphs is in the text."""
    return not {part.strip() for part in wanted}.isdisjoint(part.strip() for part in paragraphs(text))


def without(text: str, unwanted: Sequence[str]) -> str:
    """The text without these paragraphs."""
    removed = {part.strip() for part in unwanted}
    kept = [part for part in paragraphs(text) if part.strip() not in removed]
    return "\n\n".join(kept) + "\n" if kept else ""
