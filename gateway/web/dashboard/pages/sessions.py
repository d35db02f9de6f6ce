"""Sessions: found by their words and marks, read with their tool calls, forked, renamed, pinned, exported, deleted."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, tzinfo
from itertools import groupby
from urllib.parse import urlencode

from markupsafe import Markup, escape
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.config.values import zone_of
from gateway.errors import EthosError
from gateway.memory.tokenizer import Matcher, parse
from gateway.pipeline.local_channel import CHANNEL
from gateway.sdk.models.sessions import ForkSession, Message, Session, UpdateSession
from gateway.services.caller import NotFound
from gateway.services.sessions import Place, SessionQuery
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import BASE, Page
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.downloads import session_file
from gateway.web.forms import CONFIRMED_FIELD, Form, whole_number
from gateway.web.markdown import to_html

PAGE = Page(name="sessions", title="Sessions", icon="sessions", position=14, least="guest")

LISTED_ROWS = 50
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


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """The newest first, or those in which something was said."""
    values = {name: request.query_params.get(name, "").strip() for name in ("q", "personality", "user", "channel")}
    values["q"] = values["q"][:MAX_QUERY_CHARS]
    place = _PLACE.fullmatch(request.query_params.get("after", ""))
    after = (int(place[1]), int(place[2])) if place else None
    found = await _found(context, values, after)
    names = await context.names()
    zone, today = context.services.system.usage_since(1)
    channels = {*context.sources.config.current.channels, CHANNEL}
    return context.render(
        request,
        "sessions/index.html",
        title="Sessions",
        found=found,
        groups=[("", found.rows)] if values["q"] else by_age(found.rows, today, zone_of(zone)),
        values=values,
        is_filtered=any(values.values()),
        names=names,
        people=names if len(names) <= MOST_LISTED_PEOPLE else None,
        personalities=[one.id for one in context.sources.personalities.list()],
        channels=sorted(channels | ({values["channel"]} - {""})),
        older=_address(values, found.rest) if found.rest else None,
        newest=_address(values) if after else None,
        highlight=highlighter(values["q"]),
    )


async def _found(context: PageContext, values: Mapping[str, str], after: Place | None) -> Found:
    marks = SessionQuery(
        personality=values["personality"] or None, user=values["user"] or None, channel=values["channel"] or None
    )
    caller = context.caller
    try:
        if values["q"]:
            rows, rest = await context.services.sessions.search(
                caller, values["q"], marks, limit=LISTED_ROWS, after=after
            )
            return Found(rows=rows, rest=rest)
        pinned: Sequence[Session] = ()
        if after is None:
            pinned, _ = await context.services.sessions.find(caller, replace(marks, is_pinned=True), limit=MOST_PINNED)
        rows, rest = await context.services.sessions.find(
            caller, replace(marks, is_pinned=False), limit=LISTED_ROWS, after=after
        )
    except EthosError as error:  # such as an unknown user: what was typed stays in the form
        return Found(problem=str(error))
    return Found(pinned=pinned, rows=rows, rest=rest)


def highlighter(query: str) -> Callable[[str], Markup]:
    """Shows what matched; brackets that were written so by a person stay brackets."""
    matchers = [Matcher([term]) for term in parse(query)]

    def highlight(snippet: str) -> Markup:
        pieces, at = [], 0
        for match in _MARKED.finditer(snippet):
            if any(matcher.is_in(match[1]) for matcher in matchers):
                pieces += [escape(snippet[at : match.start()]), Markup("<mark>{}</mark>").format(match[1])]
                at = match.end()
        return Markup("").join([*pieces, escape(snippet[at:])])

    return highlight


def _address(values: Mapping[str, str], after: Place | None = None) -> str:
    pairs = {name: value for name, value in values.items() if value}
    if after is not None:
        pairs["after"] = f"{after[0]}.{after[1]}"
    return f"{PAGE.path}?{urlencode(pairs)}" if pairs else PAGE.path


ROWS = 100
AROUND = 30
"""How many messages stand in front of the one that a search found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Some messages in their order, and whether there are others around them."""

    messages: Sequence[Message]
    has_earlier: bool
    has_later: bool

    @property
    def last_id(self) -> int:
        """The id of the last message that is shown; newer ones follow it."""
        return self.messages[-1].id if self.messages else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message as the page has it.

    Attributes:
        who: the person's name, or the personality.
        html: an answer, rendered; None for all else.
        result: what the tool returned to this call; its own row is left out.
    """

    message: Message
    who: str
    channel: str
    html: Markup | None = None
    result: Message | None = None


@PAGE.route("/{session}")
async def read(context: PageContext, request: Request) -> Response:
    """Its newest messages; `before` and `after` lead to others, `at` to the one that a search found."""
    session = await session_of(context, request)
    passage = await _passage(context, request, session.id)
    names = await context.names()
    return context.render(
        request,
        "sessions/session.html",
        title=session.title or "Session without a title",
        trail=[(PAGE.title, PAGE.path)],
        session=session,
        passage=passage,
        messages=await _shown(context, session, passage.messages, names),
        names=names,
        here=f"{PAGE.path}/{session.id}",
        is_ours=session.channel == CHANNEL,
    )


@PAGE.route("/{session}/news")
async def news(context: PageContext, request: Request) -> Response:
    """What came behind a message, for the open page; it takes the place of its last, empty row."""
    session = await session_of(context, request)
    after = whole_number(request.query_params.get("after", "")) or 0
    transcript, rest = await context.services.sessions.transcript(context.caller, session.id, limit=ROWS, after=after)
    passage = Passage(messages=transcript.messages, has_earlier=True, has_later=rest is not None)
    return context.render(
        request,
        "sessions/news.html",
        title=session.title,
        session=session,
        passage=passage,
        after=passage.last_id or after,
        messages=await _shown(context, session, passage.messages, await context.names()),
    )


@PAGE.route("/{session}/export")
async def export(context: PageContext, request: Request) -> Response:
    """All of it, as a file."""
    session = await session_of(context, request)
    is_json = request.query_params.get("format") == "json"
    return await session_file(context.services.sessions, context.caller, session.id, is_json=is_json)


# ---- pieces ---------------------------------------------------------------------------------------------------------


async def session_of(context: PageContext, request: Request) -> Session:
    """The session in the address.

    Raises:
        HTTPException: 404, there is none.
    """
    try:
        return await context.services.sessions.get(context.caller, request.path_params["session"])
    except NotFound as error:
        raise HTTPException(404) from error


async def _passage(context: PageContext, request: Request, session_id: str) -> Passage:
    before, after, at = (whole_number(request.query_params.get(name, "")) for name in ("before", "after", "at"))
    caller = context.caller
    if at is not None:
        earlier, has_earlier = await context.services.sessions.passage(caller, session_id, limit=AROUND, before=at)
        later, rest = await context.services.sessions.transcript(caller, session_id, limit=ROWS - AROUND, after=at - 1)
        messages = (*earlier, *later.messages)
        return Passage(messages=messages, has_earlier=has_earlier, has_later=rest is not None)
    if after is not None:
        later, rest = await context.services.sessions.transcript(caller, session_id, limit=ROWS, after=after)
        return Passage(messages=later.messages, has_earlier=after > 0, has_later=rest is not None)
    messages_before, has_earlier = await context.services.sessions.passage(
        caller, session_id, limit=ROWS, before=before
    )
    return Passage(messages=messages_before, has_earlier=has_earlier, has_later=before is not None)


async def _shown(
    context: PageContext, session: Session, messages: Sequence[Message], names: Mapping[str, str]
) -> Sequence[Shown]:
    """A call and its result as one; an answer in HTML. A page of long answers takes time, so a thread does it."""
    channels = await context.services.sessions.channels(messages)
    return await asyncio.to_thread(_rows, session, messages, channels, names)


def _rows(
    session: Session, messages: Sequence[Message], channels: Mapping[str, str], names: Mapping[str, str]
) -> list[Shown]:
    calls = {(one.turn, one.tool_call) for one in messages if one.role == "tool_call"}
    results = {(one.turn, one.tool_call): one for one in messages if one.role == "tool_result"}
    return [
        Shown(
            message=one,
            who=(one.author or names.get(one.user, one.user)) if one.role == "user" else one.personality,
            channel=channels.get(one.turn, session.channel),
            html=to_html(one.text) if one.role == "assistant" else None,
            result=results.get((one.turn, one.tool_call)) if one.role == "tool_call" else None,
        )
        for one in messages
        if one.role != "tool_result" or (one.turn, one.tool_call) not in calls
    ]


MAX_TITLE_CHARS = 200
NAMED = 5
"""Of several sessions so many are named in a question."""


@PAGE.form("/rename")
async def rename(context: PageContext, request: Request, form: Form) -> Response:
    """Another title; turns do not change it any more."""
    session = await context.services.sessions.get(context.caller, form.get("session"))
    back = own_path(form.get("back"), f"{PAGE.path}/{session.id}")
    title = form.get("title").strip()
    if not title or len(title) > MAX_TITLE_CHARS:
        text = f"The title stays: a new one needs 1 to {MAX_TITLE_CHARS} characters."
        return context.go(request, back, text, is_problem=True)
    await context.services.sessions.update(context.caller, session.id, UpdateSession(title=title))
    context.live.changed("messages")
    fields = [("session", session.id), ("title", session.title), ("back", back)]
    undo = Undo(action=f"{PAGE.path}/rename", fields=fields) if session.title else None
    return context.go(request, back, f"It is called “{title}” now.", undo=undo)


@PAGE.form("/pin")
async def pin(context: PageContext, request: Request, form: Form) -> Response:
    """Keep it on top of the list, or no longer."""
    session_id, is_pinned = form.get("session"), form.get("pinned") == "yes"
    session = await context.services.sessions.update(context.caller, session_id, UpdateSession(is_pinned=is_pinned))
    back = own_path(form.get("back"), f"{PAGE.path}/{session.id}")
    context.live.changed("messages")
    fields = [("session", session.id), ("pinned", "no" if is_pinned else "yes"), ("back", back)]
    text = "It is pinned, and stands on top of the list." if is_pinned else "It is not pinned any more."
    return context.go(request, back, text, undo=Undo(action=f"{PAGE.path}/pin", fields=fields))


@PAGE.form("/fork")
async def fork(context: PageContext, request: Request, form: Form) -> Response:
    """Copy it up to a message, into a conversation that goes on in the chat here."""
    session_id = form.get("session")
    try:
        fork = ForkSession(message=int(form.get("message")))
    except (ValueError, ValidationError):
        return context.go(request, PAGE.path, "It is not said up to which message; fork again.", is_problem=True)
    copy = await context.services.sessions.fork(context.caller, session_id, fork)
    context.live.changed("messages")
    to = f"{BASE}/chat/{copy.id}" if form.get("to") == "chat" else f"{PAGE.path}/{copy.id}"
    fields = [("session", copy.id), (CONFIRMED_FIELD, "yes"), ("back", f"{PAGE.path}/{session_id}")]
    text = "This is a copy. What is said here does not reach the session that it was copied from."
    return context.go(request, to, text, undo=Undo(action=f"{PAGE.path}/delete", fields=fields))


@PAGE.form("/delete")
async def delete(context: PageContext, request: Request, form: Form) -> Response:
    """Forget it, or several, after a question."""
    chosen = list(dict.fromkeys(form.all("session")))
    if len(chosen) != 1:
        return await _delete_all(context, request, form, chosen)
    session = await context.services.sessions.get(context.caller, form.get("session"))
    if not form.is_confirmed:
        return context.ask(
            request,
            form,
            title="Delete this session?",
            text=f"“{session.title or session.id}” is forgotten here with its {session.messages} messages, and no "
            f"search finds them any more. What the memory holds stays, and so does what {session.channel} itself "
            f"shows. This cannot be undone; export it first if you may want it again.",
            yes="Delete it",
            back=f"{PAGE.path}/{session.id}",
        )
    await context.services.sessions.delete(context.caller, session.id)
    context.live.changed("messages")
    return context.go(request, own_path(form.get("back"), PAGE.path), "The session is deleted.")


async def _delete_all(context: PageContext, request: Request, form: Form, chosen: Sequence[str]) -> Response:
    # A session that was deleted meanwhile is left out.
    found = []
    for session_id in chosen:
        with contextlib.suppress(NotFound):
            found.append(await context.services.sessions.get(context.caller, session_id))
    if not found:
        return context.go(request, PAGE.path, "Choose the sessions that you want to delete.", is_problem=True)
    if not form.is_confirmed:
        named = ", ".join(f"“{one.title or one.id}”" for one in found[:NAMED])
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return context.ask(
            request,
            form,
            title=f"Delete {len(found)} sessions?",
            text=f"{named}{more} are forgotten here with {sum(one.messages for one in found)} messages, and no "
            "search finds them any more. What the memory holds stays. This cannot be undone; export first what "
            "you may want again.",
            yes="Delete them",
            back=PAGE.path,
        )
    for one in found:
        with contextlib.suppress(NotFound):
            await context.services.sessions.delete(context.caller, one.id)
    context.live.changed("messages")
    return context.go(request, PAGE.path, f"{len(found)} sessions are deleted.")
