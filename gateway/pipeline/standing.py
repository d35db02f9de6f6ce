"""Whether what a schedule has due may be done: its person, its channel and its personality may have gone since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from gateway.domain.personalities import Personalities
from gateway.errors import PersonalityError
from gateway.people.access import Access, Entry
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.schedules.firing import Where, message_of
from gateway.schedules.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What speaks against it, for people; and where its person is told. None: nowhere, as their access was revoked."""

    why: str
    tell: Where | None


class Standing:
    """Looks at people, channels and personalities as they are now."""

    def __init__(
        self,
        access: Access,
        people: LinkedIdentities,
        personalities: Personalities,
        is_configured: Callable[[str], bool],
    ) -> None:
        """`is_configured` says whether a channel of this name is switched on, by this process or by another."""
        self._access = access
        self._people = people
        self._personalities = personalities
        self._is_configured = is_configured

    async def refresh(self) -> None:
        """See the personalities as they are now; before a look at many schedules."""
        await self._personalities.refresh()

    async def obstacle(self, schedule: Schedule, at: datetime) -> Obstacle | None:
        """What speaks against it; None where nothing does.

        Raises:
            StoreError, IdentityMapBroken, FileError: that cannot be known now.
        """
        channel = schedule.conversation.channel
        if not self._is_configured(channel):
            return Obstacle(why=f"there is no channel `{channel}` any more", tell="elsewhere")
        entry = await self._access.entry(replace(message_of(schedule, at), text=""))
        return await self.of_person(schedule, entry) or self.of_personality(schedule)

    async def of_person(self, schedule: Schedule, entry: Entry) -> Obstacle | None:
        """The same of its person, by who its account is now."""
        if entry.verdict != "answer":
            is_revoked = await self._access.is_revoked(entry.account)
            return Obstacle(why="its person is not let in there any more", tell=None if is_revoked else "elsewhere")
        if entry.user_id is None or schedule.user_id not in (entry.user_id, *await self._people.ids(entry.user_id)):
            return Obstacle(why="where it is delivered is somebody else's by now", tell="elsewhere")
        if entry.role == "guest":
            return Obstacle(why="guests have no schedules", tell="here")
        return None

    def of_personality(self, schedule: Schedule) -> Obstacle | None:
        """The same of its personality, which a schedule without a model does not need."""
        if schedule.mode == "say":
            return None
        try:
            self._personalities.get(schedule.personality_id)
        except PersonalityError as error:
            return Obstacle(why=str(error), tell="here")
        return None
