"""The skills of a gateway; nothing of theirs is loaded before there is a place for some. A part of the composition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gateway.app.tools import tier_of
from gateway.errors import StoreError

if TYPE_CHECKING:
    from gateway.app.wiring import Composition
    from gateway.skills.library import Entry, Library
    from gateway.skills.offered import Offered

_DIRECTORY = "skills"

_log = structlog.get_logger(__name__)


class Skills:
    """What turns, people and checks ask of them."""

    def __init__(self, gateway: Composition) -> None:
        self._gateway = gateway
        self._library: Library | None = None
        self._may_be_new = True
        self._made: tuple[Sequence[Entry], dict[str, Offered | None]] = ((), {})

    @property
    def library(self) -> Library:
        """All of them; loaded with the first question."""
        if self._library is None:
            from gateway.skills.library import Library  # noqa: PLC0415 (only where there are skills)

            gateway = self._gateway
            self._library = Library(gateway.home, lambda: gateway.config.skills.paths, gateway.store.skills)
        return self._library

    async def open(self) -> None:
        """See which there are, and try the sandbox where they have scripts.

        Raises:
            StoreUnavailable: what is trusted cannot be read.
        """
        if not await self._has_some():
            return
        entries = await self.library.look()
        if any(entry.skill and entry.skill.scripts for entry in entries if entry.state == "trusted"):
            await tier_of(self._gateway)

    def reread(self) -> None:
        """Another worker, or a reload, has changed something: look again with the next turn."""
        self._may_be_new = True
        if self._library is not None:
            self._library.forget_trust()

    async def offered(self, personality_id: str) -> Offered | None:
        """What a personality has of them now; None where that is nothing.

        Raises:
            StoreUnavailable: what is trusted cannot be read.
        """
        if self._library is None and not (self._may_be_new and await self._has_some()):
            return None
        library = self.library
        skills = await library.of(personality_id)
        if self._made[0] is not library.entries:
            self._made = (library.entries, {})
        made = self._made[1]
        if personality_id not in made:
            made[personality_id] = await self._offer(personality_id, skills) if skills else None
        return made[personality_id]

    async def _offer(self, personality_id: str, skills: Mapping[str, Entry]) -> Offered:
        from gateway.skills.offered import Offered, not_shown_note  # noqa: PLC0415 (only where there are skills)
        from gateway.skills.tools import skill_tools  # noqa: PLC0415 (as above)

        if note := not_shown_note(skills):
            _log.warning("skills_not_shown", personality=personality_id, why=note)
        has_scripts = any(entry.skill and entry.skill.scripts for entry in skills.values())
        tier = await tier_of(self._gateway) if has_scripts else None
        return Offered(skills, skill_tools(skills, tier))

    async def problems(self) -> Sequence[str]:
        """Why the agent does not have some of them, a line each, for people."""
        try:
            if self._library is None and not (await self._has_some() or await self._are_elsewhere()):
                return ()
            entries = await self.library.look(is_fresh=True)
        except StoreError:  # the check of the store says why
            return ()
        found = [*self.library.problems]
        sandbox = self._gateway.sandbox
        has_scripts = any(entry.skill and entry.skill.scripts for entry in entries if entry.state == "trusted")
        if has_scripts and sandbox is not None and sandbox.tier is None:
            found.append(f"no sandbox works here, so the agent runs no scripts of skills ({sandbox.remedy})")
        return found

    async def _are_elsewhere(self) -> bool:
        """Whether other workers have some that are trusted."""
        return self._gateway.store.is_shared and bool(await self._gateway.store.skills.trusted())

    async def _has_some(self) -> bool:
        """Whether there is a place for skills at all."""
        self._may_be_new = False
        return await asyncio.to_thread(has_places, self._gateway.home, self._gateway.config.skills.paths)


def has_places(home: Path, paths: Sequence[str]) -> bool:
    """Whether skills may lie anywhere; blocks."""
    return bool(paths) or (home / _DIRECTORY).is_dir() or any((home / "personalities").glob(f"*/{_DIRECTORY}"))
