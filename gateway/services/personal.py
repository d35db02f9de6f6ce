"""What belongs to one person: all of it in one file, and all of it erased."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gateway.config.file import CONFIG_NAME
from gateway.domain.person_settings import PersonSettings
from gateway.messages import ConversationRef
from gateway.ops.privacy.worker import Exported, PrivacyWorker
from gateway.pipeline.voice_notes import SETTING, When, chosen
from gateway.sdk.models import people as wire
from gateway.services.caller import Caller, NotAllowed, NotFound, NotNamed, Permission, Refused
from gateway.services.people import PeopleService

ERASED_WITHIN_S = 20.0
"""How long an answer waits for an erasure, which then goes on in the background."""
ALSO_NEEDED: tuple[Permission, ...] = ("memory:read", "sessions:read")
"""What a key needs to export, too: it must not read from the file what it may not read otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFile:
    """An export that has no name on the disk any more, and so is gone when it is closed; the reader closes it."""

    name: str
    size_bytes: int
    file: BinaryIO


class PersonalService:
    """Exports for those who may see the person, erasures for those who may change people."""

    def __init__(self, home: Path, people: PeopleService, privacy: PrivacyWorker, settings: PersonSettings) -> None:
        self._home = home
        self._people = people
        self._privacy = privacy
        self._settings = settings

    async def voice(self, caller: Caller) -> When:
        """When the person in a chat hears answers, too."""
        return await chosen(self._settings, caller.user_id or "")

    async def choose_voice(self, caller: Caller, when: str) -> None:
        """Let the person in a chat hear answers then; one of `WHENS`."""
        await self._settings.put(caller.user_id or "", SETTING, when)

    @property
    def left_by_erasure(self) -> str | None:
        """What of the memory stays when a person is erased, and where; None where nothing does."""
        return self._privacy.left_by_erasure

    @property
    def left_out_of_export(self) -> str | None:
        """What of the memory an export lacks; None where it lacks nothing."""
        return self._privacy.left_out_of_export

    async def export(self, caller: Caller, wanted: str) -> ExportFile:
        """Everything about a person, as a zip file.

        Raises:
            NotNamed: no user has that id or account.
            NotAllowed: the caller may not see that person, or they may not read all that is in it.
            FileError: there is no room for it.
        """
        name, size_bytes = await self._written(caller, wanted)
        path = self._home / name
        return ExportFile(name=path.name, size_bytes=size_bytes, file=await asyncio.to_thread(_open_nameless, path))

    async def export_to(self, caller: Caller, conversation: ConversationRef) -> Exported:
        """Everything about a person in a chat, for this conversation with them; raises as `export`."""
        user_id = caller.user_id or ""
        name, size_bytes = await self._written(caller, user_id)
        return await self._privacy.deliverable(user_id, name, size_bytes, conversation)

    async def _written(self, caller: Caller, wanted: str) -> tuple[str, int]:
        user_id = await self._people.find(caller, wanted)
        missing = [permission for permission in ALSO_NEEDED if not caller.may(permission)]
        if missing:
            raise NotAllowed(f"an export holds what this key may not read; it needs {' and '.join(missing)}, too")
        return await self._privacy.write_export(user_id)

    async def erase(self, caller: Caller, wanted: str, *, confirmed: str) -> wire.Erasure:
        """Erase everything that is kept about a person, for good; it is settled, and perhaps not done, on return.

        A repetition is told of the erasure that there was.

        Args:
            wanted: also an account, `kind:id`, that is no user's.
            confirmed: their user id, or that account, once more.

        Raises:
            Refused: another id was confirmed, or they are the last owner.
            NotNamed: nothing is kept about that name.
            NotAllowed: the caller sees one person only.
            FileError: the decision could not be written down; nothing will be erased.
        """
        caller.refuse_others(None)
        try:
            user_id = await self._whom(caller, wanted)
        except NotNamed:
            before = await self._privacy.erasure_of({wanted, confirmed})
            if before is None:
                raise
            return await self._erasure(confirmed, before)
        if confirmed != user_id:
            raise Refused(f"nothing was erased: to erase {user_id}, `confirm` must be {user_id}")
        return await self._erasure(user_id, await self.schedule_erasure(caller, user_id))

    async def _erasure(self, user_id: str, erasure: str) -> wire.Erasure:
        is_done = await self._privacy.is_erased(erasure, wait_s=ERASED_WITHIN_S)
        return wire.Erasure(user=user_id, erasure=erasure, is_done=is_done, left=self.left_by_erasure)

    async def schedule_erasure(self, caller: Caller, user_id: str, *, farewell_id: str | None = None) -> str:
        """Decide, durably, that a person is erased, and return the erasure's id.

        Args:
            farewell_id: a reply that is sent first, if that does not take long.

        Raises:
            Refused: they are the last owner.
            NotAllowed: the caller sees one person only, and in a chat it is another person.
            FileError: it could not be written down; nothing will be erased.
        """
        if caller.chat is None or caller.user_id != user_id:
            caller.refuse_others(None)
        async with self._people.deciding:
            await self._people.refuse_to_erase(user_id)
            return await self._privacy.schedule_erasure(user_id, farewell_id)

    async def erasure(self, caller: Caller, erasure: str) -> wire.ErasureState:
        """How far an erasure is; waits for its end, though not for long.

        Raises:
            NotFound: there is no such erasure.
            NotAllowed: the caller sees one person only.
        """
        caller.refuse_others(None)
        if not await self._privacy.is_decided(erasure):
            raise NotFound(f"there is no erasure {erasure[:80]}")
        is_done = await self._privacy.is_erased(erasure, wait_s=ERASED_WITHIN_S)
        return wire.ErasureState(erasure=erasure, is_done=is_done)

    async def erasure_plan(self, caller: Caller, wanted: str) -> wire.ErasurePlan:
        """What an erasure would take, and what it would leave to the operator.

        Raises:
            NotAllowed: only the operator is told of the copies and the configuration.
            Refused, NotNamed: as `erase`.
        """
        caller.refuse_keys()
        user_id = await self._whom(caller, wanted)
        await self._people.refuse_to_erase(user_id)
        accounts = await self._privacy.accounts_of(user_id) or ([user_id] if ":" in user_id else [])
        return wire.ErasurePlan(
            user=user_id,
            accounts=tuple(accounts),
            copies=tuple(await self._privacy.copies()),
            configured=tuple(await asyncio.to_thread(_named_in, self._home / CONFIG_NAME, accounts)),
            left=self.left_by_erasure,
        )

    async def _whom(self, caller: Caller, wanted: str) -> str:
        try:
            return await self._people.find(caller, wanted)
        except NotNamed:
            if ":" in wanted and await self._privacy.is_known(wanted):
                return wanted
            raise


def _named_in(config: Path, accounts: Sequence[str]) -> Sequence[str]:
    text = config.read_text(encoding="utf-8", errors="replace") if config.exists() else ""
    return [account for account in accounts if account.partition(":")[2] in text]


def _open_nameless(path: Path) -> BinaryIO:
    file = path.open("rb")
    path.unlink()
    return file
