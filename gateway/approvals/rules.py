"""When a call is asked for: by the tool's class, by what the turn has read, and by whether the person is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gateway.approvals.approval import Grant
from gateway.tools.contract import Tool

_BEFORE = r"(?<![\w@.+/%-])"
_BEHIND = r"(?![\w%/&=+@~-]|[.,:;!?#][\w%/?#&=+@~-])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A call, and the turn that makes it.

    Attributes:
        destination: as `destination_of` gives it.
        is_tainted: the turn has read words of others.
        is_attended: the person is there; False where a schedule or a hook began the turn.
        schedule_id: of the schedule that began it.
        are_addresses_known: each address in the arguments stands verbatim in the person's own words, or in what the
            session has read before the model wrote it.
        is_named_by_person: each destination is a whole value of the person's own words, and the owner chose that this
            spares the question.
    """

    tool: Tool
    destination: str
    user_ids: frozenset[str]
    personality_id: str
    session_id: str
    now: datetime
    is_tainted: bool
    is_attended: bool = True
    schedule_id: int | None = None
    are_addresses_known: bool = False
    is_named_by_person: bool = False


def must_ask(situation: Situation, grants: Iterable[Grant]) -> bool:
    """Whether the call waits for a yes."""
    tool = situation.tool
    match tool.effect:
        case "read":
            return False
        case "own":
            return tool.acts_later and situation.is_tainted
        case "fetch":
            is_careful = situation.is_tainted or not situation.is_attended
            return is_careful and not situation.are_addresses_known
        case _:
            if tool.is_destructive or not (situation.is_attended or situation.schedule_id is not None):
                return True
            is_spared = situation.is_named_by_person and situation.is_attended
            return not (is_spared or any(covers(grant, situation) for grant in grants))


def are_named(destination: str, own_words: Iterable[str]) -> bool:
    """Whether each value of a destination stands in the person's own words, whole: not as a part of a longer one.

    Args:
        destination: as `destination_of` gives it. Only texts count, and lists of them; no value is none of the words.
        own_words: without what others wrote.
    """
    values = [*json.loads(destination).values()] if destination else []
    names = [name for value in values for name in (value if isinstance(value, list) and value else [value])]
    return bool(names) and all(
        isinstance(name, str) and bool(name.strip()) and any(stands_in(name, words) for words in own_words)
        for name in names
    )


def stands_in(name: str, text: str) -> bool:
    """Whether a name or an address stands in a text, whole: not as a part of a longer one.

    A mark behind it that ends a sentence is not a part of it; one in front of a letter is.
    """
    return name in text and re.search(_BEFORE + re.escape(name) + _BEHIND, text) is not None


def covers(grant: Grant, situation: Situation) -> bool:
    """Whether a grant spares the question; in a tainted turn only one that names this call's destination."""
    is_same = (
        grant.tool == situation.tool.name
        and grant.pin == situation.tool.pin
        and grant.user_id in situation.user_ids
        and grant.personality_id == situation.personality_id
        and grant.destination == situation.destination
        and grant.schedule_id == situation.schedule_id
    )
    is_here = grant.scope == "always" or grant.session_id == situation.session_id
    is_in_time = grant.until_at is None or situation.now < grant.until_at
    is_named = bool(situation.destination) or not situation.is_tainted
    return is_same and is_here and is_in_time and is_named
