"""What becomes of times that have passed, against a plain walk through all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.messages import ConversationRef
from gateway.schedules.missed import due_words, is_on_time, moved, take_up, times_until
from gateway.schedules.rule import Cron, Days, Every, Once, Rule, next_after
from gateway.schedules.schedule import MOST_CAUGHT_UP, Missed, Schedule

START = datetime(2026, 10, 20, 6, 0, tzinfo=UTC)
RULES: Sequence[Rule] = (
    Every(minutes=5, since=START),
    Every(minutes=90, since=START),
    Cron(fields="0 8 * * *"),
    Cron(fields="*/20 1-4 * * 1-5"),
    Cron(fields="0 12 1 * *"),
    Days(days=3, at=time(2, 30), since=date(2026, 10, 20)),
    Once(at=START + timedelta(hours=2)),
)
SCHEDULE = Schedule(
    id=1,
    key="k",
    user_id="u",
    personality_id="assistant",
    conversation=ConversationRef(channel="web", conversation="c"),
    account="1",
    display_name="Ada",
    is_direct=True,
    mode="do",
    text="text",
    rule=RULES[0],
    zone="Europe/Berlin",
    missed="late",
    next_at=None,
    created_at=START,
)


def walk(rule: Rule, first: datetime, until: datetime) -> list[datetime]:
    """All times from the first one on, one after the other."""
    times = [first]
    while (found := next_after(rule, SCHEDULE.zone, times[-1])) is not None and found <= until:
        times.append(found)
    return times


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(RULES), st.integers(0, 20 * 24 * 60), st.sampled_from([1, 2, 49]))
def test_the_newest_times_are_those_of_a_walk_through_all(rule: Rule, minutes: int, most: int) -> None:
    first = next_after(rule, SCHEDULE.zone, START)
    assert first is not None
    until = first + timedelta(minutes=minutes)
    assert times_until(rule, SCHEDULE.zone, first, until, most=most) == walk(rule, first, until)[-most:]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(RULES), st.integers(0, 20 * 24 * 3600), st.sampled_from(get_args(Missed)))
def test_each_time_is_run_or_noted_and_none_is_both(rule: Rule, seconds: int, missed: Missed) -> None:
    first = next_after(rule, SCHEDULE.zone, START)
    assert first is not None
    now = first + timedelta(seconds=seconds)
    times = walk(rule, first, now)
    taken = take_up(replace(SCHEDULE, rule=rule, missed=missed, next_at=first), first, now)
    left = times[: len(times) - len(taken.runs)]
    assert [*taken.runs] == times[len(left) :]
    assert taken.skipped == ((left[0], left[-1]) if left else None)
    assert taken.next_at == next_after(rule, SCHEDULE.zone, now)
    assert taken.last_at == times[-1]
    assert len(taken.runs) <= (MOST_CAUGHT_UP if missed == "each" else 1)
    if is_on_time(times[-1], now):
        assert taken.runs, "what is on time is run, whatever was missed before it"
    elif missed == "skip":
        assert not taken.runs
    elif missed in ("late", "each"):
        assert taken.runs


def test_a_year_of_sleep_is_looked_through_as_fast_as_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[datetime] = []

    def counted(rule: Rule, zone: str, after: datetime) -> datetime | None:
        asked.append(after)
        return next_after(rule, zone, after)

    monkeypatch.setattr("gateway.schedules.missed.next_after", counted)
    schedule = replace(SCHEDULE, missed="each", next_at=START)
    taken = take_up(schedule, START, START + timedelta(days=365))
    assert len(taken.runs) == MOST_CAUGHT_UP
    assert len(asked) < 6 * MOST_CAUGHT_UP


def test_changed_data_of_a_zone_never_brings_a_time_twice_nor_leaves_one_out() -> None:
    daily = replace(SCHEDULE, rule=Cron(fields="0 8 * * *"))
    right = [datetime(2026, 11, day, 7, 0, tzinfo=UTC) for day in (1, 2, 3)]
    for wrong_by in (-timedelta(hours=1), timedelta(0), timedelta(hours=1), timedelta(minutes=30)):
        done, planned = right[0] + wrong_by, right[1] + wrong_by
        assert moved(replace(daily, next_at=planned), done, planned - timedelta(hours=2)) == right[1]
    assert moved(replace(daily, next_at=None), right[0], right[0]) is None
    hourly = replace(SCHEDULE, rule=Every(minutes=60, since=START), next_at=right[1])
    assert moved(hourly, right[0], right[0]) == right[1]
    wall = datetime(2026, 11, 2, 8, 0)  # noqa: DTZ001 (a time on a clock)
    once = replace(SCHEDULE, rule=Once(at=right[0], wall=wall), next_at=right[0])
    assert moved(once, None, START) == right[1]


def test_a_time_is_said_with_its_day_where_that_was_another_one() -> None:
    due = datetime(2026, 11, 1, 7, 0, tzinfo=UTC)
    assert due_words(due, due + timedelta(hours=3), "Europe/Berlin") == "at 08:00"
    assert due_words(due, due + timedelta(days=1), "Europe/Berlin") == "on Sun, 01 Nov 2026 at 08:00"
    assert due_words(due, due, "Pacific/Auckland") == "at 20:00"
    assert due_words(due, due, "Mars/Olympus") == "at 07:00 UTC"
