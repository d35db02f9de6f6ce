"""The list of sessions, pinned ones first, and the search through all that was said."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, tzinfo
from itertools import groupby
from urllib.parse import urlencode

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from gateway.config.values import zone_of
from gateway.errors import EthosError
from gateway.memory.tokenizer import Matcher, parse
from gateway.pipeline.local_channel import CHANNEL
from gateway.sdk.models.sessions import Session
from gateway.services.sessions import Place, Question
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext

ROWS = 50
MOST_PINNED = 100
MOST_LISTED_PEOPLE = 200
"""Above it a person is typed, not chosen."""
MAX_QUERY_CHARS = 1000
_MARKED = re.compile(r"\[([^\[\]]+)\]")
_PLACE = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is shown: a page of the list, and in front of the first one those that are pinned."""

    pinned: Sequence[Session] = ()
    rows: Sequence[Session] = ()
    rest: Place | None = None
    problem: str | None = None


def by_age(rows: Sequence[Session], today: date, zone: tzinfo) -> Sequence[tuple[str, Sequence[Session]]]:
    """Sessions in their order, the newest first, below the name of their time."""

    def age(session: Session) -> str:
        day = session.updated_at.astimezone(zone).date()
        days = (today - day).days
        if days < 2:
            return "Yesterday" if days == 1 else "Today"
        return "Last 7 days" if days < 7 else "Last 30 days" if days < 30 else f"{day:%B %Y}"

    return [(title, list(group)) for title, group in groupby(rows, age)]


class FindingSessions:
    """The start of the page."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.sessions

    async def show(self, request: Request) -> Response:
        """The newest first, or those in which something was said."""
        values = {name: request.query_params.get(name, "").strip() for name in ("q", "personality", "user", "channel")}
        values["q"] = values["q"][:MAX_QUERY_CHARS]
        place = _PLACE.fullmatch(request.query_params.get("after", ""))
        after = (int(place[1]), int(place[2])) if place else None
        found = await self._found(values, after)
        names = await self._context.sources.naming.labels()
        zone, today = self._context.services.system.usage_since(1)
        channels = {*self._context.sources.config().channels, CHANNEL}
        return self._context.render(
            request,
            "sessions/index.html",
            title="Sessions",
            found=found,
            groups=[("", found.rows)] if values["q"] else by_age(found.rows, today, zone_of(zone)),
            values=values,
            is_filtered=any(values.values()),
            names=names,
            people=names if len(names) <= MOST_LISTED_PEOPLE else None,
            personalities=[one.id for one in self._context.sources.personalities.list()],
            channels=sorted(channels | ({values["channel"]} - {""})),
            own_channel=CHANNEL,
            older=_address(values, found.rest) if found.rest else None,
            newest=_address(values) if after else None,
            highlight=_highlighter(values["q"]),
        )

    async def _found(self, values: Mapping[str, str], after: Place | None) -> Found:
        marks = Question(
            personality=values["personality"] or None, user=values["user"] or None, channel=values["channel"] or None
        )
        caller = self._context.caller
        try:
            if values["q"]:
                rows, rest = await self._service.search(caller, values["q"], marks, limit=ROWS, after=after)
                return Found(rows=rows, rest=rest)
            pinned: Sequence[Session] = ()
            if after is None:
                pinned, _ = await self._service.find(caller, replace(marks, is_pinned=True), limit=MOST_PINNED)
            rows, rest = await self._service.find(caller, replace(marks, is_pinned=False), limit=ROWS, after=after)
        except EthosError as error:  # such as a person whom nobody knows: what was typed stays in the form
            return Found(problem=str(error))
        return Found(pinned=pinned, rows=rows, rest=rest)


class _highlighter:  # noqa: N801 (used as the function that it is, in the template)
    """Shows what matched; brackets that were written so by a person stay brackets."""

    def __init__(self, query: str) -> None:
        terms = parse(query)
        self._matchers = [Matcher([term]) for term in terms]

    def __call__(self, snippet: str) -> Markup:
        pieces, at = [], 0
        for match in _MARKED.finditer(snippet):
            if any(matcher.is_in(match[1]) for matcher in self._matchers):
                pieces += [escape(snippet[at : match.start()]), Markup("<mark>{}</mark>").format(match[1])]
                at = match.end()
        return Markup("").join([*pieces, escape(snippet[at:])])


def _address(values: Mapping[str, str], after: Place | None = None) -> str:
    pairs = {name: value for name, value in values.items() if value}
    if after is not None:
        pairs["after"] = f"{after[0]}.{after[1]}"
    return f"{BASE}/sessions?{urlencode(pairs)}" if pairs else f"{BASE}/sessions"
