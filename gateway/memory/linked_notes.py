"""The Markdown files of people who are linked: merged, and separated again; see `PersonalNotes` of the links.

They are merged paragraph by paragraph, each once; a paragraph is what stands between blank lines. The originals are
kept in `users/<user id>/before-<link id>/`, of both users, where no prompt reads them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import FileError, MemoryConflict
from gateway.files.atomic import check_id, inside, make_private_directory, read_once, sync_directory, write_atomically
from gateway.memory import rules
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.people.linking.links import Link
from gateway.protocols import MemoryScope, MemoryStoreName, MemoryUpdate

CHANNEL = "link"
"""Stands in the journal where a channel stands for other changes."""
_ANY_PERSONALITY = "assistant"  # which one makes no difference to a USER.md
_DONE_NAME = ".complete"
_TRIES = 20

_BLANK_LINES = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")


@dataclass(frozen=True, slots=True)
class _Document:
    """A document that a person has; `personality_id` of a `MEMORY.md` that is kept for each person, else None."""

    personality_id: str | None

    @property
    def store(self) -> MemoryStoreName:
        return "user" if self.personality_id is None else "memory"

    @property
    def name(self) -> str:
        """Its path below the person's directory."""
        return "USER.md" if self.personality_id is None else f"personalities/{self.personality_id}/MEMORY.md"

    def scope(self, user_id: str, turn_id: str) -> MemoryScope:
        return MemoryScope(
            personality_id=self.personality_id or _ANY_PERSONALITY,
            user_id=user_id,
            session_id=None,
            turn_id=turn_id if self.personality_id is None else f"{turn_id}:{self.personality_id}",
            place="per-user",
            channel=CHANNEL,
        )


class MarkdownNotes:
    """The `PersonalNotes` of the Markdown memory."""

    def __init__(self, memory: MarkdownFileMemoryProvider) -> None:
        self._users = getattr(memory, "root", Path()) / "users"
        self._memory = memory

    async def unite(self, link: Link) -> None:
        """Keep both people's documents as they are, then add to the survivor's what only the absorbed one's have."""
        if await self._memory.is_behind(link.absorbed):  # a full disk, a lock: it is tried again, and so is this
            raise FileError(f"what {link.absorbed} noted last is not in the files yet")
        await asyncio.to_thread(self._keep, link)
        for document in await asyncio.to_thread(self._kept, link, link.absorbed):
            brought = await asyncio.to_thread(self._brought, link, document)
            if brought:
                update = MemoryUpdate.add(document.store, "\n\n".join(brought))
                await self._memory.sync(document.scope(link.survivor, f"link:{link.id}"), [update])

    async def part(self, link: Link, successors: Sequence[str]) -> bool:
        """Take out again what came in with the link; whether something else has changed since."""
        is_changed = False
        for document in await asyncio.to_thread(self._kept, link, link.absorbed):
            brought = await asyncio.to_thread(self._brought, link, document)
            for heir in successors if brought else ():
                is_changed |= await self._part(link, document, heir, brought)
        return is_changed

    async def _part(self, link: Link, document: _Document, heir: str, brought: Sequence[str]) -> bool:
        """Take it out of one document, however often somebody else writes meanwhile."""
        scope = document.scope(heir, f"unlink:{link.id}")
        before = (
            await asyncio.to_thread(self._original, link, link.survivor, document) if heir == link.survivor else None
        )
        update = MemoryUpdate.add(document.store, "\n\n".join(brought))
        merged = None if before is None else rules.apply(rules.decode(before), update)
        for _ in range(_TRIES):
            now = await self._memory.read_bytes(scope, document.store)
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
                await self._memory.restore(scope, document.store, data, rules.version(now))
            except MemoryConflict:
                continue
            return is_changed
        raise FileError(f"{scope.user_id}: {document.name} changes faster than it can be written")

    # ---- what is kept -----------------------------------------------------------------------------------------------

    def _keep(self, link: Link) -> None:
        """Copy both people's documents, once: what was kept completely stays as it is."""
        for user_id in (link.survivor, link.absorbed):
            place = self._place(link, user_id)
            if (place / _DONE_NAME).exists():
                continue
            make_private_directory(place)
            for document in self._documents(self._users / check_id("user", user_id)):
                found = read_once(inside(self._users, user_id, document.name))
                if found is not None:
                    make_private_directory((place / document.name).parent)
                    write_atomically(place / document.name, found.data)
            write_atomically(place / _DONE_NAME, b"")
            sync_directory(place)

    def _kept(self, link: Link, user_id: str) -> list[_Document]:
        return self._documents(self._place(link, user_id))

    def _brought(self, link: Link, document: _Document) -> list[str]:
        absorbed = self._original(link, link.absorbed, document)
        mine = self._original(link, link.survivor, document)
        return only_in(_text(absorbed), _text(mine))

    def _original(self, link: Link, user_id: str, document: _Document) -> bytes:
        found = read_once(self._place(link, user_id) / document.name)
        return b"" if found is None else found.data

    def _place(self, link: Link, user_id: str) -> Path:
        return inside(self._users, check_id("user", user_id), f"before-{check_id('link', link.id)}")

    @staticmethod
    def _documents(directory: Path) -> list[_Document]:
        found = [_Document(None)] if (directory / "USER.md").exists() else []
        personal = sorted(path.parent.name for path in directory.glob("personalities/*/MEMORY.md"))
        return [*found, *map(_Document, personal)]


def _text(data: bytes) -> str:
    return rules.to_newlines(rules.decode(data)).removeprefix("\ufeff")


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
