"""A schedule as a row, its occurrences, and what their store can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, Protocol

from gateway.messages import ConversationRef
from gateway.schedules.rule import Called, Once, Rule, Within

Mode = Literal["say", "do", "watch"]
"""`say` delivers the text as it is, without a model; `do` runs a turn with the text as the person's words; `watch` runs
one that is silent unless it reports something."""
Missed = Literal["late", "skip", "newest", "each"]
"""What becomes of what was due while the gateway was down: `late` delivers it and says when it was due, `skip` notes
it, `newest` runs the last one if less than half a period has passed since, `each` runs all of them, up to
`MOST_CAUGHT_UP`."""
ScheduleState = Literal["active", "paused", "failing", "done"]
"""`paused` by a person; `failing`: paused by the gateway, for the reason in `why`; `done`: nothing is due any more."""
Outcome = Literal["begun", "done", "silent", "skipped", "failed"]
"""Of an occurrence; `begun`: its message or its text is in a queue; `silent`: a watch had nothing to report."""

MOST_OF_PERSON = 50
"""Schedules that a person may have, of those that are not done."""
MOST_CAUGHT_UP = 48
"""Missed occurrences that `each` runs, the last ones; those before them are noted as skipped."""
MOST_FAILURES = 5
"""In a row; then a schedule is paused, and its person is told."""
ON_TIME = timedelta(minutes=2)
"""What is taken up later than this was missed, and says when it was due."""
LONGEST_JITTER_S = 30
TAKEN_OUT = "it is not in the configuration any more"
"""Why what stood there is paused."""
MOST_STEPS = 8
"""Of a turn that nobody waits for."""
REPORT = "report"
"""The tool by which a `watch` says something; other turns do not have it."""
PLANNED_AFTER_READING = "a schedule that was made after reading words of others"
"""The origin of its text."""
OF_SCHEDULING = frozenset(["remind", "schedule_create", "schedule_change", "schedule_cancel"])
"""Tools that no turn of a schedule has, so that none multiplies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What is to happen when, for whom, and where it is delivered.

    Attributes:
        id: its number, for people; 0 before it is kept.
        key: of the call that made it, so that a repetition of that call makes no second one.
        account: of the person on the channel, as in `Sender.user`; the messages of its occurrences come from it.
        is_direct: the conversation is a direct chat of the person.
        text: what is said, or what the agent is to do.
        zone: IANA name; wall-clock times of the rule are meant there.
        next_at: when it is due next, UTC; None where it is not active, or nothing is due any more.
        turn_id: in which it was made; empty where a person made it on another surface.
        sources: whose words, besides the person's, stood in front of the turn that made it; its turns begin with them.
        failures: occurrences that failed, in a row.
        why: for which reason the gateway has paused it.
    """

    id: int = 0
    key: str
    user_id: str
    personality_id: str
    conversation: ConversationRef
    account: str
    display_name: str
    is_direct: bool
    mode: Mode
    text: str
    rule: Rule
    zone: str
    missed: Missed
    state: ScheduleState = "active"
    next_at: datetime | None
    turn_id: str = ""
    sources: tuple[str, ...] = ()
    failures: int = 0
    why: str | None = None
    created_at: datetime

    @property
    def is_configured(self) -> bool:
        """It stands in the configuration, which alone changes it and takes it away: a hook, or the heartbeat."""
        return isinstance(self.rule, Called | Within)

    @property
    def is_heartbeat(self) -> bool:
        """It looks at what a personality's `HEARTBEAT.md` says."""
        return isinstance(self.rule, Within)

    @property
    def is_taken_out(self) -> bool:
        """It stood in the configuration, and does not any more."""
        return self.why == TAKEN_OUT

    @property
    def fires_at(self) -> datetime | None:
        """When it is taken up: what repeats and needs a model, some seconds after it is due, lest all ask at once."""
        if self.next_at is None or self.mode == "say" or isinstance(self.rule, Once):
            return self.next_at
        return self.next_at + timedelta(milliseconds=self.id * 7_919 % (LONGEST_JITTER_S * 1_000))

    def paused(self, why: str) -> Schedule:
        """The same where the gateway pauses it; one that is not active keeps its state."""
        is_active = self.state == "active"
        return replace(
            self, state="failing" if is_active else self.state, next_at=None if is_active else self.next_at, why=why
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One time at which a schedule was due, and what came of it.

    Attributes:
        begun_at: when it was taken up.
        turn_id: of its turn, which is the same however often it is tried, or of its delivery; empty for none.
        note: for people: why it failed, was skipped, or how late it was.
        is_by_hand: a person ran it, at no time of its rule.
    """

    schedule_id: int
    due_at: datetime
    outcome: Outcome
    begun_at: datetime
    turn_id: str = ""
    note: str = ""
    is_by_hand: bool = False


class ScheduleStore(Protocol):
    """Schedules and their history, for every surface; see `store/schedules.py`."""

    async def add(self, schedule: Schedule, *, most: int = MOST_OF_PERSON, ids: Sequence[str] = ()) -> Schedule | None:
        """Keep it, once for its key, and give it with its number.

        Args:
            most: so many of the person's are not done at most; None is returned where this would be one more.
            ids: all user ids of the person, whose schedules are counted together.
        """

    async def schedule(self, schedule_id: int) -> Schedule | None:
        """One by its number."""

    async def made_by(self, key: str) -> Schedule | None:
        """The one that this key has made."""

    async def schedules(
        self,
        *,
        user_ids: Sequence[str] | None = None,
        is_ended: bool = False,
        state: ScheduleState | None = None,
        delivered_in: ConversationRef | None = None,
        after: int = 0,
        limit: int = 1_000,
    ) -> Sequence[Schedule]:
        """Those of a person, or all; oldest first.

        Args:
            user_ids: None for everybody's.
            is_ended: those that are done, too.
            state: only those in this state, also where it is `done`.
            delivered_in: only those that are delivered in this conversation, whatever the thread.
            after: only those with greater numbers.
        """

    async def replace(self, schedule: Schedule, expected: Schedule, *, planned_at: datetime | None = None) -> bool:
        """Keep it in the place of `expected`; False where the row is not as expected any more, and nothing changed.

        Grants were given to what it was: where its person, personality, mode or text is another, they end.

        Args:
            planned_at: when its next time was worked out, where that is another one: nothing before it is due.
        """

    async def remove(self, schedule_id: int) -> bool:
        """Take it away with its history and what waits of it; False where there is none."""

    async def run_now(self, schedule: Schedule, at: datetime, turn_id: str) -> bool:
        """Have it run once more, as soon as the clock looks; False where it is gone, or an occurrence is not ended.

        Args:
            turn_id: that this run is to have; where one has it already, there is no other.
        """

    async def history(self, schedule_id: int, *, limit: int = 50, before_ms: int | None = None) -> Sequence[Occurrence]:
        """Its last occurrences, newest first; those that were due before a time, where one is given (Unix time)."""
