"""When something is due: the rules, and the next time of each.

Wall-clock times are those of an IANA zone. A time that the zone leaves out is the end of the gap; one that is there twice
is the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """At one time. `at` is the instant, UTC; `wall` the wall-clock time that was meant, None where it was a duration."""

    at: datetime
    wall: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """After so many minutes each, from an instant (UTC) on, whatever the clocks do."""

    minutes: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """By five fields of cron, on the wall clock."""

    fields: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Every so many days at a time of day, from a day on, on the wall clock."""

    days: int
    at: time
    since: date


Rule = Once | Every | Cron | Days


def next_after(rule: Rule, zone: str, after: datetime) -> datetime | None:
    """The first time after an instant at which it is due, UTC; None where there is none."""
    raise NotImplementedError


def upcoming(rule: Rule, zone: str, after: datetime, count: int = 3) -> Sequence[datetime]:
    """The next times, UTC; fewer where there are no more."""
    raise NotImplementedError


def in_words(rule: Rule, zone: str) -> str:
    """For people: "every weekday at 08:00 (Europe/Berlin)"."""
    raise NotImplementedError


def rule_text(rule: Rule) -> str:
    """The rule as JSON, to be kept."""
    raise NotImplementedError


def read_rule(text: str) -> Rule:
    """What `rule_text` wrote."""
    raise NotImplementedError
