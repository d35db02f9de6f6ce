"""What becomes of a schedule whose time has come: what is run of it, and what was missed and is only noted."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.config.values import zone_of
from gateway.schedules.rule import Every, Once, Rule, next_after
from gateway.schedules.schedule import MOST_CAUGHT_UP, ON_TIME, Schedule

_FIRST_STEP = timedelta(minutes=10)
_LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenUp:
    """What is made of a schedule at one moment.

    Attributes:
        runs: the times that are run, the oldest first.
        skipped: the first and the last time that is only noted; None where there is none.
        next_at: when it is due next; None where it never is again.
    """

    runs: Sequence[datetime]
    skipped: tuple[datetime, datetime] | None
    next_at: datetime | None

    @property
    def last_at(self) -> datetime:
        """The last time that this takes up."""
        last = [] if self.skipped is None else [self.skipped[1]]
        return max([*last, *self.runs[-1:]])


def take_up(schedule: Schedule, due_at: datetime, now: datetime) -> TakenUp:
    """Decide by what the schedule says of missed times.

    Args:
        due_at: its first time that was not taken up yet, which has come.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: the data of its zone is gone from this machine.
    """
    next_at = next_after(schedule.rule, schedule.zone, max(now, due_at))
    if is_on_time(due_at, now):
        return TakenUp(runs=[due_at], skipped=None, next_at=next_at)
    most = MOST_CAUGHT_UP if schedule.missed == "each" else 1
    times = times_until(schedule.rule, schedule.zone, due_at, now, most=most + 1)
    runs = times[-most:]
    newest = runs[-1]
    is_fresh = next_at is None or (now - newest) * 2 < next_at - newest
    if not is_on_time(newest, now) and (schedule.missed == "skip" or (schedule.missed == "newest" and not is_fresh)):
        runs = []
    left = times[: len(times) - len(runs)]
    return TakenUp(runs=runs, skipped=(due_at, left[-1]) if left else None, next_at=next_at)


def is_on_time(due_at: datetime, now: datetime) -> bool:
    """Whether nobody would call it late."""
    return now - due_at <= ON_TIME


def times_until(rule: Rule, zone: str, first: datetime, until: datetime, *, most: int) -> Sequence[datetime]:
    """The newest so many times up to an instant, the oldest first; `first` is one of them, and none is before it.

    Looks back from the end in steps that double, so a long pause costs no more than a short one.
    """
    step = _FIRST_STEP
    while True:
        start = max(first, until - step)
        times: deque[datetime] = deque([first] if start == first else [], maxlen=most)
        found: datetime | None = start
        while found is not None and (found := next_after(rule, zone, found)) is not None and found <= until:
            times.append(found)
        if len(times) == most or start == first:
            return list(times)
        step *= 2


def moved(schedule: Schedule, last_at: datetime | None, now: datetime) -> datetime | None:
    """When it is due next by today's clock and data of its zone, which may have changed since it was worked out.

    Between the time that was taken up last and the one that was to be next, so that none of both comes twice. Where the
    last one is still to come, the clock was set back: what is due from now on is not what is due behind that.
    """
    if schedule.next_at is not None and last_at is not None and last_at > now:
        return next_after(schedule.rule, schedule.zone, now)
    if schedule.next_at is None or isinstance(schedule.rule, Every):
        return schedule.next_at
    if isinstance(schedule.rule, Once):
        return next_after(schedule.rule, schedule.zone, _LONG_AGO)
    since = min(last_at or schedule.created_at, schedule.next_at)
    return next_after(schedule.rule, schedule.zone, since + (schedule.next_at - since) / 2)


def due_words(due_at: datetime, now: datetime, zone: str) -> str:
    """For people: "at 08:00", with the day where that was another one; in UTC where the zone's data is gone."""
    try:
        where, named = zone_of(zone), ""
    except ValueError:
        where, named = UTC, " UTC"
    local = due_at.astimezone(where)
    is_today = local.date() == now.astimezone(where).date()
    return f"at {local:%H:%M}{named}" if is_today else f"on {local:%a, %d %b %Y} at {local:%H:%M}{named}"
