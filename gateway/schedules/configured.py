"""Hooks and heartbeats as schedules: their rows say what the configuration says, and where their person is now."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from gateway.config import LiveConfig
from gateway.config.unattended import HeartbeatConfig, HookConfig
from gateway.errors import EthosError
from gateway.people.addressing import Addressee, Addressing, NotReached
from gateway.schedules.forms import now_s
from gateway.schedules.hooks import HookStore
from gateway.schedules.rule import Called, Rule, Within, next_after
from gateway.schedules.schedule import TAKEN_OUT, Missed, Mode, Schedule, ScheduleState, ScheduleStore
from gateway.schedules.zones import Zones

HOOK, HEARTBEAT = "hook/", "heartbeat/"
"""How the keys of their rows begin."""
LOOK = "Look at what your HEARTBEAT.md says."
"""The text of a heartbeat, for lists."""
AGAIN_S = 600.0
_TRIES = 5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """What the configuration says of one row."""

    key: str
    to: str
    personality_id: str
    mode: Mode
    text: str
    rule: Rule
    missed: Missed


class Configured:
    """Keeps the rows equal to the configuration."""

    def __init__(
        self,
        hooks: HookStore,
        schedules: ScheduleStore,
        addressing: Addressing,
        zones: Zones,
        config: LiveConfig,
        *,
        successors: Callable[[str], Sequence[str]],
        now: Callable[[], datetime] = now_s,
    ) -> None:
        """Nothing is read yet; `successors` is `LinkedIdentities.successors`."""
        self._hooks = hooks
        self._schedules = schedules
        self._addressing = addressing
        self._zones = zones
        self._config = config
        self._successors = successors
        self._now = now
        self._asked = asyncio.Event()
        self.wake: Callable[[], object] = lambda: None
        """Called when something is due at another time, so that the clock looks again."""
        self.problems: Sequence[str] = ()
        """What an operator should know, one line each; of the last `settle`."""

    def settle_soon(self) -> None:
        """Say that the configuration, or where an owner is reached, is another."""
        self._asked.set()

    async def run(self) -> None:
        """Settle whenever it is asked, and while something is in the way, until cancelled."""
        while True:
            self._asked.clear()
            await self.settle()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if self.problems else None):
                    await self._asked.wait()

    async def settle(self) -> None:
        """Make, change and end rows; what cannot be done is logged, and tried again."""
        problems, entries = [], {entry.key: entry for entry in self._entries()}
        try:
            kept = await self._hooks.configured()
            for key, entry in entries.items():
                try:
                    await self._settled(entry)
                except NotReached as error:
                    problems.append(f"{key.replace('/', ' ')}: {error}")
            for schedule in kept:
                if schedule.key not in entries and not schedule.is_taken_out:
                    await self._end(schedule)
        except EthosError as error:
            problems.append(str(error))
        for problem in problems:
            if problem not in self.problems:
                _log.warning("unattended_not_ready", problem=problem)
        self.problems = problems

    async def current(self, key: str) -> Schedule | None:
        """The row of this key, as the configuration says now; None where that says nothing of it.

        Raises:
            NotReached: its person cannot be told anything.
            StoreError, IdentityMapBroken, FileError: it cannot be known now.
        """
        entry = next((one for one in self._entries() if one.key == key), None)
        return None if entry is None else await self._settled(entry)

    async def obstacle(self, key: str) -> str | None:
        """Why the person of this key cannot be told anything; None where they can. Raises as `current`."""
        entry = next((one for one in self._entries() if one.key == key), None)
        try:
            if entry is not None:
                await self._addressing.find(entry.to)
        except NotReached as error:
            return str(error)
        return None

    def _entries(self) -> Iterator[_Entry]:
        config = self._config.current
        for name, hook in config.hooks.items():
            yield _of_hook(name, hook, config.personality)
        if config.heartbeat.every is not None and config.schedules.enabled:
            for personality_id in config.heartbeat.personalities or (config.personality,):
                yield _of_heartbeat(config.heartbeat, config.heartbeat.every, personality_id)

    async def _settled(self, entry: _Entry) -> Schedule:
        for _ in range(_TRIES):
            kept = await self._schedules.made_by(entry.key)
            before = [] if kept is None else self._successors(kept.user_id)
            found = await self._addressing.find(entry.to, before=before)
            if kept is not None and self._successors(found.user_id)[-1] != before[-1]:  # what was done stays theirs
                if not await self._end(kept, key=f"{entry.key}/{kept.id}"):
                    continue
                kept = None
            wanted = await self._wanted(entry, kept, found)
            if kept is None:
                if await self._was_paused(entry.key):
                    wanted = replace(wanted, state="paused", next_at=None)
                made = await self._schedules.add(wanted, most=sys.maxsize)
                if made is not None:
                    self.wake()
                    return made
                continue
            planned_at = None if wanted.next_at in (None, kept.next_at) else self._now()
            if wanted == kept or await self._schedules.replace(wanted, kept, planned_at=planned_at):
                if wanted.next_at != kept.next_at:
                    self.wake()
                return wanted
        raise EthosError(f"the schedule of {entry.key} changes all the time")

    async def _wanted(self, entry: _Entry, kept: Schedule | None, found: Addressee) -> Schedule:
        now, zone = self._now(), await self._zones.of(found.user_id)
        schedule = Schedule(
            id=0 if kept is None else kept.id,
            key=entry.key,
            user_id=found.user_id,
            personality_id=entry.personality_id,
            conversation=found.conversation,
            account=found.account,
            display_name=found.display_name,
            is_direct=True,
            mode=entry.mode,
            text=entry.text,
            rule=entry.rule,
            zone=zone,
            missed=entry.missed,
            next_at=next_after(entry.rule, zone, now),
            created_at=now,
        )
        if kept is None:
            return schedule
        schedule = replace(schedule, created_at=kept.created_at)
        if not kept.is_taken_out:
            schedule = replace(schedule, state=kept.state, why=kept.why, failures=kept.failures)
        if schedule.state != "active":
            return replace(schedule, next_at=None)
        is_same = (kept.state, kept.rule, kept.zone) == ("active", entry.rule, zone)
        return replace(schedule, next_at=kept.next_at) if is_same else schedule

    async def _was_paused(self, key: str) -> bool:
        """Whether the row that ended because its person changed was paused; its end may be all that is on disk."""
        ended = [one for one in await self._hooks.configured() if one.key.startswith(f"{key}/")]
        return bool(ended) and ended[-1].state == "paused"

    async def _end(self, schedule: Schedule, *, key: str | None = None) -> bool:
        state: ScheduleState = "paused" if key is not None and schedule.state == "paused" else "failing"
        ended = replace(schedule, key=key or schedule.key, state=state, next_at=None, why=TAKEN_OUT)
        is_ended = await self._schedules.replace(ended, schedule)
        if is_ended:
            _log.info("unattended_taken_out", key=schedule.key)
        return is_ended


def _of_hook(name: str, hook: HookConfig, default: str) -> _Entry:
    return _Entry(
        key=HOOK + name,
        to=hook.to,
        personality_id=hook.personality or default,
        mode=hook.mode,
        text=hook.text,
        rule=Called(hook=name),
        missed="late",
    )


def _of_heartbeat(heartbeat: HeartbeatConfig, minutes: int, personality_id: str) -> _Entry:
    begins, ends = heartbeat.times
    return _Entry(
        key=HEARTBEAT + personality_id,
        to=heartbeat.to,
        personality_id=personality_id,
        mode="watch",
        text=LOOK,
        rule=Within(minutes=minutes, begins=begins, ends=ends),
        missed="skip",
    )
