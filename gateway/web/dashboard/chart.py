"""Bar charts as numbers for SVG: where each bar stands and how high it is. A page shows the same numbers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 720
HEIGHT = 200
LEFT = 56
BOTTOM = 26
TOP = 16
# Dates below the bars, as many as there is room for.
MAX_LABELS = 8
# A limit that is so many times the highest bar is not drawn.
LIMIT_ABOVE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """In units of the drawing; `said` is its tooltip, `label` stands below it, where there is room."""

    x: float
    y: float
    width: float
    height: float
    said: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A line across, with its value."""

    y: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing of `WIDTH` by `HEIGHT`; `limit` is a line that the bars should not reach."""

    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    limit: Tick | None = None
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    base: int = HEIGHT - BOTTOM


def chart(points: Sequence[tuple[str, float, str]], limit: float | None = None) -> Chart:
    """Bars from left to right.

    Args:
        points: label, value (not below 0), and what is said of it.
        limit: drawn as a line, unless the bars would be too low to be compared beside it.
    """
    highest = max((value for _, value, _ in points), default=0.0)
    if limit is not None and limit > LIMIT_ABOVE * highest:
        limit = None
    top = _round_up(max(highest, limit or 0.0))
    room = HEIGHT - BOTTOM - TOP
    pitch = (WIDTH - LEFT) / max(1, len(points))
    every = -(-len(points) // MAX_LABELS) or 1
    bars = [
        Bar(
            x=round(LEFT + number * pitch + pitch * 0.14, 2),
            y=round(TOP + room * (1 - value / top), 2),
            width=round(pitch * 0.72, 2),
            height=round(room * value / top, 2),
            said=said,
            label=label if (len(points) - 1 - number) % every == 0 else "",
        )
        for number, (label, value, said) in enumerate(points)
    ]
    ticks = [Tick(y=TOP + room * (1 - part), value=top * part) for part in (0.0, 0.5, 1.0)]
    line = None if limit is None else Tick(y=round(TOP + room * (1 - limit / top), 2), value=limit)
    return Chart(bars=bars, ticks=ticks, limit=line)


def _round_up(value: float) -> float:
    """A round number that is not smaller: 1, 2 or 5 with zeros; 1 for nothing."""
    if value <= 0:
        return 1.0
    step = 1.0
    while step < value:
        step *= 10
    while step / 10 >= value:
        step /= 10
    return next(candidate for candidate in (step * 0.2, step * 0.5, step) if candidate >= value)
