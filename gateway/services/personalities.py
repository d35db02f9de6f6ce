"""Who answers: listed, read, made and changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.domain.personalities import BrokenPersonality, Personalities, Personality
from gateway.domain.personalities.editing import PersonalityTexts, read_texts, replace_texts, undo_texts
from gateway.domain.personalities.files import PersonalityNotValid
from gateway.errors import PersonalityError
from gateway.files.positions.validation import did_you_mean
from gateway.sdk.models import personalities as wire
from gateway.services.caller import Caller, Malformed, NotFound, Refused


class PersonalityService:
    """Every caller may list them, and a person in a chat may choose one.

    Only callers who see everybody's data read and change the files, because they answer everybody; others meet
    `NotAllowed`.
    """

    def __init__(self, personalities: Personalities) -> None:
        self._personalities = personalities
        self._place = personalities.place

    async def all(self, caller: Caller) -> list[wire.Personality]:
        """All of them, built-in ones first; broken ones with their problem. Only who sees everybody sees prompts."""
        found = [_shown(one) for one in await self._list()]
        return found if caller.user_id is None else [one.model_copy(update={"prompt": None}) for one in found]

    async def choose(self, caller: Caller, personality_id: str) -> wire.Personality:
        """One that answers from now on where a person in a chat asks for it.

        Raises:
            PersonalityError: there is none of that id, or its files are not valid.
            NotAllowed: their role may not choose.
        """
        caller.require("choose a personality")
        await self._personalities.refresh()
        return _shown(await asyncio.to_thread(self._personalities.get, personality_id))

    async def get(self, caller: Caller, personality_id: str) -> wire.PersonalityFiles:
        """One, with the texts of its files.

        Raises:
            NotFound: there is none of that id.
            FileError: a file cannot be read.
        """
        caller.refuse_others(None)
        await self._one(personality_id)
        return await self._files(personality_id, await asyncio.to_thread(read_texts, self._place, personality_id))

    async def create(
        self,
        caller: Caller,
        personality_id: str,
        *,
        name: str | None = None,
        description: str = "",
        copy_of: str | None = None,
    ) -> wire.PersonalityFiles:
        """Make one; it can be chosen at once.

        Args:
            copy_of: begin with that one's prompt and settings.

        Raises:
            Refused: there is one of that id.
            NotFound: there is none to copy.
            InvalidId: it is no id.
            FileError: it cannot be written.
        """
        caller.refuse_others(None)
        await self._personalities.refresh()
        known = self._personalities.ids()
        if copy_of is not None and copy_of not in known:
            raise NotFound(f"there is no personality {copy_of} to copy; there are {', '.join(known)}")
        try:
            await self._personalities.create(personality_id, name=name, description=description, copy_of=copy_of)
        except PersonalityError as error:
            raise Refused(str(error)) from error
        return await self.get(caller, personality_id)

    async def update(
        self, caller: Caller, personality_id: str, *, prompt: str | None, settings: str | None, expected_version: str
    ) -> wire.PersonalityFiles:
        """Change it, from the next turn on; None leaves a text as it is; a built-in one is overridden.

        Raises:
            PersonalityChanged: it was changed since it was read.
            Malformed: it would not be valid; says every thing that is wrong, with its place.
            NotFound: there is none of that id.
            FileError: it cannot be written.
        """
        caller.refuse_others(None)
        await self._one(personality_id)
        try:
            texts = await replace_texts(
                self._place, personality_id, prompt=prompt, settings=settings, expected_version=expected_version
            )
        except PersonalityNotValid as error:
            raise Malformed(str(error)) from error
        return await self._files(personality_id, texts)

    async def undo(self, caller: Caller, personality_id: str, expected_version: str) -> None:
        """Take the last change back; one that was just made is gone then, and a built-in one as it came.

        Raises:
            PersonalityChanged: it was changed since it was read.
            PersonalityError: nothing is known of before.
            FileError: as `update`.
        """
        caller.refuse_others(None)
        await undo_texts(self._place, personality_id, expected_version=expected_version)

    async def _files(self, personality_id: str, texts: PersonalityTexts) -> wire.PersonalityFiles:
        return wire.PersonalityFiles(
            personality=_shown(await self._one(personality_id)),
            settings=texts.settings,
            prompt=texts.prompt,
            version=texts.version,
            is_own=texts.is_own,
            can_undo=texts.can_undo,
        )

    async def _list(self) -> Sequence[Personality | BrokenPersonality]:
        await self._personalities.refresh()
        return await asyncio.to_thread(self._personalities.list)

    async def _one(self, personality_id: str) -> Personality | BrokenPersonality:
        found = await self._list()
        one = next((one for one in found if one.id == personality_id), None)
        if one is None:
            known = [one.id for one in found]
            near = did_you_mean(personality_id, known)
            raise NotFound(f"there is no personality {personality_id}{near}; there are {', '.join(known)}")
        return one


def _shown(one: Personality | BrokenPersonality) -> wire.Personality:
    if isinstance(one, BrokenPersonality):
        return wire.Personality(id=one.id, name=one.id, description="", source=one.source, problem=one.reason)
    return wire.Personality.model_validate(one, from_attributes=True)
