"""The list of traces, one trace, and what consolidations did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.services.traces import MOST_RANKED, Filters
from gateway.traces.trace import SCOPES, TYPES
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.traces.drawing import plot, web

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
        """Of the same list from its beginning."""
        return self.at(None)

    def at(self, before: int | None) -> str:
        """Of the same list, from there on."""
        wanted = self.filters
        values = {
            "q": wanted.query,
            "type": wanted.type,
            "scope": wanted.scope,
            "tag": " ".join(wanted.tags),
            "user": wanted.user,
            "personality": wanted.personality,
            "deleted": "1" if wanted.is_deleted else None,
            "before": before,
        }
        pairs = [(key, str(value)) for key, value in values.items() if value]
        return f"{BASE}/traces" + (f"?{urlencode(pairs)}" if pairs else "")

    @property
    def is_filtered(self) -> bool:
        """Whether anything is chosen."""
        return "?" in self.address


def choice_of(params: Mapping[str, str]) -> Choice:
    """What an address asks for; what it cannot mean is left out."""
    type_, scope, before = params.get("type"), params.get("scope"), params.get("before", "")
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
        before=int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None,
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


class TraceViews:
    """What is only looked at."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.traces

    async def list(self, request: Request) -> Response:
        """Found by a question, or all, the last that came in first."""
        if not self._service.is_on:
            return self._context.render(request, "traces/off.html", title="Traces")
        choice = choice_of(request.query_params)
        wanted, caller, problem = choice.filters, self._context.caller, None
        rest: int | None = None
        is_search = bool(wanted.query) and not wanted.is_deleted
        try:
            if is_search:
                rows = await self._service.search(caller, wanted, limit=MOST_RANKED, explain=True)
            else:
                rows, rest = await self._service.browse(caller, wanted, limit=ROWS, before=choice.before)
        except EthosError as error:
            rows, problem = [], str(error)
        return self._context.render(
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
            count=await self._service.count(caller),
            names=await self._context.sources.naming.labels(),
            personalities=self._context.sources.personalities.ids(),
            older=None if rest is None else choice.at(rest),
            newest=choice.address if choice.before is not None else None,
        )

    async def one(self, request: Request) -> Response:
        """One trace: what it says, how it fades, what it is linked to."""
        caller, trace_id = self._context.caller, request.path_params["trace"]
        trace = await self._service.get(caller, trace_id)
        curve = await self._service.strength(caller, trace_id, points=POINTS)
        graph = await self._service.around(caller, trace_id, limit=NEIGHBOURS)
        return self._context.render(
            request,
            "traces/one.html",
            title=_shortened(trace.content),
            trail=[("Traces", f"{BASE}/traces")],
            trace=trace,
            curve=curve,
            plot=plot(curve),
            graph=graph,
            web=web(graph),
            types=TYPE_WORDS,
            scopes=SCOPE_WORDS,
            known_as=METADATA_WORDS,
            names=await self._context.sources.naming.labels(),
        )

    async def log(self, request: Request) -> Response:
        """What consolidations did, newest first."""
        before = choice_of(request.query_params).before
        found = await self._service.log(self._context.caller, limit=ROWS + 1, before=before)
        here = f"{BASE}/traces/log"
        return self._context.render(
            request,
            "traces/log.html",
            title="Consolidations",
            trail=[("Traces", f"{BASE}/traces")],
            entries=found[:ROWS],
            newest=here if before is not None else None,
            older=f"{here}?before={found[ROWS - 1].id}" if len(found) > ROWS else None,
        )


def _shortened(content: str) -> str:
    line = " ".join(content.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"
