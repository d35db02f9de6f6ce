"""The days that an English question is about, as "two weeks ago" or "last Friday", and the day that a note is of.

What a note says of a day may share no word with the question for it: the day is what they have in common. In other
languages only days in digits are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from gateway.memory.tokenizer import MAX_QUERY_CHARS

_UNITS = {"day": 1, "week": 7, "month": 30.44, "year": 365.25}
_LAST_UNITS = {"weekend": 8, "week": 13, "month": 61}  # so far back may be what is called the last
_MOST_DAYS = 62  # of more days no note is more likely the one that is meant
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH_NUMBERS = {name[:3]: number for number, name in enumerate(_MONTHS, start=1)}
_COUNTS = {
    "a": 1, "an": 1, "one": 1, "a couple of": 2, "two": 2, "a few": 3, "three": 3, "four": 4, "five": 5, "six": 6,
    "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip

_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join(_COUNTS)})"
_UNIT = rf"(?P<unit>{'|'.join(_UNITS)})s?"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)}|{'|'.join(_MONTH_NUMBERS)})\b\.?"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?:,? (?P<year>\d{4})\b)?"

_AGO = re.compile(rf"\b{_COUNT} {_UNIT} ago\b")
_SINCE = re.compile(rf"\b(?:last|past|previous) {_COUNT} {_UNIT}\b")
_LAST = re.compile(rf"\b(?:last|past|previous) (?P<unit>{'|'.join(_LAST_UNITS)})\b")
_YESTERDAY = re.compile(r"\b(?P<before>the day before )?yesterday\b")
_WEEKDAY = re.compile(rf"\b(?:last|past|on) (?P<weekday>{'|'.join(_WEEKDAYS)})\b")
_IN_MONTH = re.compile(rf"\b(?:during|in|last|of|since) (?P<month>{'|'.join(_MONTHS)})\b{_YEAR}")
_DATES = (
    re.compile(r"\b(?P<year>\d{4})[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)\b"),
    re.compile(r"\b(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>\d{4})\b"),
    re.compile(rf"\b{_MONTH} {_DAY}\b{_YEAR}"),
    re.compile(rf"\b{_DAY} (?:of )?{_MONTH}{_YEAR}"),
)
_A_YEAR = re.compile(r"\d{4}")


@dataclass(frozen=True, slots=True)
class Days:
    """From one day to another, both among them."""

    first: date
    last: date

    def __contains__(self, day: date | None) -> bool:
        return day is not None and self.first <= day <= self.last

    def __len__(self) -> int:
        return (self.last - self.first).days + 1


def days_asked_for(question: str, today: date) -> Days | None:
    """The days that a question names, with some more where it is vague; None where it names none, or a long time."""
    text = " ".join(question[:MAX_QUERY_CHARS].lower().split())
    try:
        return next((days for days in _asked_for(text, today) if len(days) <= _MOST_DAYS), None)
    except (OverflowError, ValueError):  # "999 years ago" is before the calendar
        return None


def _asked_for(text: str, today: date) -> Iterator[Days]:
    if (found := _AGO.search(text)) is not None:
        days = _days_in(found)
        yield _around(today - timedelta(days), 1 + days // 7)
    if (found := _SINCE.search(text)) is not None:
        yield Days(today - timedelta(_days_in(found)), today)
    if (day := _date_in(text, today)) is not None:
        yield _around(day, 1)
    if (found := _LAST.search(text)) is not None:
        yield Days(today - timedelta(_LAST_UNITS[found["unit"]]), today)
    if (found := _YESTERDAY.search(text)) is not None:
        yield _around(today - timedelta(2 if found["before"] else 1), 1)
    if (found := _WEEKDAY.search(text)) is not None:
        back = (today.weekday() - _WEEKDAYS.index(found["weekday"]) - 1) % 7 + 1
        yield _around(today - timedelta(back), 1)
    if (found := _IN_MONTH.search(text)) is not None:
        month = _month(found)
        first = date(int(found["year"] or today.year - (month > today.month)), month, 1)
        yield Days(first, (first + timedelta(31)).replace(day=1) - timedelta(1))


def _days_in(found: re.Match[str]) -> int:
    count = _COUNTS.get(found["count"]) or int(found["count"])
    return round(count * _UNITS[found["unit"]])


def _around(day: date, far: int) -> Days:
    """That day and so many before and after it: people count roughly, and a day ends at another hour elsewhere."""
    return Days(day - timedelta(far), day + timedelta(far))


def day_of(text: str) -> date | None:
    """The first day, with its year, that a text names; None: it names none."""
    return _date_in(text.lower(), None) if _A_YEAR.search(text) is not None else None


def _date_in(text: str, today: date | None) -> date | None:
    """A day by its date; one without a year is the last such day before `today`."""
    for found in (found for pattern in _DATES for found in pattern.finditer(text)):
        month, day = _month(found), int(found["day"])
        if found["year"] is None and today is None:
            continue
        year = (
            int(found["year"])
            if today is None or found["year"]
            else today.year - ((month, day) > (today.month, today.day))
        )
        try:
            return date(year, month, day)
        except ValueError:  # February 30th, or a version number
            continue
    return None


def _month(found: re.Match[str]) -> int:
    return _MONTH_NUMBERS.get(found["month"][:3]) or int(found["month"])
