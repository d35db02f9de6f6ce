"""In which time zone a person's clock is read: the one that they chose, or the configured one."""

from __future__ import annotations

import difflib
import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from time import monotonic
from zoneinfo import available_timezones

from gateway.config.values import zone_of
from gateway.domain.person_settings import PersonSettings

# Files beside those of the zones: what this machine is set to, and other counts of seconds.
_OF_MACHINE = re.compile(r"(?:posix|right)/|(?:localtime|posixrules|Factory)\Z")
_LATELY_S = 60.0
_MOST_LATELY = 2_000
_CHOSEN, _TOLD = "time_zone", "time_zone_told"


class UnknownZone(ValueError):
    """There is no such time zone; the text names those that are spelled like it."""


class Zones:
    """The time zones of people."""

    def __init__(self, settings: PersonSettings, default: Callable[[], str]) -> None:
        """`default` gives the configured zone, which holds for all who chose none."""
        self._settings = settings
        self._default = default
        self._lately: OrderedDict[str, tuple[str | None, float]] = OrderedDict()

    @property
    def default(self) -> str:
        """The configured one."""
        return self._default()

    async def of(self, user_id: str | None) -> str:
        """Where the person's clock is; the configured zone for None, and for all who chose none that is there."""
        return (None if user_id is None else _if_there(await self.chosen(user_id))) or self.default

    async def lately(self, user_id: str) -> str:
        """The same as it was at most a minute ago, so that not every turn asks the store."""
        zone, until_s = self._lately.get(user_id, (None, 0.0))
        if until_s <= monotonic():
            zone = _if_there(await self.chosen(user_id))
            self._lately[user_id] = zone, monotonic() + _LATELY_S
            self._lately.move_to_end(user_id)
            if len(self._lately) > _MOST_LATELY:
                self._lately.popitem(last=False)
        return zone or self.default

    async def chosen(self, user_id: str) -> str | None:
        """What the person chose, whether or not this machine still knows it; None where they chose nothing."""
        return await self._settings.get(user_id, _CHOSEN)

    async def choose(self, user_id: str, name: str) -> str:
        """Keep the person's choice, and give its name as the machine has it.

        Raises:
            UnknownZone: there is no such zone.
        """
        zone = known_zone(name)
        await self._settings.put(user_id, _CHOSEN, zone)
        self._lately.clear()
        return zone

    async def forget(self, user_id: str) -> None:
        """Take the choice back."""
        await self._settings.remove(user_id, _CHOSEN)
        self._lately.clear()

    async def is_first_told_by(self, key: str, user_id: str) -> bool:
        """Whether this call, however often it is tried, tells the person of the zone that they never chose."""
        if await self.chosen(user_id) is not None:
            return False
        told = await self._settings.get(user_id, _TOLD)
        if told is None:
            await self._settings.put(user_id, _TOLD, key)
        return told in (None, key)


def _if_there(zone: str | None) -> str | None:
    """The zone, unless its data is gone from this machine since it was chosen."""
    if zone is not None:
        with suppress(ValueError):
            zone_of(zone)
            return zone
    return None


def known_zone(name: str) -> str:
    """The zone's name, as the machine has it.

    Raises:
        UnknownZone: there is no such zone.
    """
    name = name.strip()
    with suppress(ValueError):
        if not _OF_MACHINE.match(name):
            zone_of(name)
            return name
    like = _spelled_like(name)
    if like and _folded(like[0]) == _folded(name):
        return like[0]
    hint = f"; did you mean {' or '.join(like)}?" if like else "; expected a name such as Europe/Berlin, or UTC"
    raise UnknownZone(f"{name[:60]!r} is no time zone{hint}")


def zone_names() -> list[str]:
    """The names of all zones that this machine knows; the first call blocks for a tenth of a second."""
    return sorted(_known().values())


def _spelled_like(name: str) -> list[str]:
    """Names of zones, at most three: the same in other letters, of that city, or spelled nearly so."""
    wanted = _folded(name)
    known = _known()
    if wanted in known:
        return [known[wanted]]
    cities = sorted(zone for folded, zone in known.items() if folded.rpartition("/")[2] == wanted)
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.75)
    return cities[:3] or [known[each] for each in near]


@cache
def _known() -> dict[str, str]:
    """The names of all zones; it takes a tenth of a second to find them."""
    return {_folded(zone): zone for zone in available_timezones() if not _OF_MACHINE.match(zone)}


def _folded(name: str) -> str:
    return name.replace(" ", "_").casefold()
