"""What `/timezone` says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gateway.config.values import zone_of
from gateway.services.caller import Caller

if TYPE_CHECKING:
    from gateway.schedules.schedule import Schedule
    from gateway.services.zones import ZoneService

NONE = "default"


async def timezone_text(service: ZoneService, caller: Caller, name: str) -> str:
    """Show the zone, or choose one."""
    if not name:
        zone, chosen = await service.show(caller)
        if chosen not in (None, zone):
            gone = f"{chosen} is not known on this machine any more"
            return f"{gone}, so I take that of this gateway: {_shown(zone)}. {_how(zone)}"
        if chosen is not None:
            return f"Your time zone is {_shown(zone)}. `/timezone {NONE}` takes that back."
        return f"You have chosen no time zone, so I take that of this gateway: {_shown(zone)}. {_how(zone)}"
    zone, kept = await service.choose(caller, None if name.casefold() == NONE else name)
    return f"From now on your time zone is {_shown(zone)}.{_kept(kept)}"


def _how(zone: str) -> str:
    other = "America/New_York" if zone == "Europe/Berlin" else "Europe/Berlin"
    return f"Choose yours: `/timezone {other}`."


def _shown(zone: str) -> str:
    now = datetime.now(zone_of(zone))
    return f"**{zone}**, where it is {now:%A}, {now.day} {now:%B}, {now:%H:%M}"


def _kept(schedules: Sequence[Schedule]) -> str:
    if not schedules:
        return ""
    numbers = ", ".join(f"{one.id} ({one.zone})" for one in schedules)
    return f" What is planned keeps its own: {numbers}. Ask me to change it, if it is to move."
