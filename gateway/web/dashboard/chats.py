"""The conversations of the chat: beside the one that is open, by their time, or found by their title and their words.

Versions of one conversation are one row: the one that is open, or else the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from gateway.config.values import zone_of
from gateway.pipeline.local_channel import CHANNEL
from gateway.sdk.models.sessions import Session
from gateway.services.sessions import SessionQuery
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.sessions import MAX_QUERY_CHARS, by_age, highlighter

ROWS = 60
MOST_PINNED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Chats:
    """What the list shows.

    Attributes:
        query: what was asked for; empty for all.
        groups: the name of each part, and its conversations, the newest first.
        current: the id of the one that is open.
        has_more: whether there are older ones, which only the page of sessions lists.
        highlight: shows what matched in a passage.
    """

    query: str
    groups: Sequence[tuple[str, Sequence[Session]]]
    current: str | None
    has_more: bool
    highlight: Callable[[str], Markup]
    channel: str = CHANNEL


async def chats(context: PageContext, query: str, current: Session | None) -> Chats:
    """The conversations that a list shows."""
    query = " ".join(query.split())[:MAX_QUERY_CHARS]
    sessions, caller = context.services.sessions, context.caller
    ours = SessionQuery(channel=CHANNEL, user=caller.speaks_as)
    if query:
        titled, _ = await sessions.find(caller, replace(ours, title=query[:200]), limit=ROWS)
        found, rest = await sessions.search(caller, query, ours, limit=ROWS)
        passages = {one.id: one for one in found}
        rows = _one_of_each([*(passages.get(one.id, one) for one in titled), *found], current)
        groups = [("Found", rows)] if rows else []
    else:
        pinned, _ = await sessions.find(caller, replace(ours, is_pinned=True), limit=MOST_PINNED)
        others, rest = await sessions.find(caller, replace(ours, is_pinned=False), limit=ROWS)
        newest = sorted([*pinned, *others], key=lambda one: one.updated_at, reverse=True)
        kept = {_first(one) for one in pinned}
        rows = _one_of_each(newest, current)
        zone, today = context.services.system.usage_since(1)
        on_top = [one for one in rows if _first(one) in kept]
        below = by_age([one for one in rows if _first(one) not in kept], today, zone_of(zone))
        groups = [("Pinned", on_top), *below] if on_top else list(below)
    return Chats(
        query=query,
        groups=groups,
        current=None if current is None else current.id,
        has_more=rest is not None,
        highlight=highlighter(query),
    )


def _first(session: Session) -> str:
    """The first of the versions that it is one of."""
    return session.branch_of or session.id


def _one_of_each(rows: Iterable[Session], current: Session | None) -> Sequence[Session]:
    """Of all versions of a conversation the one that is open, else the first in the list."""
    shown: dict[str, Session] = {}
    for one in rows:
        if current is not None and one.id == current.id:
            shown[_first(one)] = one
        else:
            shown.setdefault(_first(one), one)
    return list(shown.values())
