"""When something is due: the rules, and the next time of each.

Wall-clock times are those of an IANA zone. A time that the zone leaves out is the end of the gap; one that is there
twice is the first, also in a rule of cron for every hour. Only `Every` and a duration go by the time that passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gateway.errors import EthosError

LEAST_MINUTES = 5
"""Nothing is due more often."""
MAX_CRON_CHARS = 120
_DAY_MINUTES = 24 * 60
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class RuleError(EthosError):
    """A rule that cannot be used; the text says what is wrong and what would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """At one time.

    Attributes:
        at: the instant, UTC.
        wall: the wall-clock time that was meant, without a zone; None where it was a duration.
    """

    at: datetime
    wall: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """After so many minutes each, from an instant (UTC) on, whatever the clocks do."""

    minutes: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """By five fields of cron, on the wall clock; `checked_cron` says which."""

    fields: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Every so many days at a time of day, from a day on, on the wall clock."""

    days: int
    at: time
    since: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """Every so many minutes, counted on each day from one time of day on, until another; all day where both are one."""

    minutes: int
    begins: time
    ends: time


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """At no time: when a service calls the hook of this name."""

    hook: str


Rule = Once | Every | Cron | Days | Within | Called


def next_after(rule: Rule, zone: str, after: datetime) -> datetime | None:
    """The first time after an instant at which it is due, UTC; None where there is none.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: the zone's data is gone from this machine.
    """
    match rule:
        case Once(at=at, wall=wall):
            due = at if wall is None else instant_of(wall, ZoneInfo(zone))  # the zone's data may have changed since
            return due if due > after else None
        case Every(minutes=minutes, since=since):
            period = timedelta(minutes=minutes)
            return since + period * max(1, (after - since) // period + 1)
        case Cron(fields=fields):
            return next(_times_of_cron(fields, ZoneInfo(zone), after), None)
        case Days():
            return next(_times_of_days(rule, ZoneInfo(zone), after))
        case Within():
            return next(_times_within(rule, ZoneInfo(zone), after))
        case Called():
            return None


def upcoming(rule: Rule, zone: str, after: datetime, count: int = 3) -> Sequence[datetime]:
    """The next times, UTC; fewer where there are no more, none where the zone's data is gone from this machine."""
    times: list[datetime] = []
    with suppress(ZoneInfoNotFoundError):
        while len(times) < count and (due := next_after(rule, zone, times[-1] if times else after)) is not None:
            times.append(due)
    return times


def is_by_its_zone(rule: Rule) -> bool:
    """Whether the zone of a schedule says when it is due; a heartbeat goes by where its person is now."""
    return isinstance(rule, Cron | Days) or (isinstance(rule, Once) and rule.wall is not None)


def in_words(rule: Rule, zone: str) -> str:
    """For people: "every weekday at 08:00 (Europe/Berlin)"."""
    match rule:
        case Once(at=at, wall=wall):
            return _once_in_words(at, wall, zone)
        case Every(minutes=minutes):
            return f"every {_counted(minutes // 60, 'hour') if minutes % 60 == 0 else _counted(minutes, 'minute')}"
        case Cron(fields=fields):
            return f"{_cron_in_words(fields)} ({zone})"
        case Days(days=days, at=at, since=since):
            if days % 7 == 0:
                return f"every {_counted(days // 7, 'week')} on {_WEEKDAYS[since.weekday()]} at {at:%H:%M} ({zone})"
            return f"every {_counted(days, 'day')} at {at:%H:%M} ({zone})"
        case Within() | Called():
            return _configured_in_words(rule, zone)


def rule_text(rule: Rule) -> str:
    """The rule as JSON, to be kept."""
    match rule:
        case Once(at=at, wall=wall):
            form: dict[str, Any] = {"at": at.isoformat(), "wall": wall and wall.isoformat()}
        case Every(minutes=minutes, since=since):
            form = {"minutes": minutes, "since": since.isoformat()}
        case Cron(fields=fields):
            form = {"fields": fields}
        case Within(minutes=minutes, begins=begins, ends=ends):
            form = {"minutes": minutes, "begins": begins.isoformat(), "ends": ends.isoformat()}
        case Called(hook=hook):
            form = {"hook": hook}
        case _:
            form = {"days": rule.days, "at": rule.at.isoformat(), "since": rule.since.isoformat()}
    return json.dumps({"rule": type(rule).__name__.lower(), **form})


def read_rule(text: str) -> Rule:
    """What `rule_text` wrote."""
    form = json.loads(text)
    match form["rule"]:
        case "once":
            wall = form["wall"] and datetime.fromisoformat(form["wall"])
            return Once(at=datetime.fromisoformat(form["at"]), wall=wall)
        case "every":
            return Every(minutes=form["minutes"], since=datetime.fromisoformat(form["since"]))
        case "cron":
            return Cron(fields=form["fields"])
        case "days":
            at, since = time.fromisoformat(form["at"]), date.fromisoformat(form["since"])
            return Days(days=form["days"], at=at, since=since)
        case "within":
            begins, ends = time.fromisoformat(form["begins"]), time.fromisoformat(form["ends"])
            return Within(minutes=form["minutes"], begins=begins, ends=ends)
        case "called":
            return Called(hook=form["hook"])
        case kind:
            raise ValueError(f"{kind!r} is no kind of rule")


def instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """The instant of a wall-clock time, UTC: the first of two, and the end of the gap where there is none.

    Args:
        wall: without a zone.
    """
    before = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if before.astimezone(zone).replace(tzinfo=None) == wall:
        return before
    # In a gap, fold 1 counts with the offset behind it, and so lies in front of it (PEP 495). Once between, it changes.
    low, high = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), before
    old = low.astimezone(zone).utcoffset()
    while (step := (high - low) // timedelta(seconds=2)) > 0:
        middle = low + timedelta(seconds=step)
        if middle.astimezone(zone).utcoffset() == old:
            low = middle
        else:
            high = middle
    return high


def checked_cron(fields: str) -> Cron:
    """A rule of five fields of cron.

    Raises:
        RuleError: they are not five, they cannot be read, they are never due, or more often than every five minutes.
    """
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 (loaded with the first rule of cron)

    fields = " ".join(fields.split())
    if len(fields) > MAX_CRON_CHARS:
        raise RuleError(f"longer than {MAX_CRON_CHARS} characters; use several schedules")
    if (count := len(fields.split())) != 5:
        form = 'minute, hour, day of month, month, day of week, as in "0 8 * * 1-5"'
        raise RuleError(f"{count} field{'' if count == 1 else 's'}; expected five: {form}")
    try:
        parsed = CronSim(fields, _ANY_TIME)
        is_due = next(parsed, None) is not None
    except CronSimError as error:
        form = 'numbers, and days that there are, as in "0 8 * * 1-5"'
        raise RuleError(f"{error} in {fields!r}; expected {form}") from error
    if not is_due:
        raise RuleError(f"{fields!r} is never due; there is no such day")
    minutes = sorted(hour * 60 + minute for hour in parsed.hours for minute in parsed.minutes)
    if any(later - earlier < LEAST_MINUTES for earlier, later in pairwise([*minutes, minutes[0] + _DAY_MINUTES])):
        raise RuleError(f"{fields!r} is due more often than every {LEAST_MINUTES} minutes, which is the least")
    return Cron(fields=fields)


def _times_of_cron(fields: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Its times after an instant, in order; one of them may come twice."""
    from cronsim import CronSim  # noqa: PLC0415 (loaded with the first rule of cron)

    start = after.astimezone(zone).replace(tzinfo=UTC)  # so that cronsim counts on the wall clock only
    found = (instant_of(each.replace(tzinfo=None), zone) for each in CronSim(fields, start))
    return (each for each in found if each > after)  # in a doubled hour, the next on the wall clock may have been


def _times_of_days(rule: Days, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    passed = (after.astimezone(zone).date() - rule.since).days // rule.days
    count = max(0, passed - 1)
    while True:
        due = instant_of(datetime.combine(rule.since + timedelta(days=count * rule.days), rule.at), zone)
        if due > after:
            yield due
        count += 1


def _times_within(rule: Within, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    period, day = timedelta(minutes=rule.minutes), after.astimezone(zone).date() - timedelta(days=1)
    while True:
        begins = instant_of(datetime.combine(day, rule.begins), zone)
        last_day = day if rule.begins < rule.ends else day + timedelta(days=1)
        ends = instant_of(datetime.combine(last_day, rule.ends), zone)
        due = begins + period * max(0, (after - begins) // period + 1)
        while due < ends or (due == ends and rule.begins != rule.ends):
            yield due
            due += period
        day += timedelta(days=1)


def _once_in_words(at: datetime, wall: datetime | None, zone: str) -> str:
    local = wall
    if local is None:
        try:
            local = at.astimezone(ZoneInfo(zone))
        except ZoneInfoNotFoundError:
            local, zone = at, "UTC"
    return f"once, on {local:%a, %d %b %Y} at {local:%H:%M} ({zone})"


def _configured_in_words(rule: Within | Called, zone: str) -> str:
    if isinstance(rule, Called):
        return f"when the hook {rule.hook} is called"
    period = f"as the heartbeat, {in_words(Every(minutes=rule.minutes, since=_ANY_TIME), zone)}"
    return period if rule.begins == rule.ends else f"{period} from {rule.begins:%H:%M} to {rule.ends:%H:%M} ({zone})"


def _cron_in_words(fields: str) -> str:
    from cronsim import CronSim  # noqa: PLC0415 (loaded with the first rule of cron)

    words = CronSim(fields, _ANY_TIME).explain()
    if found := re.fullmatch(
        r"At ([0-9:, and]+) (?:every day|on (.+day(?:, .+day| and .+day| through .+day)*))", words
    ):
        days = found[2] or "day"
        is_week = days == "Monday through Friday"
        return f"every {'weekday' if is_week else days} at {found[1]}"
    return words[:1].lower() + words[1:]


def _counted(count: int, noun: str) -> str:
    return noun if count == 1 else f"{count} {noun}s"
