"""Usage: what was spent, by day, person, personality and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.sdk.models.system import UsageRow
from gateway.web.dashboard.bars import Chart, chart
from gateway.web.dashboard.frame import Frame
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.words import number, usd

PERIODS_DAYS = (7, 30, 90, 365)
DEFAULT_DAYS = 30

T = TypeVar("T")
Figure = Callable[["Sum"], float]


@dataclass(slots=True)
class Sum:
    """What one day, person, personality or model used."""

    turns: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> int:
        """Read and said."""
        return self.input_tokens + self.output_tokens

    def add(self, row: UsageRow) -> None:
        """One more row."""
        self.turns += row.turns
        self.calls += row.calls
        self.input_tokens += row.input_tokens
        self.output_tokens += row.output_tokens
        self.cost_usd += row.cost_usd


# What can be drawn: its name, how it is said, and the number.
MEASURES: Mapping[str, tuple[str, Callable[[float], str], Figure]] = {
    "tokens": ("Tokens", number, lambda found: found.tokens),
    "turns": ("Turns", number, lambda found: found.turns),
    "cost": ("Cost", usd, lambda found: found.cost_usd),
}
_PARTS: Mapping[str, tuple[str, Callable[[UsageRow], str]]] = {
    "person": ("By person", lambda row: row.user),
    "personality": ("By personality", lambda row: row.personality or "none"),
    "model": ("By model", lambda row: row.model),
}


def sums(rows: Sequence[UsageRow], key: Callable[[UsageRow], T]) -> dict[T, Sum]:
    """What was used, by whatever `key` says."""
    found: dict[T, Sum] = {}
    for row in rows:
        found.setdefault(key(row), Sum()).add(row)
    return found


def day_chart(by_day: Mapping[date, Sum], first: date, days: int, measure: str) -> Chart:
    """A bar for each day, also for those on which nothing happened; whole weeks where there are too many days."""
    title, said, figure = MEASURES[measure]
    step = 7 if days > 120 else 1
    points = []
    for start in range(0, days, step):
        dates = [first + timedelta(days=start + more) for more in range(min(step, days - start))]
        value = sum(figure(by_day.get(day, Sum())) for day in dates)
        label = f"{dates[0]:%-d %b}"
        span = label if step == 1 else f"week of {label}"
        points.append((label, value, f"{span}: {said(value)} {title.lower() if measure != 'cost' else ''}".rstrip()))
    return chart(points)


def _routes(frame: Frame) -> Sequence[Route]:
    async def show(request: Request) -> Response:
        asked = request.query_params
        days = next((days for days in PERIODS_DAYS if str(days) == asked.get("days")), DEFAULT_DAYS)
        measure = asked["measure"] if asked.get("measure") in MEASURES else "tokens"
        usage = await frame.desks.system.usage(frame.caller, days=days)
        rows = usage.rows
        by_day = sums(rows, lambda row: row.day)
        total = Sum()
        for row in rows:
            total.add(row)
        _, said, figure = MEASURES[measure]
        parts = [
            (title, sorted(sums(rows, key).items(), key=lambda item: -figure(item[1])))
            for title, key in _PARTS.values()
        ]
        return frame.render(
            request,
            "usage/index.html",
            title=PAGE.title,
            days=days,
            periods=PERIODS_DAYS,
            measure=measure,
            measures={name: title for name, (title, _, _) in MEASURES.items()},
            said=said,
            figure=figure,
            zone=usage.time_zone,
            by_day=sorted(by_day.items(), reverse=True),
            total=total,
            chart=day_chart(by_day, usage.since, days, measure),
            parts=parts,
            names=await frame.sources.naming.labels(),
        )

    return [Route("/usage", show)]


PAGE = Page(name="usage", title="Usage", icon="usage", position=80, routes=_routes)
