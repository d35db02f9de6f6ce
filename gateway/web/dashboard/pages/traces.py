"""Traces: many small facts, each with a strength; how they fade, what they are linked to, how they come and go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.sdk.models.traces import StrengthCurve, TraceGraph
from gateway.services.traces import MOST_RANKED, Filters
from gateway.traces.trace import SCOPES, TYPES
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import whole_number

PAGE = Page(name="traces", title="Traces", icon="traces", position=15)

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


ROWS = 50
POINTS = 60
NEIGHBOURS = 25
TYPE_WORDS: Mapping[str, str] = {
    "episodic": "What happened",
    "semantic": "Knowledge",
    "procedural": "How to",
    "prospective": "Plans",
}
SCOPE_WORDS: Mapping[str, str] = {
    "user": "One person",
    "persona": "One person with one personality",
    "thread": "One session",
    "organization": "Everybody",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is chosen in the address."""

    filters: Filters
    before: int | None

    @property
    def address(self) -> str:
        """The address of the list, from its beginning."""
        return self.at(None)

    def at(self, before: int | None) -> str:
        """The address of the list, from that trace on."""
        return _address({**self.values, "before": None if before is None else str(before)})

    def without(self, name: str) -> str:
        """The address of the list without one of its filters, by its name in `values`."""
        return _address({**self.values, name: None})

    @property
    def values(self) -> Mapping[str, str | None]:
        """What the address says."""
        wanted = self.filters
        return {
            "q": wanted.query,
            "type": wanted.type,
            "scope": wanted.scope,
            "tag": " ".join(wanted.tags),
            "user": wanted.user,
            "personality": wanted.personality,
            "deleted": "1" if wanted.is_deleted else None,
        }

    @property
    def is_filtered(self) -> bool:
        """Whether the list is filtered."""
        return "?" in self.address


def _address(values: Mapping[str, str | None]) -> str:
    pairs = [(key, value) for key, value in values.items() if value]
    return PAGE.path + (f"?{urlencode(pairs)}" if pairs else "")


def choice_of(params: Mapping[str, str]) -> Choice:
    """What an address asks for; what it cannot mean is left out."""
    type_, scope = params.get("type"), params.get("scope")
    return Choice(
        filters=Filters(
            query=params.get("q", "").strip()[:2_000],
            type=next((one for one in TYPES if one == type_), None),
            scope=next((one for one in SCOPES if one == scope), None),
            tags=tuple(dict.fromkeys(params.get("tag", "").replace(",", " ").split()))[:10],
            user=params.get("user") or None,
            personality=params.get("personality") or None,
            is_deleted=params.get("deleted") == "1",
        ),
        before=whole_number(params.get("before", "")),
    )


METADATA_WORDS = {
    "turnId": "Turn",
    "sessionId": "Session",
    "channel": "Channel",
    "category": "Category",
    "store": "Written for",
    "proposal": "Proposal",
    "frontMatter": "Front matter of the note",
}
TITLE_CHARS = 80


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """Found by a question, or all, the last that came in first."""
    if not context.services.traces.is_on:
        return context.render(request, "traces/off.html", title="Traces")
    choice = choice_of(request.query_params)
    wanted, caller, problem = choice.filters, context.caller, None
    rest: int | None = None
    is_search = bool(wanted.query) and not wanted.is_deleted
    try:
        if is_search:
            rows = await context.services.traces.search(caller, wanted, limit=MOST_RANKED, explain=True)
        else:
            rows, rest = await context.services.traces.browse(caller, wanted, limit=ROWS, before=choice.before)
    except EthosError as error:
        rows, problem = [], str(error)
    names = await context.sources.naming.labels()
    return context.render(
        request,
        "traces/index.html",
        title="Traces",
        rows=rows,
        problem=problem,
        choice=choice,
        wanted=wanted,
        is_search=is_search,
        types=TYPE_WORDS,
        scopes=SCOPE_WORDS,
        count=await context.services.traces.count(caller),
        names=names,
        active=_active(choice, names),
        personalities=context.sources.personalities.ids(),
        older=None if rest is None else choice.at(rest),
        newest=choice.address if choice.before is not None else None,
    )


def _active(choice: Choice, names: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """The filters in use, for people, each with the address of the list without it."""
    wanted = choice.filters
    words = {
        "q": wanted.query and f"“{wanted.query}”",
        "type": wanted.type and TYPE_WORDS[wanted.type],
        "scope": wanted.scope and SCOPE_WORDS[wanted.scope],
        "user": wanted.user and names.get(wanted.user, wanted.user),
        "personality": wanted.personality,
        "tag": wanted.tags and f"Tags: {' '.join(wanted.tags)}",
        "deleted": wanted.is_deleted and "Deleted ones only",
    }
    return [(word, choice.without(name)) for name, word in words.items() if word]


@PAGE.route("/one/{trace}")
async def one(context: PageContext, request: Request) -> Response:
    """One trace: what it says, how it fades, what it is linked to."""
    caller, trace_id = context.caller, request.path_params["trace"]
    trace = await context.services.traces.get(caller, trace_id)
    curve = await context.services.traces.strength(caller, trace_id, points=POINTS)
    graph = await context.services.traces.around(caller, trace_id, limit=NEIGHBOURS)
    return context.render(
        request,
        "traces/one.html",
        title=_shortened(trace.content),
        trail=[(PAGE.title, PAGE.path)],
        trace=trace,
        curve=curve,
        plot=plot(curve),
        graph=graph,
        web=web(graph),
        types=TYPE_WORDS,
        scopes=SCOPE_WORDS,
        known_as=METADATA_WORDS,
        names=await context.sources.naming.labels(),
    )


@PAGE.route("/log")
async def log(context: PageContext, request: Request) -> Response:
    """What consolidations did, newest first."""
    before = choice_of(request.query_params).before
    found = await context.services.traces.log(context.caller, limit=ROWS + 1, before=before)
    here = f"{PAGE.path}/log"
    return context.render(
        request,
        "traces/log.html",
        title="Consolidations",
        trail=[(PAGE.title, PAGE.path)],
        entries=found[:ROWS],
        newest=here if before is not None else None,
        older=f"{here}?before={found[ROWS - 1].id}" if len(found) > ROWS else None,
    )


def _shortened(content: str) -> str:
    line = " ".join(content.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"
