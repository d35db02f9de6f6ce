"""Whether a heartbeat has anything to look at: what its file says, and what is new since it looked last."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gateway.config import LiveConfig
from gateway.domain.person_settings import PersonSettings
from gateway.domain.personalities import Personalities
from gateway.domain.personalities.places import HEARTBEAT_NAME
from gateway.errors import FileError
from gateway.people.addressing import NotReached
from gateway.sandbox.workspace import Workspaces
from gateway.schedules.configured import Configured
from gateway.schedules.firing import Beat
from gateway.schedules.schedule import Schedule

MAX_TEXT_CHARS = 8_000
"""Of the file; more of it is not read."""
SCHEMA_TOKENS = 1_000
"""Of the descriptions of tools, before those of packages have to be found."""
CONTEXT_TOKENS = 4_000
"""Of what stands in front of the model: the prompt of the personality is never cut, and the memory has what is left."""
_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
_QUIET = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What there is about a person; each is another one once something has happened.

    Attributes:
        said: the last message that they wrote.
        done: the last time at which another schedule of theirs was due.
        due: numbers of other schedules that are due soon, each with its time.
    """

    said: int
    done: int
    due: Sequence[tuple[int, int]]


class BeatStore(Protocol):
    """What a heartbeat asks before it costs anything; see `store/heartbeats.py`."""

    async def happened(self, user_ids: Collection[str], *, until: datetime) -> Happened:
        """What there is; `due` is what is due until then."""

    async def spent_usd(self, since: datetime) -> float:
        """What the looks of all heartbeats did cost."""


class Heartbeats:
    """Decides it without a model."""

    def __init__(
        self,
        configured: Configured,
        store: BeatStore,
        settings: PersonSettings,
        personalities: Personalities,
        config: LiveConfig,
        *,
        person_ids: Callable[[str], Awaitable[Collection[str]]],
        workspaces: Callable[[], Workspaces | None],
        day_began: Callable[[datetime], datetime],
    ) -> None:
        """`day_began` is the midnight from which budgets of a day count."""
        self._configured = configured
        self._store = store
        self._settings = settings
        self._personalities = personalities
        self._config = config
        self._person_ids = person_ids
        self._workspaces = workspaces
        self._day_began = day_began

    async def beat(self, schedule: Schedule, now: datetime, *, until: datetime, is_by_hand: bool) -> Beat:
        """What is to be done of it.

        Args:
            until: when it is due next.
            is_by_hand: a person asked for it, so it looks also where nothing is new.

        Raises:
            StoreError, IdentityMapBroken: that cannot be known now.
        """
        try:
            current = await self._configured.current(schedule.key)
            text = None if current is None else await asyncio.to_thread(self._text, current.personality_id)
            if current is None or text is None:
                skips = f"there is nothing in its {HEARTBEAT_NAME}" if is_by_hand else _QUIET
                return Beat(schedule=current or schedule, skips=skips)
            seen = await self._seen(current, text, until)
        except (NotReached, FileError, OSError) as error:
            return Beat(schedule=schedule, skips=str(error))
        if not is_by_hand and seen == await self._settings.get(current.user_id, _key(current)):
            return Beat(schedule=current, skips=_QUIET)
        budget_usd = self._config.current.heartbeat.budget_usd_per_day
        if budget_usd is not None and await self._store.spent_usd(self._day_began(now)) >= budget_usd:
            return Beat(schedule=current, skips=f"its budget of {budget_usd:g} USD a day is used up")
        return Beat(schedule=current, text=text, seen=seen)

    async def begun(self, beat: Beat) -> None:
        """Remember what it looks at; a process that dies before that looks once more."""
        await self._settings.put(beat.schedule.user_id, _key(beat.schedule), beat.seen)

    def _text(self, personality_id: str) -> str | None:
        """What the file says; None where there is nothing in it but headings and comments."""
        data = self._personalities.place.read(personality_id, HEARTBEAT_NAME)
        text = _COMMENT.sub("", (data or b"").decode("utf-8-sig", "replace")).replace("\r\n", "\n").strip()
        lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
        return text[:MAX_TEXT_CHARS] if lines else None

    async def _seen(self, schedule: Schedule, text: str, until: datetime) -> str:
        happened = await self._store.happened(
            {schedule.user_id, *await self._person_ids(schedule.user_id)}, until=until
        )
        workspaces = self._workspaces()
        files = () if workspaces is None else await asyncio.to_thread(_files, workspaces, schedule.user_id)
        what = [text, happened.said, happened.done, *happened.due, *files]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def _files(workspaces: Workspaces, user_id: str) -> Sequence[tuple[str, int, str]]:
    listed = workspaces.of_person(user_id).files()
    return [(one.name, one.size_bytes, one.modified_at.isoformat()) for one in listed]


def _key(schedule: Schedule) -> str:
    return f"heartbeat_{schedule.personality_id}"
