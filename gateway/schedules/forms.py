"""What is asked for when a schedule is made or changed, and what it comes to: mode, text, rule, zone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo

from gateway.domain.visible import without_hidden
from gateway.errors import EthosError
from gateway.schedules.rule import (
    LEAST_MINUTES,
    Days,
    Every,
    Once,
    Rule,
    RuleError,
    checked_cron,
    instant_of,
    next_after,
)
from gateway.schedules.schedule import Missed, Mode, Schedule
from gateway.schedules.zones import UnknownZone, known_zone

T = TypeVar("T")

MAX_TEXT_CHARS = 4_000
LATEST = timedelta(days=3_660)
"""Nothing is planned for longer from now."""
MOST_DAYS = 366
_RULES = ("at", "in_minutes", "every_minutes", "cron", "every_days")
_FIELDS = re.compile(
    rf"\b(?:{'|'.join(_RULES[1:])}|time_of_day|first_day)\b|(?<=`)(?:at|zone)(?=`)|\bat(?=, in_minutes)"
)
_WALL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?")
_TIME_OF_DAY = re.compile(r"\d\d?:\d\d")
_HAS_OFFSET = re.compile(r"\d(?:Z|[+-]\d\d:?\d\d)\Z")


class ScheduleError(EthosError):
    """It cannot be done; the text says what to do.

    Attributes:
        problems: what is wrong, by field of `Wanted`; empty where it is not about one of them.
    """

    def __init__(self, what: str | Mapping[str, str]) -> None:
        self.problems = {} if isinstance(what, str) else dict(what)
        super().__init__(what if isinstance(what, str) else "; ".join(f"{at}: {why}" for at, why in what.items()))


def named(problems: Mapping[str, str], name: Callable[[str], str]) -> dict[str, str]:
    """What is wrong, for people who know the fields of `Wanted` under other names: `name` gives each."""
    return {name(field): _FIELDS.sub(lambda found: name(found[0]), why) for field, why in problems.items()}


class _Wrong(Exception):
    """One field is."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The form. For a new schedule, `text` and one rule are given; for a change, what is to be different.

    Attributes:
        mode: `say` where nothing is given.
        at: once, at a wall-clock time without an offset, `2026-12-24T18:00`; `18:00` is the next such time.
        in_minutes: once, so many minutes from now.
        every_minutes: after so many minutes each.
        cron: five fields.
        every_days: every so many days, at `time_of_day`, `08:00`.
        first_day: of those, `2026-12-01`; without it the first on which the time is still to come.
        zone: of all wall-clock times; the person's own where nothing is given.
    """

    mode: Mode | None = None
    text: str | None = None
    at: str | None = None
    in_minutes: int | None = None
    every_minutes: int | None = None
    cron: str | None = None
    every_days: int | None = None
    time_of_day: str | None = None
    first_day: str | None = None
    zone: str | None = None
    missed: Missed | None = None

    @property
    def rules(self) -> list[str]:
        """The names of the rules that are given."""
        return [name for name in _RULES if getattr(self, name) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form, read."""

    mode: Mode
    text: str
    rule: Rule
    zone: str
    missed: Missed


def read_new(wanted: Wanted, *, zone: str, now: datetime) -> Form:
    """What a new schedule is to be; `zone` where none is given.

    Raises:
        ScheduleError: says of each field what is wrong with it.
    """
    problems: dict[str, str] = {}
    text, zone = _text(wanted.text or "", problems), _zone(wanted.zone or zone, problems)
    rule = _rule(wanted, zone, now, problems)
    if rule is None or problems:
        raise ScheduleError(problems)
    mode = wanted.mode or "say"
    return Form(mode=mode, text=text, rule=rule, zone=zone, missed=wanted.missed or default_missed(mode, rule))


def read_change(wanted: Wanted, schedule: Schedule, *, now: datetime) -> Form:
    """What a schedule is to become.

    Raises:
        ScheduleError: as `read_new`.
    """
    problems: dict[str, str] = {}
    text = schedule.text if wanted.text is None else _text(wanted.text, problems)
    zone = _zone(wanted.zone or schedule.zone, problems)  # which may be gone from this machine
    rule, mode = schedule.rule, wanted.mode or schedule.mode
    if isinstance(rule, Days) and not wanted.rules and (wanted.time_of_day or wanted.first_day):
        at, since = wanted.time_of_day or f"{rule.at:%H:%M}", wanted.first_day or rule.since.isoformat()
        wanted = replace(wanted, every_days=rule.days, time_of_day=at, first_day=since)
    if wanted.rules or wanted.time_of_day or wanted.first_day:
        rule = _rule(wanted, zone, now, problems) or rule
    elif isinstance(rule, Once) and rule.wall is not None and not problems:
        rule = replace(rule, at=instant_of(rule.wall, ZoneInfo(zone)))
    if problems:
        raise ScheduleError(problems)
    was_default = schedule.missed == default_missed(schedule.mode, schedule.rule)
    missed = wanted.missed or (default_missed(mode, rule) if was_default else schedule.missed)
    return Form(mode=mode, text=text, rule=rule, zone=zone, missed=missed)


def default_missed(mode: Mode, rule: Rule) -> Missed:
    """What becomes of what was due while the gateway was down, where the person did not say."""
    if isinstance(rule, Once) or mode == "say":
        return "late"
    return "skip" if mode == "watch" else "newest"


def _text(text: str, problems: dict[str, str]) -> str:
    text = without_hidden(text).replace("\0", "").strip()
    if not text:
        problems["text"] = "it is empty; say what is to be said or done"
    elif len(text) > MAX_TEXT_CHARS:
        problems["text"] = f"{len(text)} characters; {MAX_TEXT_CHARS} are the most"
    return text


def _zone(name: str, problems: dict[str, str]) -> str:
    try:
        return known_zone(name)
    except UnknownZone as error:
        problems["zone"] = str(error)
        return "UTC"


def _rule(wanted: Wanted, zone: str, now: datetime, problems: dict[str, str]) -> Rule | None:
    given = wanted.rules
    if len(given) < 2 and given != ["every_days"] and (wanted.time_of_day or wanted.first_day):
        problems["time_of_day" if wanted.time_of_day else "first_day"] = "it goes with every_days only"
        return None
    if len(given) != 1:
        problems[given[1] if given else "at"] = f"give exactly one of {', '.join(_RULES)}"
        return None
    try:
        return _read_rule(wanted, ZoneInfo(zone), now)
    except _Wrong as error:
        if "zone" not in problems or error.field != "at":  # whether it is past depends on the zone
            problems[error.field] = str(error)
    except RuleError as error:
        problems["cron"] = str(error)
    return None


def _read_rule(wanted: Wanted, zone: ZoneInfo, now: datetime) -> Rule:
    if wanted.at is not None:
        return _once(wanted.at.strip(), zone, now)
    if wanted.in_minutes is not None:
        minutes = _counted("in_minutes", wanted.in_minutes, 0, LATEST // timedelta(minutes=1))
        return Once(at=now + timedelta(minutes=minutes))
    if wanted.every_minutes is not None:
        minutes = _counted("every_minutes", wanted.every_minutes, LEAST_MINUTES, MOST_DAYS * 24 * 60)
        return Every(minutes=minutes, since=now)
    if wanted.cron is not None:
        return checked_cron(wanted.cron)
    return _days(wanted, zone, now)


def _once(given: str, zone: ZoneInfo, now: datetime) -> Once:
    local = now.astimezone(zone).replace(tzinfo=None)
    if _TIME_OF_DAY.fullmatch(given):
        wall = datetime.combine(local.date(), _clock("at", given))
        if instant_of(wall, zone) <= now:
            wall += timedelta(days=1)
        return Once(at=instant_of(wall, zone), wall=wall)
    if _HAS_OFFSET.search(given):
        raise _Wrong("at", f"{given[:40]!r} has an offset; give the time on the wall clock, and its zone in `zone`")
    read = _read(datetime.fromisoformat, given if _WALL.fullmatch(given) else "")
    if read is None:
        raise _Wrong("at", f"{given[:40]!r} is no date and time; expected one such as 2026-12-24T18:00")
    return _at(read, zone, now, local)


def _at(wall: datetime, zone: ZoneInfo, now: datetime, local: datetime) -> Once:
    if wall <= local:
        raise _Wrong("at", f"{wall:%Y-%m-%d %H:%M} is past; in {zone.key} it is {local:%Y-%m-%d %H:%M} now")
    if wall - local > LATEST:
        raise _Wrong("at", f"{wall:%Y-%m-%d} is more than ten years from now")
    at = instant_of(wall, zone)
    if at <= now:  # the hour that is there twice
        raise _Wrong(
            "at", f"{wall:%Y-%m-%d %H:%M} is past: of the two that the change of clocks makes, the first counts"
        )
    return Once(at=at, wall=wall)


def _days(wanted: Wanted, zone: ZoneInfo, now: datetime) -> Days:
    days = _counted("every_days", wanted.every_days or 0, 1, MOST_DAYS)
    if wanted.time_of_day is None:
        raise _Wrong("time_of_day", "every_days needs it, such as 08:00")
    at = _clock("time_of_day", wanted.time_of_day.strip())
    today = now.astimezone(zone).date()
    if wanted.first_day is not None:
        since = _read(date.fromisoformat, wanted.first_day.strip())
        if since is None:
            raise _Wrong("first_day", f"{wanted.first_day[:40]!r} is no day; expected one such as 2026-12-01")
        if abs(since - today) > LATEST:
            raise _Wrong("first_day", "it is more than ten years from now")
        return Days(days=days, at=at, since=since)
    today_at = next_after(Days(days=1, at=at, since=today), zone.key, now)
    return Days(days=days, at=at, since=today if today_at is None else today_at.astimezone(zone).date())


def _clock(field: str, given: str) -> time:
    found = _read(time.fromisoformat, given.zfill(5) if _TIME_OF_DAY.fullmatch(given) else "")
    if found is None:
        raise _Wrong(field, f"{given[:40]!r} is no time of day; expected one such as 08:00")
    return found


def _read(parse: Callable[[str], T], text: str) -> T | None:
    try:
        return parse(text)
    except ValueError:
        return None


def _counted(field: str, number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise _Wrong(field, f"{number} is not from {least} to {most}")
    return number


def now_s() -> datetime:
    """The time, in whole seconds: so it is the same when it comes back from any store."""
    return datetime.now(UTC).replace(microsecond=0)
