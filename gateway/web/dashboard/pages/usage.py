"""Usage: what was spent, by day, person, personality and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.budgets import UsageSum
from gateway.web.dashboard.bars import Chart, chart
from gateway.web.dashboard.frame import Frame
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.words import number, usd

PERIODS_DAYS = (7, 30, 90, 365)
DEFAULT_DAYS = 30

ROWS = 100

Figure = Callable[[UsageSum], float]


# What can be drawn: its name, how it is said, and the number.
MEASURES: Mapping[str, tuple[str, Callable[[float], str], Figure]] = {
    "tokens": ("Tokens", number, lambda found: found.tokens),
    "turns": ("Turns", number, lambda found: found.turns),
    "cost": ("Cost", usd, lambda found: found.cost_usd),
}


def largest(found: Mapping[str, UsageSum], figure: Figure) -> tuple[Sequence[tuple[str, UsageSum]], int]:
    """Those who used most, and how many others there are."""
    ordered = sorted(found.items(), key=lambda item: -figure(item[1]))
    return ordered[:ROWS], max(0, len(ordered) - ROWS)


def day_chart(by_day: Mapping[date, UsageSum], first: date, days: int, measure: str) -> Chart:
    """A bar for each day, also for those on which nothing happened; whole weeks where there are too many days."""
    title, said, figure = MEASURES[measure]
    step = 7 if days > 120 else 1
    points = []
    for start in range(0, days, step):
        dates = [first + timedelta(days=start + more) for more in range(min(step, days - start))]
        value = sum(figure(by_day.get(day, UsageSum())) for day in dates)
        label = f"{dates[0]:%-d %b}"
        span = label if step == 1 else f"week of {label}"
        points.append((label, value, f"{span}: {said(value)} {title.lower() if measure != 'cost' else ''}".rstrip()))
    return chart(points)


def _routes(frame: Frame) -> Sequence[Route]:
    async def show(request: Request) -> Response:
        asked = request.query_params
        days = next((days for days in PERIODS_DAYS if str(days) == asked.get("days")), DEFAULT_DAYS)
        measure = asked["measure"] if asked.get("measure") in MEASURES else "tokens"
        desk = frame.desks.system
        found = await desk.usage_sums(frame.caller, days=days)
        by_day = {date.fromisoformat(day): used for day, used in found.by_day.items()}
        _, said, figure = MEASURES[measure]
        by_part = {"By person": found.by_user, "By personality": found.by_personality, "By model": found.by_model}
        parts = [(title, *largest(sums, figure)) for title, sums in by_part.items()]
        zone, since = desk.usage_since(days)
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
            zone=zone,
            by_day=sorted(by_day.items(), reverse=True),
            total=sum(by_day.values(), UsageSum()),
            chart=day_chart(by_day, since, days, measure),
            parts=parts,
            names=await frame.sources.naming.labels(),
        )

    return [Route("/usage", show)]


PAGE = Page(name="usage", title="Usage", icon="usage", position=80, routes=_routes)
