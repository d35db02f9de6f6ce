"""Links without a disk, in the tables of the in-memory twin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gateway.messages import ConversationRef, OutboundMessage
from gateway.people.linking.links import (
    CODE_VALID_S,
    TRIES,
    TRIES_WITHIN_S,
    UNFINISHED,
    Link,
    LinkRequest,
    LinkState,
    OwnCode,
    Party,
    TooManyTries,
    Wrong,
)
from gateway.store.in_memory_tables import Answer, Tables

_VALID_MS = round(CODE_VALID_S * 1000)
_WITHIN_MS = round(TRIES_WITHIN_S * 1000)


@dataclass(slots=True)
class RequestRow:
    """A request with what only the store knows of it."""

    request: LinkRequest
    code_hash: str
    begun_at: int
    redeem_turn: str | None = None


class InMemoryLinks:
    """The `LinkStore`; nothing here waits, so every method is one step."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._requests: dict[str, RequestRow] = {}
        self._tries: dict[str, tuple[str, int]] = {}

    async def start(self, request: LinkRequest, code_hash: str) -> None:
        """Keep a new request; an unfinished one of the same starter gives way to it."""
        for row in self._requests.values():
            if row.request.starter.account == request.starter.account and row.request.state in {"open", "asked"}:
                row.request = replace(row.request, state="replaced")
        self._requests[request.id] = RequestRow(request, code_hash, self._tables.now_ms())

    async def redeem(
        self,
        code_hash: str,
        guesser: Party,
        *,
        turn_id: str,
        second_hash: str | None,
        question: Callable[[LinkRequest], OutboundMessage],
    ) -> LinkRequest | Wrong | TooManyTries | OwnCode:
        """Use a code up, and queue the question to its starter; counts as a try of the guesser."""
        for row in self._requests.values():
            if row.redeem_turn == turn_id:
                return self._now(row)
        now_ms = self._tables.now_ms()
        recent = [at for who, at in self._tries.values() if who == guesser.account and 0 <= now_ms - at < _WITHIN_MS]
        if turn_id not in self._tries:
            if len(recent) >= TRIES:
                return TooManyTries(again_in_s=(min(recent) + _WITHIN_MS - now_ms) / 1000)
            self._tries[turn_id] = (guesser.account, now_ms)
            recent.append(now_ms)
        of_code = [row for row in self._requests.values() if row.code_hash == code_hash]
        found = next((row for row in of_code if self._now(row).state == "open"), None)
        redeemer = None if found is None else found.request.redeemer
        if found is None or (redeemer is not None and redeemer.account != guesser.account):
            return Wrong(tries_left=TRIES - len(recent))
        row = found
        if row.request.starter.account == guesser.account:
            return OwnCode()
        row.redeem_turn, row.begun_at = turn_id, now_ms
        if second_hash is not None and redeemer is None:
            row.request, row.code_hash = replace(row.request, redeemer=guesser), second_hash
        else:
            row.request = replace(row.request, state="asked", redeemer=guesser)
            self._queue([question(row.request)])
        return row.request

    async def requests_of(self, account: str) -> Sequence[LinkRequest]:
        """Those in which the account is the starter or the redeemer, whatever became of them, newest first."""
        mine = [
            row
            for row in self._requests.values()
            if account in {row.request.starter.account, row.request.redeemer and row.request.redeemer.account}
        ]
        order = sorted(range(len(mine)), key=lambda i: (mine[i].begun_at, i), reverse=True)
        return [self._now(mine[i]) for i in order]

    async def refuse(self, request_id: str, notice: Callable[[LinkRequest], OutboundMessage | None]) -> bool:
        """End a request that is `open` or `asked`, and queue a word to the other side; whether it is refused now."""
        row = self._requests.get(request_id)
        if row is None or self._now(row).state not in {"open", "asked"}:
            return row is not None and row.request.state == "refused"
        word = notice(row.request)
        row.request = replace(row.request, state="refused")
        self._queue([] if word is None else [word])
        return True

    async def decide(self, link: Link, *, request_id: str | None) -> Link | None:
        """Commit the decision that two users are one person."""
        links = self._tables.links
        row = None if request_id is None else self._requests.get(request_id)
        if request_id is not None:
            if row is not None and row.request.link_id is not None:
                return links[row.request.link_id]
            if row is None or self._now(row).state != "asked":
                return None
        users = {link.survivor, link.absorbed}
        if any(
            (one.absorbed in users and one.state != "undone") or (one.survivor in users and one.state in UNFINISHED)
            for one in links.values()
        ):
            return None
        if row is not None:
            row.request = replace(row.request, state="linked", link_id=link.id)
        links[link.id] = replace(link, linked_at=_whole_ms(link.linked_at))
        return links[link.id]

    async def undo(self, link_id: str) -> Link | None:
        """Commit that a `linked` link ends; it counts no more from now on. None where there is nothing to end."""
        link = self._tables.links.get(link_id)
        if link is None or link.state != "linked":
            return None
        self._tables.links[link_id] = replace(link, state="undoing", undone_at=self._moment())
        return self._tables.links[link_id]

    async def end_by_hand(self, link_id: str) -> None:
        """The identity map was edited, and says otherwise: the link counts no more, and nothing is left to do."""
        link = self._tables.links.get(link_id)
        if link is not None and link.undone_at is None:
            self._tables.links[link_id] = replace(link, state="undone", undone_at=self._moment())

    async def advance(self, link_id: str, state: LinkState, told: Sequence[OutboundMessage] = ()) -> None:
        """Note that a step is done, and queue what is to be said of it, each message once."""
        self._tables.links[link_id] = replace(self._tables.links[link_id], state=state)
        self._queue(told)

    async def link(self, link_id: str) -> Link | None:
        """One link."""
        return self._tables.links.get(link_id)

    async def links(self, *, ended_too: bool = False) -> Sequence[Link]:
        """Those that count or are not carried out yet, and where wished all others, oldest first."""
        chosen = [link for link in self._tables.links.values() if ended_too or link.state != "undone"]
        return sorted(chosen, key=lambda link: link.linked_at)

    async def person_ids(self, user_id: str) -> Sequence[str]:
        """The user id, and the ids of all that it has absorbed, directly or not."""
        return self._tables.person_ids(user_id)

    async def direct_conversation(self, channels: Collection[str], sender: str) -> ConversationRef | None:
        """Where the platform's account has written last in a direct chat on one of the channels."""
        for channel in channels:
            for row in reversed(self._tables.said.values()):
                there = row.message.conversation
                if there.channel == channel and row.message.is_direct and row.message.sender.user == sender:
                    return there
        return None

    def _now(self, row: RequestRow) -> LinkRequest:
        """The request; one that nobody knows the age of, because the clock was set back, is over."""
        is_over = not 0 <= self._tables.now_ms() - row.begun_at < _VALID_MS
        is_over = is_over and row.request.state in {"open", "asked"}
        return replace(row.request, state="expired") if is_over else row.request

    def _queue(self, messages: Sequence[OutboundMessage]) -> None:
        known = {answer.message.id for answer in self._tables.answers.values()}
        for message in messages:
            if message.id not in known:
                seq = self._tables.next_seq()
                self._tables.answers[seq] = Answer(
                    seq=seq, turn_id=message.id, message=message, due_at=self._tables.now_ms()
                )

    def _moment(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self._tables.now_ms())


def _whole_ms(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
