"""When schedules are due, held against wall-clock arithmetic of this file's own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.schedules.rule import (
    MAX_CRON_CHARS,
    Cron,
    Days,
    Every,
    Once,
    Rule,
    RuleError,
    checked_cron,
    in_words,
    instant_of,
    next_after,
    read_rule,
    rule_text,
    upcoming,
)

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia")
FIRST, LAST = datetime(2007, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
BERLIN = "Europe/Berlin"


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def wall(text: str) -> datetime:
    return datetime.fromisoformat(text)


@dataclass(frozen=True)
class Stretch:
    """A time in which the clocks of a zone are not changed: instants without a zone, UTC."""

    begin: datetime
    end: datetime
    offset: timedelta


@cache
def stretches(zone: str) -> Sequence[Stretch]:
    """Asked of the zone by instants only, every quarter of an hour."""
    info = ZoneInfo(zone)
    found: list[Stretch] = []
    at, end = FIRST - timedelta(days=40), LAST + timedelta(days=400)
    begin, offset = at, at.astimezone(info).utcoffset()
    while at <= end:
        now = at.astimezone(info).utcoffset()
        if now != offset or at == end:
            assert offset is not None
            found.append(Stretch(begin.replace(tzinfo=None), at.replace(tzinfo=None), offset))
            begin, offset = at, now
        at += QUARTER
    return found


def meant(at: datetime, zone: str) -> datetime:
    """The first instant at which clocks show it; where none does, the first at which they show a later time."""
    for stretch in stretches(zone):
        if at < stretch.begin + stretch.offset:
            return stretch.begin.replace(tzinfo=UTC)
        if at < stretch.end + stretch.offset:
            return (at - stretch.offset).replace(tzinfo=UTC)
    raise AssertionError(at)


def days_between(first: date, last: date, step: int = 1) -> Iterator[date]:
    return (first + timedelta(days=count) for count in range(0, (last - first).days, step))


def run(rule: Rule, zone: str, first: datetime, last: datetime) -> list[datetime]:
    """Its times one after the other, as the clock asks for them."""
    found: list[datetime] = []
    while (due := next_after(rule, zone, found[-1] if found else first)) is not None and due < last:
        found.append(due)
    return found


def expected(walls: Iterator[datetime], zone: str, first: datetime, last: datetime) -> list[datetime]:
    return sorted({due for wall in walls if first < (due := meant(wall, zone)) < last})


CRONS: dict[str, tuple[list[time], frozenset[int]]] = {
    "30 2 * * *": ([time(2, 30)], frozenset(range(7))),
    "15,45 1-3 * * *": ([time(hour, minute) for hour in (1, 2, 3) for minute in (15, 45)], frozenset(range(7))),
    "*/20 2 * * 0": ([time(2, minute) for minute in (0, 20, 40)], frozenset([6])),
    "0 */2 * * *": ([time(hour) for hour in range(0, 24, 2)], frozenset(range(7))),
    "0 0 * * *": ([time(0)], frozenset(range(7))),
    "10 2 * * 6,7": ([time(2, 10)], frozenset([5, 6])),
    "45 * * * *": ([time(hour, 45) for hour in range(24)], frozenset(range(7))),
    "59 23 * * 1-5": ([time(23, 59)], frozenset(range(5))),
}


def check_cron(fields: str, zone: str, first: datetime, last: datetime) -> None:
    times, weekdays = CRONS[fields]
    two = timedelta(days=2)
    days = [day for day in days_between(first.date() - two, last.date() + two) if day.weekday() in weekdays]
    walls = (datetime.combine(day, at) for day in days for at in times)
    assert run(checked_cron(fields), zone, first, last) == expected(walls, zone, first, last)


def check_days(rule: Days, zone: str, first: datetime, last: datetime) -> None:
    walls = (
        datetime.combine(day, rule.at) for day in days_between(rule.since, last.date() + timedelta(days=2), rule.days)
    )
    assert run(rule, zone, first, last) == expected(walls, zone, first, last)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("fields", CRONS)
def test_a_rule_of_cron_is_due_where_the_wall_clock_says_in_a_year_of_changes(fields: str, zone: str) -> None:
    check_cron(fields, zone, datetime(2011, 12, 1, tzinfo=UTC), datetime(2012, 12, 1, tzinfo=UTC))


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("fields", CRONS)
def test_a_rule_of_cron_is_due_where_the_wall_clock_says_over_20_years(fields: str, zone: str) -> None:
    check_cron(fields, zone, FIRST, LAST)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("days", [1, 3, 7, 14])
@pytest.mark.parametrize("last", [datetime(2012, 12, 1, tzinfo=UTC), pytest.param(LAST, marks=pytest.mark.slow)])
def test_every_so_many_days_is_due_where_the_wall_clock_says(last: datetime, days: int, zone: str) -> None:
    for at in (time(0), time(2, 15), time(2, 30), time(9)):
        since = date(2011, 3, 2) if last < LAST else date(2007, 1, 3)
        check_days(Days(days=days, at=at, since=since), zone, FIRST, last)


@given(
    after=st.datetimes(wall("2007-02-01"), wall("2026-12-01"), timezones=st.just(UTC)),
    zone=st.sampled_from(ZONES),
    fields=st.sampled_from(sorted(CRONS)),
)
def test_the_next_time_is_the_first_one_whenever_it_is_asked_for(after: datetime, zone: str, fields: str) -> None:
    due = next_after(Cron(fields=fields), zone, after)
    assert due is not None
    times, weekdays = CRONS[fields]
    days = list(days_between(after.date() - timedelta(days=3), after.date() + timedelta(days=9)))
    walls = (datetime.combine(day, at) for day in days for at in times if day.weekday() in weekdays)
    assert due == expected(walls, zone, after, LAST)[0]


@given(at=st.datetimes(wall("2007-02-01"), wall("2026-12-01")), zone=st.sampled_from(ZONES))
def test_a_wall_clock_time_means_one_instant(at: datetime, zone: str) -> None:
    assert instant_of(at, ZoneInfo(zone)) == meant(at, zone)


@pytest.mark.parametrize(
    ("at", "zone", "instant"),
    [
        (wall("2026-03-29T02:30"), BERLIN, utc(2026, 3, 29, 1)),
        (wall("2026-10-25T02:30"), BERLIN, utc(2026, 10, 25, 0, 30)),
        (wall("2026-03-08T02:00"), "America/New_York", utc(2026, 3, 8, 7)),
        (wall("2026-10-04T02:10"), "Australia/Lord_Howe", utc(2026, 10, 3, 15, 30)),
        (wall("2026-04-05T01:45"), "Australia/Lord_Howe", utc(2026, 4, 4, 14, 45)),
        (wall("2011-12-30T09:00"), "Pacific/Apia", utc(2011, 12, 30, 10)),
    ],
)
def test_a_time_that_is_not_there_is_the_end_of_the_gap_and_one_that_is_there_twice_the_first(
    at: datetime, zone: str, instant: datetime
) -> None:
    assert instant_of(at, ZoneInfo(zone)) == instant


def test_within_the_doubled_hour_the_next_time_is_not_one_that_has_been() -> None:
    second_0210 = utc(2026, 10, 25, 1, 10)
    assert next_after(Cron(fields="30 2 * * *"), BERLIN, second_0210) == utc(2026, 10, 26, 1, 30)


def test_so_many_minutes_are_elapsed_time_whatever_the_clocks_do() -> None:
    rule = Every(minutes=90, since=utc(2026, 3, 28, 23))
    times = upcoming(rule, BERLIN, utc(2026, 3, 28, 23), 20)
    assert times[0] == utc(2026, 3, 29, 0, 30)
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {timedelta(minutes=90)}
    assert next_after(rule, BERLIN, utc(2020, 1, 1)) == times[0]


def test_once_is_due_once_and_a_wall_clock_time_follows_the_data_of_its_zone() -> None:
    kept_before_a_change = Once(at=utc(2026, 7, 1, 7), wall=wall("2026-07-01T08:00"))
    assert upcoming(kept_before_a_change, BERLIN, utc(2026, 6, 1)) == [utc(2026, 7, 1, 6)]
    assert next_after(kept_before_a_change, BERLIN, utc(2026, 7, 1, 6)) is None
    instant = Once(at=utc(2026, 7, 1, 7))
    assert upcoming(instant, BERLIN, utc(2026, 6, 1)) == [utc(2026, 7, 1, 7)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("0 8 * *", "4 fields; expected five"),
        ("0 0 8 * * *", "6 fields; expected five"),
        ("@daily", "1 field; expected five"),
        ("", "0 fields"),
        ("61 8 * * *", "Bad minute"),
        ("0 8 * * fri-mon", "Bad day-of-week"),
        ("0 8 30 2 *", "Bad day-of-month in '0 8 30 2 *'; expected numbers, and days that there are"),
        ("0 8 */31 2 mon#5", "never due"),
        ("* * * * *", "more often than every 5 minutes"),
        ("*/4 9 * * *", "more often than every 5 minutes"),
        ("58 23 * * *", ""),
        ("2,58 8,9 * * *", "more often than every 5 minutes"),
        ("1,58 0,23 * * *", "more often than every 5 minutes"),
        ("0 8 " + "1," * MAX_CRON_CHARS + "1 * *", "longer than"),
    ],
)
def test_a_rule_of_cron_that_cannot_be_used_says_why(fields: str, said: str) -> None:
    if not said:
        assert checked_cron(fields).fields == fields
        return
    with pytest.raises(RuleError, match=re.escape(said)):
        checked_cron(fields)


@given(st.lists(st.text("0123456789*/,-L#W smontue", min_size=1, max_size=8), min_size=5, max_size=5))
def test_any_five_fields_are_a_rule_or_an_error_that_says_why(parts: list[str]) -> None:
    try:
        rule = checked_cron(" ".join(parts))
    except RuleError:
        return
    assert next_after(rule, BERLIN, FIRST) is not None
    assert in_words(rule, BERLIN)


RULES: list[tuple[Rule, str]] = [
    (Once(at=utc(2026, 7, 1, 6), wall=wall("2026-07-01T08:00")), "once, on Wed, 01 Jul 2026 at 08:00 (Europe/Berlin)"),
    (Once(at=utc(2026, 7, 1, 6)), "once, on Wed, 01 Jul 2026 at 08:00 (Europe/Berlin)"),
    (Every(minutes=20, since=FIRST), "every 20 minutes"),
    (Every(minutes=60, since=FIRST), "every hour"),
    (Every(minutes=120, since=FIRST), "every 2 hours"),
    (Cron(fields="0 8 * * 1-5"), "every weekday at 08:00 (Europe/Berlin)"),
    (Cron(fields="0 8 * * *"), "every day at 08:00 (Europe/Berlin)"),
    (Cron(fields="30 8,12 * * *"), "every day at 08:30 and 12:30 (Europe/Berlin)"),
    (Cron(fields="0 9 * * mon"), "every Monday at 09:00 (Europe/Berlin)"),
    (Cron(fields="0 9 * * 1,3,5"), "every Monday, Wednesday, and Friday at 09:00 (Europe/Berlin)"),
    (Cron(fields="0 9 1 * *"), "at 09:00 on the first day of every month (Europe/Berlin)"),
    (Days(days=1, at=time(9), since=date(2026, 7, 1)), "every day at 09:00 (Europe/Berlin)"),
    (Days(days=3, at=time(9), since=date(2026, 7, 1)), "every 3 days at 09:00 (Europe/Berlin)"),
    (Days(days=7, at=time(9), since=date(2026, 7, 1)), "every week on Wednesday at 09:00 (Europe/Berlin)"),
    (Days(days=14, at=time(9), since=date(2026, 7, 1)), "every 2 weeks on Wednesday at 09:00 (Europe/Berlin)"),
]


@pytest.mark.parametrize(("rule", "words"), RULES)
def test_a_rule_is_said_in_words_and_kept_as_it_is(rule: Rule, words: str) -> None:
    assert in_words(rule, BERLIN) == words
    assert read_rule(rule_text(rule)) == rule
