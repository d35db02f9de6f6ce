"""Strength over time and the graph around a trace, as numbers for SVG. A page shows the same as a table and a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.sdk.models.traces import StrengthCurve, TraceGraph

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 30
MOST_DRAWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Lines in units of the drawing, as the `points` of polylines.

    Attributes:
        now_x: where the past ends; None where nothing of it is drawn.
        uses: where the trace was used, as far as that is within the drawing.
        ticks: lines across, each with its height and its word.
    """

    past: str
    forecast: str
    now_x: float
    now_y: float
    uses: Sequence[float]
    ticks: Sequence[tuple[float, str]]
    begin: datetime
    end: datetime
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    base: int = HEIGHT - BOTTOM


def plot(curve: StrengthCurve) -> Plot:
    """The curve, from the left edge to the right one; there are two points at least."""
    points = curve.points
    begin, end = points[0].at, points[-1].at
    span_s = max(1.0, (end - begin).total_seconds())

    def x(at: datetime) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (at - begin).total_seconds() / span_s, 2)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - value), 2)

    past = [point for point in points if not point.is_forecast]
    ahead = [*past[-1:], *(point for point in points if point.is_forecast)]
    now = past[-1] if past else points[0]
    return Plot(
        past=" ".join(f"{x(point.at)},{y(point.strength)}" for point in past),
        forecast=" ".join(f"{x(point.at)},{y(point.strength)}" for point in ahead),
        now_x=x(now.at),
        now_y=y(now.strength),
        uses=[x(at) for at in curve.used_at if begin <= at <= end],
        ticks=[(y(value), f"{value:.0%}") for value in (0.0, 0.5, 1.0)],
        begin=begin,
        end=end,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A neighbour in the drawing; `number` is that of the list."""

    x: float
    y: float
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """Spots in a ring around the trace, and lines between their middles, each as wide (1 to 5) as it is weighty."""

    spots: Sequence[Spot]
    lines: Sequence[tuple[float, float, float, float, int]]
    x: float
    y: float
    width: int = WIDTH
    height: int = 300


def web(graph: TraceGraph) -> Web:
    """The weightiest neighbours."""
    middle = (WIDTH / 2, 150.0)
    shown = graph.neighbours[:MOST_DRAWN]
    places = {graph.trace.id: middle}
    spots = []
    for number, neighbour in enumerate(shown):
        angle = 2 * math.pi * number / len(shown) - math.pi / 2
        place = (round(middle[0] + 260 * math.cos(angle), 1), round(middle[1] + 115 * math.sin(angle), 1))
        places[neighbour.id] = place
        spots.append(Spot(x=place[0], y=place[1], number=number + 1))
    most = max((edge.weight for edge in graph.edges), default=1.0) or 1.0
    lines = [
        (*places[edge.source], *places[edge.target], round(1 + 4 * max(0.0, edge.weight) / most))
        for edge in graph.edges
        if edge.source in places and edge.target in places
    ]
    return Web(spots=spots, lines=lines, x=middle[0], y=middle[1])
