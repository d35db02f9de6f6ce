"""When a heartbeat looks: so many minutes apart from a time of day on, whatever the clocks do; a hook is never due."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.schedules.rule import Called, Within, in_words, next_after, read_rule, rule_text, upcoming
from tests.gateway.schedules.test_rule import ZONES

DAYTIMES = st.times(min_value=time(5), max_value=time(23)).map(lambda at: at.replace(second=0, microsecond=0))
STARTS = st.integers(0, 20 * 365 * 24).map(lambda hours: datetime(2007, 1, 1, tzinfo=UTC) + timedelta(hours=hours))


@given(
    zone=st.sampled_from(ZONES),
    minutes=st.integers(5, 1440),
    ends=st.lists(DAYTIMES, min_size=2, max_size=2, unique=True),
    start=STARTS,
)
def test_it_looks_in_its_hours_only_from_the_first_of_them_on(
    zone: str, minutes: int, ends: list[time], start: datetime
) -> None:
    """Between five and midnight no clock of these zones is changed, so each day has as many looks as fit."""
    rule = Within(minutes=minutes, begins=min(ends), ends=max(ends))
    times = upcoming(rule, zone, start, 60)
    assert times == sorted(set(times))
    assert times[0] > start
    local = [at.astimezone(ZoneInfo(zone)) for at in times]
    assert all(rule.begins <= at.time() <= rule.ends for at in local)
    since = [(at.hour * 60 + at.minute) - (rule.begins.hour * 60 + rule.begins.minute) for at in local]
    assert all(passed % minutes == 0 for passed in since)
    fits = ((rule.ends.hour - rule.begins.hour) * 60 + rule.ends.minute - rule.begins.minute) // minutes + 1
    per_day = Counter(at.date() for at in local)
    whole: list[date] = sorted(per_day)[1:-1]
    assert all(per_day[day] == fits for day in whole)


@pytest.mark.parametrize(
    ("begins", "ends", "minutes", "expected"),
    [
        # Berlin, on the 25th the hour from two to three is there twice: five hours lie between 23 and three o'clock.
        ("23:00", "03:00", 60, ["24 23:00", "25 00:00", "25 01:00", "25 02:00", "25 02:00", "25 03:00", "25 23:00"]),
        # A whole day begins at midnight, and that one has 25 hours.
        ("00:00", "00:00", 720, ["25 00:00", "25 11:00", "25 23:00", "26 00:00", "26 12:00", "27 00:00"]),
    ],
)
def test_hours_over_midnight_and_whole_days_go_by_the_time_that_passes(
    begins: str, ends: str, minutes: int, expected: list[str]
) -> None:
    rule = Within(minutes=minutes, begins=time.fromisoformat(begins), ends=time.fromisoformat(ends))
    start = datetime(2026, 10, 24, 20, 30, tzinfo=UTC)
    times = upcoming(rule, "Europe/Berlin", start, len(expected))
    assert [f"{at.astimezone(ZoneInfo('Europe/Berlin')):%d %H:%M}" for at in times] == expected


def test_both_are_said_in_words_and_come_back_from_the_store() -> None:
    day = Within(minutes=90, begins=time(8), ends=time(21, 30))
    always = Within(minutes=60, begins=time(0), ends=time(0))
    hook = Called(hook="ci")
    assert in_words(day, "Europe/Berlin") == "as the heartbeat, every 90 minutes from 08:00 to 21:30 (Europe/Berlin)"
    assert in_words(always, "UTC") == "as the heartbeat, every hour"
    assert in_words(hook, "UTC") == "when the hook ci is called"
    assert [read_rule(rule_text(rule)) for rule in (day, always, hook)] == [day, always, hook]
    assert next_after(hook, "UTC", datetime(2026, 1, 1, tzinfo=UTC)) is None
    assert next_after(always, "UTC", datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 1, 1, tzinfo=UTC)
