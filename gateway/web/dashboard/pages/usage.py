"""Usage: what was spent, by day, person, personality and model, and compared with the time before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from starlette.requests import Request
from starlette.responses import Response

from gateway.agent.budgets import UsageSum
from gateway.config import DayBudget
from gateway.web.dashboard.filters import number, usd
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext

PAGE = Page(name="usage", title="Usage", icon="usage", position=80, least="member")

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
        limit: drawn as a line, unless the bars would be too low to be compared with it.
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


PERIODS: Mapping[str, str] = {
    "month": "This month",
    "7": "7 days",
    "30": "30 days",
    "90": "90 days",
    "365": "A year",
}
DEFAULT_PERIOD = "30"

ROWS = 100

Figure = Callable[[UsageSum], float]


# What can be drawn: its name, how it is said, the number, and what a day may cost of it.
MEASURES: Mapping[str, tuple[str, Callable[[float], str], Figure, Callable[[DayBudget], float | None]]] = {
    "tokens": ("Tokens", number, lambda found: found.tokens, lambda budget: budget.tokens),
    "turns": ("Turns", number, lambda found: found.turns, lambda budget: budget.turns),
    "cost": ("Cost", usd, lambda found: found.cost_usd, lambda budget: budget.usd),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Some days up to today, and as many before them.

    Attributes:
        earlier: what it is compared with, for people.
    """

    first: date
    days: int
    earlier_first: date
    earlier_days: int
    earlier: str

    def used(self, by_day: Mapping[date, UsageSum]) -> tuple[Mapping[date, UsageSum], UsageSum]:
        """Its own days, and the sum of those before."""
        earlier_end = self.earlier_first + timedelta(days=self.earlier_days)
        earlier = [used for day, used in by_day.items() if self.earlier_first <= day < earlier_end]
        return {day: used for day, used in by_day.items() if day >= self.first}, sum(earlier, UsageSum())


def period_of(asked: str, today: date) -> Period:
    """One of `PERIODS`. This month is compared with the last one up to the same day."""
    if asked == "month":
        first = today.replace(day=1)
        last_day = first - timedelta(days=1)
        days = min(today.day, last_day.day)
        earlier = f"1 to {days} {last_day:%B}" if days > 1 else f"1 {last_day:%B}"
        return Period(
            first=first, days=today.day, earlier_first=last_day.replace(day=1), earlier_days=days, earlier=earlier
        )
    days = int(asked)
    first = today - timedelta(days=days - 1)
    earlier_first = first - timedelta(days=days)
    return Period(
        first=first, days=days, earlier_first=earlier_first, earlier_days=days, earlier=f"the {days} days before"
    )


def largest(found: Mapping[str, UsageSum], figure: Figure) -> tuple[Sequence[tuple[str, UsageSum]], int]:
    """Those who used most, and how many others there are."""
    ordered = sorted(found.items(), key=lambda item: -figure(item[1]))
    return ordered[:ROWS], max(0, len(ordered) - ROWS)


def day_chart(
    by_day: Mapping[date, UsageSum], first: date, days: int, measure: str, budget: float | None = None
) -> Chart:
    """A bar for each day, also for those on which nothing happened; whole weeks where there are too many days.

    Args:
        budget: what one day may cost.
    """
    title, said, figure, _ = MEASURES[measure]
    step = 7 if days > 120 else 1
    points = []
    for start in range(0, days, step):
        dates = [first + timedelta(days=start + more) for more in range(min(step, days - start))]
        value = sum(figure(by_day.get(day, UsageSum())) for day in dates)
        label = f"{dates[0]:%-d %b}"
        span = label if step == 1 else f"week of {label}"
        points.append((label, value, f"{span}: {said(value)} {title.lower() if measure != 'cost' else ''}".rstrip()))
    return chart(points, None if budget is None else budget * step)


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """One measure, by day and by part."""
    asked = request.query_params
    chosen = asked["days"] if asked.get("days") in PERIODS else DEFAULT_PERIOD
    measure = asked["measure"] if asked.get("measure") in MEASURES else "tokens"
    service = context.services.system
    zone, today = service.usage_since(1)
    period = period_of(chosen, today)
    found = await service.usage_sums(context.caller, since=period.first)
    by_day, earlier = period.used(await service.usage_by_day(context.caller, since=period.earlier_first))
    _, said, figure, budget_of = MEASURES[measure]
    is_own = context.caller.user_id is not None
    budget = budget_of(service.person_budget() if is_own else service.day_budget())
    by_part = {"By personality": found.by_personality, "By model": found.by_model}
    if not is_own:
        by_part = {"By person": found.by_user, **by_part}
    parts = [(title, *largest(sums, figure)) for title, sums in by_part.items()]
    return context.render(
        request,
        "usage/index.html",
        title=PAGE.title,
        chosen=chosen,
        days=period.days,
        periods=PERIODS,
        measure=measure,
        measures={name: title for name, (title, *_) in MEASURES.items()},
        said=said,
        figure=figure,
        zone=zone,
        by_day=sorted(by_day.items(), reverse=True),
        total=sum(by_day.values(), UsageSum()),
        earlier=earlier,
        earlier_said=period.earlier,
        budget=budget,
        chart=day_chart(by_day, period.first, period.days, measure, budget),
        parts=parts,
        names=await context.names(),
    )
