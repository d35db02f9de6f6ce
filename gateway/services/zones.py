"""In which time zone a person's clock is read: shown to them, and chosen by them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from gateway.schedules.rule import is_by_its_zone
from gateway.schedules.schedule import Schedule
from gateway.schedules.schedules import Schedules
from gateway.schedules.zones import UnknownZone, Zones
from gateway.services.caller import Caller, Malformed, NotNamed


class ZoneService:
    """A person's own zone; nobody else's."""

    def __init__(
        self, zones: Zones, schedules: Schedules, person_ids: Callable[[str], Awaitable[Collection[str]]]
    ) -> None:
        self._zones = zones
        self._schedules = schedules
        self._person_ids = person_ids

    async def show(self, caller: Caller) -> tuple[str, str | None]:
        """The zone that holds for the caller, and what they have chosen, which this machine may not know any more."""
        user_id = _person(caller)
        return await self._zones.of(user_id), await self._zones.chosen(user_id)

    async def choose(self, caller: Caller, name: str | None) -> tuple[str, Sequence[Schedule]]:
        """Keep a choice, or take it back; the zone that holds now, and the caller's schedules by another clock.

        Args:
            name: None for the configured zone.

        Raises:
            Malformed: there is no such zone; the text names those that are spelled like it.
        """
        user_id = _person(caller)
        if name is None:
            await self._zones.forget(user_id)
            zone = self._zones.default
        else:
            try:
                zone = await self._zones.choose(user_id, name)
            except UnknownZone as error:
                raise Malformed(str(error)) from error
        theirs = await self._schedules.of(sorted({user_id, *await self._person_ids(user_id)}))
        return zone, [one for one in theirs if one.zone != zone and is_by_its_zone(one.rule)]


def _person(caller: Caller) -> str:
    if caller.user_id is None:
        raise NotNamed("a time zone is a person's own; choose it in a chat, as that person")
    return caller.user_id
