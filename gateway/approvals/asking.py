"""Asks for a yes to what a turn wants to do: each call gets its answer at once, and the question waits in a row."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

from gateway.approvals.approval import (
    MOST_OF_PERSON,
    MOST_OF_TURN,
    Approval,
    ApprovalStore,
    Grant,
    canonical,
    destination_of,
)
from gateway.approvals.rules import Situation, are_named, must_ask, stands_in
from gateway.messages import ConversationRef
from gateway.tools.toolbox import Prepared

EXPIRE_AFTER_H = 72.0
TOO_MANY_WAIT = f"{MOST_OF_TURN} calls of this answer wait for a yes already; ask the person to decide first"
# A scheme, or a first word with what parts an address: rather too much is taken for one than too little.
_ADDRESS = re.compile(r"://|^\S*[.:/\\@]\S")
_BREAKS = re.compile(r"[\t\r\n]")
_DOTS = str.maketrans(dict.fromkeys("\u3002\uff61", "."))  # which names of hosts take for one, and NFKC does not


class NoRoom(Exception):
    """Too many questions wait already; the text is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """On whose behalf a turn asks.

    Attributes:
        person_ids: asks for all ids of the person.
        own_words: the person's words in this session, without what others wrote.
        are_named_spared: a destination that stands in them spares the question.
        allowed: addresses that count as known, with all that begin with them.
    """

    turn_id: str
    user_id: str
    person_ids: Callable[[str], Awaitable[Collection[str]]]
    personality_id: str
    session_id: str
    conversation: ConversationRef
    is_attended: bool = True
    schedule_id: int | None = None
    own_words: Sequence[str] = ()
    are_named_spared: bool = False
    allowed: Sequence[str] = ()


class Asking:
    """Decides for each call of one turn whether it is free or waits, and numbers what waits."""

    def __init__(
        self,
        store: ApprovalStore,
        reserve: Callable[[int], Awaitable[int]],
        asker: Asker,
        *,
        expire_after_h: float = EXPIRE_AFTER_H,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Nothing is read yet; `reserve` gives out numbers."""
        self._store = store
        self._reserve = reserve
        self._asker = asker
        self._expire_after = timedelta(hours=expire_after_h)
        self._now = now
        self._user_ids: frozenset[str] = frozenset()
        self._grants: Sequence[Grant] | None = None

    async def question(
        self, call_id: str, call: Prepared, *, sources: Sequence[str], was_read: Callable[[str], bool], waiting: int
    ) -> Approval | None:
        """What the call waits for; None: it is free.

        Args:
            sources: what the turn has read by now that is not the person's own.
            was_read: whether an address stands in what the session has read, and not by the model's doing.
            waiting: how many calls of this turn wait already.

        Raises:
            NoRoom: too many wait.
        """
        if call.tool.effect == "read" or (call.tool.effect == "own" and not call.tool.acts_later):
            return None
        if self._grants is None:
            self._user_ids = frozenset(await self._asker.person_ids(self._asker.user_id))
            self._grants = await self._store.grants(list(self._user_ids))
        situation = self._situation(call, is_tainted=bool(sources), was_read=was_read)
        if not must_ask(situation, self._grants):
            return None
        await self._check_room(waiting)
        return self._approval(await self._reserve(1), call_id, call, situation, sources)

    def _situation(self, call: Prepared, *, is_tainted: bool, was_read: Callable[[str], bool]) -> Situation:
        values, own_words = call.values, self._asker.own_words
        destination = destination_of(call.tool, values)
        return Situation(
            tool=call.tool,
            destination=destination,
            user_ids=self._user_ids,
            personality_id=self._asker.personality_id,
            session_id=self._asker.session_id,
            now=self._now(),
            is_tainted=is_tainted,
            is_attended=self._asker.is_attended,
            schedule_id=self._asker.schedule_id,
            are_addresses_known=all(
                any(stands_in(one, text) for text in own_words)
                or was_read(one)
                or any(is_below(one, start) for start in self._asker.allowed)
                for one in addresses_in(values, call.tool.destination)
            ),
            is_named_by_person=self._asker.are_named_spared and are_named(destination, own_words),
        )

    def _approval(
        self, number: int, call_id: str, call: Prepared, situation: Situation, sources: Sequence[str]
    ) -> Approval:
        tool, asker = call.tool, self._asker
        return Approval(
            id=number,
            turn_id=asker.turn_id,
            call_id=call_id,
            user_id=asker.user_id,
            personality_id=asker.personality_id,
            session_id=asker.session_id,
            conversation=asker.conversation,
            tool=tool.name,
            pin=tool.pin,
            arguments=canonical(call.values),
            destination=situation.destination,
            sources=tuple(dict.fromkeys(sources)),
            approver=tool.approver,
            is_destructive=tool.is_destructive,
            asked_at=situation.now,
            expires_at=situation.now + self._expire_after,
            schedule_id=asker.schedule_id,
        )

    async def _check_room(self, waiting: int) -> None:
        if waiting >= MOST_OF_TURN:
            raise NoRoom(TOO_MANY_WAIT)
        if len(await self._store.approvals(user_ids=list(self._user_ids))) + waiting >= MOST_OF_PERSON:
            raise NoRoom(f"{MOST_OF_PERSON} calls wait for a yes already; ask the person to decide first: /approvals")


def is_below(address: str, start: str) -> bool:
    """Whether an address is on the same server as another one, and its path begins with that one's."""
    try:
        one, other = urlsplit(address), urlsplit(start)
    except ValueError:
        return False
    is_same_server = (one.scheme, one.netloc.lower()) == (other.scheme, other.netloc.lower())
    is_plain = ".." not in unquote(one.path) and "\\" not in address and address.isprintable()
    return is_same_server and is_plain and (one.path or "/").startswith(other.path or "/")


def addresses_in(values: Mapping[str, object], destination: Collection[str] = ()) -> list[str]:
    """All texts among the arguments, names too, that may be an address, however deep; of a destination every text."""
    given = [text for name, value in values.items() if name not in destination for text in (name, *_texts(value))]
    named = [text for name in destination for text in _texts(values.get(name))]
    return [*named, *filter(_may_be_address, given)]


def _may_be_address(text: str) -> bool:
    """Also where whoever opens it has to read it as one first: escaped, broken by a line, or with other dots."""
    read = normalize("NFKC", unquote(text).translate(_DOTS))
    return any(_ADDRESS.search(each.strip()) for each in (text, read, _BREAKS.sub("", read)))


def _texts(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for key, each in value.items() for text in (str(key), *_texts(each))]
        case list() | tuple():
            return [text for each in value for text in _texts(each)]
        case _:
            return []
