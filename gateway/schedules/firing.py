"""What the clock makes of a schedule that is due, as values; and what it asks its store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from gateway.messages import InboundMessage, OutboundMessage, Sender
from gateway.schedules.schedule import Occurrence, Outcome, Schedule

SCHEDULED = "schedule/"
"""How the ids of messages begin that are due, and that nobody wrote: `schedule/<id>/<due>`."""
Where = Literal["here", "elsewhere"]
"""Where a person is told that a schedule was paused; `elsewhere`: what is delivered here does not arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A schedule whose time has come.

    Attributes:
        last_at: the last time of its rule that was taken up, or when its next one was planned, whichever came later.
        by_hand_at: when a person said that it is to run once; None: it is due by its rule.
        turn_id: that it is to have then; None: it is due by its rule.
        is_running: an earlier occurrence of it has not ended.
    """

    schedule: Schedule
    last_at: datetime | None = None
    by_hand_at: datetime | None = None
    turn_id: str | None = None
    is_running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """An occurrence with what goes into a queue for it: a text to be answered, or one to be sent."""

    occurrence: Occurrence
    message: InboundMessage | None = None
    reply: OutboundMessage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What is made of a time at which a heartbeat is due.

    Attributes:
        schedule: with where its person is now, and their clock.
        text: of its file.
        skips: why it does not look, for its history; empty: there is nothing new, which is no news; None: it looks.
        seen: what it looks at, in one word.
    """

    schedule: Schedule
    text: str = ""
    skips: str | None = None
    seen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """All that changes when a schedule is taken up.

    Attributes:
        due: as it was read; nothing is changed where it is not so any more.
        after: as it is from now on.
        last_at: the last time of its rule that is taken up with this.
        tell: where its person is to be told of `after.why`.
        beat: what it looks at, where it is a heartbeat that looks.
    """

    due: Due
    after: Schedule
    last_at: datetime | None = None
    happenings: Sequence[Happening] = ()
    tell: Where | None = None
    beat: Beat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """What a look at the store found.

    Attributes:
        due: what is to be taken up now, the oldest first.
        next_at: when the next one of the others is; None where there is none.
        untold: schedules whose person is to be told why they were paused, and where.
    """

    due: Sequence[Due]
    next_at: datetime | None
    untold: Sequence[tuple[Schedule, Where]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceEnd:
    """What came of an occurrence, for the commit that ends its turn.

    Attributes:
        pauses: why its schedule is paused with that; None where it goes on.
        tell: where its person is told so; None: nowhere.
    """

    outcome: Outcome
    note: str = ""
    pauses: str | None = None
    tell: Where | None = "here"


class OccurrenceStore(Protocol):
    """What a turn asks of the schedules."""

    async def occurrence(self, turn_id: str) -> tuple[Schedule, Occurrence] | None:
        """What the turn does; None where its schedule is gone."""


class ClockStore(OccurrenceStore, Protocol):
    """What the clock asks of the schedules; see `store/schedules.py`."""

    async def look(self, at: datetime, *, limit: int) -> Coming:
        """What is to be done at a time, so many at most."""

    async def fire(self, firings: Sequence[Firing], *, delivered: Collection[str] = ()) -> Sequence[Firing]:
        """Take them up in one commit: each once, whoever else tries it; those of which this made something.

        Args:
            delivered: ids of replies that need no sending, because their channel shows the log.
        """

    async def told(
        self, schedule: Schedule, messages: Sequence[OutboundMessage], *, delivered: Collection[str] = ()
    ) -> bool:
        """Queue what its person is told, and note that; False where that was done already."""

    async def planned(self, *, after: int, limit: int) -> Sequence[Due]:
        """Those that are due at some time, by number."""

    async def plan(self, moved: Sequence[tuple[Schedule, Schedule]]) -> None:
        """Keep other times in the place of those that were read; what is not so any more stays."""


def message_of(schedule: Schedule, due_at: datetime) -> InboundMessage:
    """Its text as words of its person, in the conversation to which it is delivered."""
    name = event_id(schedule.id, due_at)
    sender = Sender(
        channel=schedule.conversation.channel,
        user=schedule.account,
        display_name=schedule.display_name,
        is_verified=True,
    )
    return InboundMessage(
        id=name,
        event_id=name,
        conversation=schedule.conversation,
        sender=sender,
        text=schedule.text,
        sent_at=due_at,
        is_direct=schedule.is_direct,
        mentions_bot=True,
    )


def event_id(schedule_id: int, due_at: datetime) -> str:
    """Of the message that is due, the same for ever."""
    return f"{SCHEDULED}{schedule_id}/{due_at.isoformat(timespec='milliseconds')}"
