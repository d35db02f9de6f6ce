"""The personalities: who can answer, and how an operator makes and changes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.desk.caller import Caller
from gateway.files import make_private_directory
from gateway.locks import FileLock
from gateway.personalities import BrokenPersonality, Personalities, Personality
from gateway.personalities.editing import PersonalityTexts, note_new, read_texts, replace_texts, undo_texts
from gateway.sdk.models import personalities as wire

LOCK_NAME = ".personalities.lock"
LOCK_TIMEOUT_S = 10.0


class PersonalityDesk:
    """Reading is for everybody; the files are the operator's. Changes count from the next turn on.

    Every method that takes an id raises `InvalidId`, `PersonalityError` where there is none, and `FileError`.
    """

    def __init__(self, home: Path, personalities: Personalities) -> None:
        self._home = home
        self._personalities = personalities

    async def list(self, _caller: Caller) -> list[wire.Personality]:
        """All of them, built-in ones first."""
        return [_shown(one) for one in self._personalities.list()]

    async def get(self, caller: Caller, personality_id: str) -> wire.PersonalityFiles:
        """Its files."""
        caller.refuse_others(None)
        return _files(await asyncio.to_thread(read_texts, self._home, personality_id))

    async def create(
        self, caller: Caller, personality_id: str, *, name: str | None, description: str, copy_of: str | None
    ) -> wire.PersonalityFiles:
        """Make a new one, as a copy of another one or with a prompt to begin with."""
        caller.refuse_others(None)
        async with self._writing():
            self._personalities.create(personality_id, name=name, description=description, copy_of=copy_of)
            await asyncio.to_thread(note_new, self._home, personality_id)
        return await self.get(caller, personality_id)

    async def update(
        self, caller: Caller, personality_id: str, *, soul: str, settings: str, expected_version: str
    ) -> wire.PersonalityFiles:
        """Change both files, once they are valid and still the version that was read; else `PersonalityChanged`."""
        caller.refuse_others(None)
        async with self._writing():
            texts = await asyncio.to_thread(
                lambda: replace_texts(
                    self._home, personality_id, soul=soul, settings=settings, expected_version=expected_version
                )
            )
        return _files(texts)

    async def undo(self, caller: Caller, personality_id: str, expected_version: str) -> None:
        """Take the last change back; one that was just made is gone then, and a built-in one as it came."""
        caller.refuse_others(None)
        async with self._writing():
            await asyncio.to_thread(undo_texts, self._home, personality_id, expected_version=expected_version)

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[None]:
        """One change after another, of all desks of this data directory."""
        directory = self._home / "personalities"
        await asyncio.to_thread(make_private_directory, directory)
        async with FileLock(directory / LOCK_NAME, LOCK_TIMEOUT_S):
            yield


def _files(texts: PersonalityTexts) -> wire.PersonalityFiles:
    return wire.PersonalityFiles.model_validate(texts, from_attributes=True)


def _shown(one: Personality | BrokenPersonality) -> wire.Personality:
    if isinstance(one, BrokenPersonality):
        return wire.Personality(
            id=one.id,
            name=one.id,
            description="",
            model=None,
            memory_scope="",
            memory_writes="",
            tools=None,
            source=one.source,
            problem=one.reason,
        )
    return wire.Personality(
        id=one.id,
        name=one.name,
        description=one.description,
        model=one.model,
        memory_scope=one.memory_scope,
        memory_writes=one.memory_writes,
        tools=one.tools,
        source=one.source,
    )
