"""The strength of one trace over time: as far back as it is known, and ahead if it is never used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gateway.traces import strength
from gateway.traces.consolidation import PRUNED_BELOW
from gateway.traces.trace import Trace

_FEWEST_AHEAD = timedelta(days=7)
_MOST_AHEAD = timedelta(days=3_650)


@dataclass(frozen=True, slots=True)
class Point:
    """The strength at one moment."""

    at: datetime
    strength: float
    is_forecast: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points in the order of time.

    Attributes:
        known_since: the last use or fading: from here on the formula gives every moment, and what was before it is
            not kept.
        fades_at: when it falls below what is kept, if it is never used; None where it has fallen, or never does
            within what a clock can say.
    """

    points: Sequence[Point]
    known_since: datetime
    fades_at: datetime | None


def curve(trace: Trace, now: datetime, count: int) -> Curve:
    """The published formula at so many moments, 2 or more; half of them are before `now` where there is a past."""
    known_since = min(trace.last_accessed_at, now)
    fades_at = _fades_at(trace)
    until = now + min(max(_ahead(trace, fades_at, now), _FEWEST_AHEAD), _MOST_AHEAD)
    past = count // 2 if known_since < now else 0
    moments = [known_since + (now - known_since) * number / past for number in range(past)]
    ahead = count - past
    moments += [now + (until - now) * number / max(1, ahead - 1) for number in range(ahead)]
    points = [Point(at, _left(trace, at), at > now) for at in moments]
    return Curve(points=points, known_since=known_since, fades_at=fades_at if fades_at and fades_at > now else None)


def _left(trace: Trace, at: datetime) -> float:
    return strength.current(trace.strength, trace.stability_ms, trace.last_accessed_at, at)


def _fades_at(trace: Trace) -> datetime | None:
    if trace.strength <= PRUNED_BELOW:
        return None
    try:
        lasts = timedelta(milliseconds=trace.stability_ms * math.log(min(1.0, trace.strength) / PRUNED_BELOW))
        return trace.last_accessed_at + lasts
    except OverflowError:  # after the year 9999
        return None


def _ahead(trace: Trace, fades_at: datetime | None, now: datetime) -> timedelta:
    """Until it has faded and a little further; where it has faded, or hardly does, as long again as its stability."""
    if fades_at is not None and fades_at > now:
        return (fades_at - now) * 1.1
    return timedelta(milliseconds=min(trace.stability_ms, _MOST_AHEAD.total_seconds() * 1000))
