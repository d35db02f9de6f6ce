"""Which days a question is about, and which day a note is of."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.days import Days, day_of, days_asked_for

TODAY = date(2026, 11, 18)  # a Wednesday


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("What did I cook yesterday?", date(2026, 11, 16), date(2026, 11, 18)),
        ("Where was I the day before yesterday?", date(2026, 11, 15), date(2026, 11, 17)),
        ("Whom did I meet 5 days ago?", date(2026, 11, 12), date(2026, 11, 14)),
        ("What did we plan two weeks ago?", date(2026, 11, 1), date(2026, 11, 7)),
        ("Who called last Friday?", date(2026, 11, 12), date(2026, 11, 14)),
        ("What happened on Wednesday?", date(2026, 11, 10), date(2026, 11, 12)),
        ("What did I read last week?", date(2026, 11, 5), TODAY),
        ("What did I spend in the last ten days?", date(2026, 11, 8), TODAY),
        ("Which concerts were in March?", date(2026, 3, 1), date(2026, 3, 31)),
        ("Which concerts were in December?", date(2025, 12, 1), date(2025, 12, 31)),
        ("What did I buy on March 3rd?", date(2026, 3, 2), date(2026, 3, 4)),
        ("What did I buy on the 24th of December?", date(2025, 12, 23), date(2025, 12, 25)),
        ("Was war am 03.02.2026?", date(2026, 2, 2), date(2026, 2, 4)),
        ("2024-02-29?", date(2024, 2, 28), date(2024, 3, 1)),
    ],
)
def test_a_question_names_days(question: str, first: date, last: date) -> None:
    assert days_asked_for(question, TODAY) == Days(first, last)


@pytest.mark.parametrize(
    "question",
    [
        "What does Rex eat?",
        "How many weeks ago did I start?",
        "What did I do last year?",
        "What may I march in?",
        "Where was I 999 years ago?",
        "What happened on 2026-02-30?",
        "Which concerts were in May 0000?",
        "Which concerts were in December 9999?",
    ],
)
def test_a_question_without_a_day_or_for_a_long_time_or_outside_the_calendar_names_none(question: str) -> None:
    assert days_asked_for(question, TODAY) is None


@pytest.mark.parametrize(
    ("note", "day"),
    [
        ("## 2026/11/18 (Wed) 14:47", date(2026, 11, 18)),
        ("- 2026-11-18: Rex was ill", date(2026, 11, 18)),
        ("### 18. Besuch am 18.11.2026", date(2026, 11, 18)),
        ("# November 18th, 2026", date(2026, 11, 18)),
        ("18 Nov 2026", date(2026, 11, 18)),
        ("November 18th", None),
        ("Version 2026.13.40", None),
        ("Rex likes bones", None),
    ],
)
def test_a_note_names_its_day_with_the_year(note: str, day: date | None) -> None:
    assert day_of(note) == day


@given(st.text(max_size=80), st.sampled_from([date.min, TODAY, date.max]))
def test_no_text_is_an_error(text: str, today: date) -> None:
    days = days_asked_for(text, today)
    assert days is None or days.first <= days.last
    assert day_of(text) is None or day_of(text) in Days(date.min, date.max)


@given(st.integers(0, 999), st.sampled_from(["day", "week", "month", "year"]), st.dates())
def test_no_count_is_an_error(count: int, unit: str, today: date) -> None:
    days = days_asked_for(f"what happened {count} {unit}s ago?", today)
    assert days is None or days.first <= today
