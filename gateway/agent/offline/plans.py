"""What the offline model understands of times: reminders, and what is done again and again."""

from __future__ import annotations

import re
from datetime import date, timedelta

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = "|".join(_DAYS)
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap]m)?(?:\s*o['\u2019]clock)?"
_MINUTES = {"minute": 1, "min": 1, "hour": 60, "day": 24 * 60, "week": 7 * 24 * 60}
_IN = re.compile(r"in\s+(?P<count>an?|\d{1,5})\s+(?P<unit>minute|min|hour|day|week)s?", re.IGNORECASE)
_AT = re.compile(rf"(?:(?:on\s+)?(?P<day>today|tomorrow|{_DAY})\s+)?at\s+{_CLOCK}", re.IGNORECASE)
_EVERY = re.compile(rf"every\s+(?P<days>day|weekday|{_DAY})\s+at\s+{_CLOCK}", re.IGNORECASE)
_EACH = re.compile(r"every\s+(?P<count>\d{1,5})?\s*(?P<unit>minute|min|hour)s?", re.IGNORECASE)
_TODAY = re.compile(r"^Today is \w+, (\d{4}-\d\d-\d\d)\.", re.MULTILINE)
_SAID = re.compile(r"(?:(?:remind|tell)\s+me\s+)?(?:to|of|about|that)\s+(?P<what>.+)", re.IGNORECASE | re.DOTALL)
_ANOTHER = re.compile(r"\bremind\s+me\b", re.IGNORECASE)

WHEN = (
    rf"(?P<when>in\s+\w+\s+\w+|every\s+(?:\d+\s+)?\w+(?:\s+at\s+{{clock}})?|"
    rf"(?:(?:on\s+)?(?:today|tomorrow|{_DAY})\s+)?at\s+{{clock}})"
).format(clock=r"\d{1,2}(?::\d\d)?\s*(?:[ap]m)?(?:\s*o['\u2019]clock)?")
"""A time, as the group `when`."""


def planned(when: str, what: str, system: str) -> tuple[str, dict[str, object]] | None:
    """The tool and its arguments that plan it; None where the time is none.

    Args:
        system: the prompt, which says what day it is.
    """
    text = what.strip().rstrip(".!")
    said = _SAID.fullmatch(text)
    text = said["what"] if said is not None else text
    if _ANOTHER.search(text):  # one sentence with two wishes, of which one would be lost
        return None
    once = _once(when, system)
    if once is not None:
        return "remind", {"text": text, **once}
    again = _again(when)
    if again is None:
        return None
    return "schedule_create", {"mode": "do" if said is None else "say", "text": text, **again}


def _once(when: str, system: str) -> dict[str, object] | None:
    if found := _IN.fullmatch(when):
        count = int(found["count"]) if found["count"].isdecimal() else 1
        return {"in_minutes": count * _MINUTES[found["unit"].lower()]}
    found, today = _AT.fullmatch(when), _TODAY.search(system)
    clock = found and _clock(found)
    if found is None or clock is None:
        return None
    day = (found["day"] or "").lower()
    if not day or today is None:
        return {"at": clock}
    first = date.fromisoformat(today[1])
    days = {"today": 0, "tomorrow": 1}.get(day)
    if days is None:
        days = (_DAYS.index(day) - first.weekday()) % 7 or 7
    return {"at": f"{first + timedelta(days=days)}T{clock}"}


def _again(when: str) -> dict[str, object] | None:
    if found := _EACH.fullmatch(when):
        return {"every_minutes": int(found["count"] or 1) * _MINUTES[found["unit"].lower()]}
    found = _EVERY.fullmatch(when)
    clock = found and _clock(found)
    if found is None or clock is None:
        return None
    hour, minute = map(int, clock.split(":"))
    days = found["days"].lower()
    on = {"day": "*", "weekday": "1-5"}.get(days) or str(_DAYS.index(days) + 1)
    return {"cron": f"{minute} {hour} * * {on}"}


def _clock(found: re.Match[str]) -> str | None:
    hour, minute, half = int(found["hour"]), int(found["minute"] or 0), (found["half"] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    return f"{hour:02d}:{minute:02d}" if hour < 24 and minute < 60 else None
