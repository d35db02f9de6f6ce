"""Who was let in, in the in-memory twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gateway.messages import ConversationRef, OutboundMessage
from gateway.people.access_records import (
    Ask,
    Book,
    ClaimOwner,
    LetIn,
    OfferOwner,
    PeopleChange,
    Reopen,
    Request,
    SetRank,
    TurnAway,
)
from gateway.store.in_memory_tables import Answer, Tables

_FORGET_AFTER = timedelta(days=1)


def apply_change(tables: Tables, change: PeopleChange, *, inbox_seq: int | None = None) -> None:
    """Do it; `inbox_seq` is the message of the turn, where it is part of one."""
    match change:
        case Ask():
            _ask(tables, change, inbox_seq)
        case LetIn():
            _let_in(tables, change)
        case Reopen(channel=channel, account=account):
            _reopen(tables, (channel, account))
        case TurnAway(channel=channel, account=account):
            _taken(tables, (channel, account))
            asked = tables.requests.get((channel, account))
            if asked is not None:
                tables.requests[channel, account] = replace(asked, state="refused", expires_at=change.until)
        case SetRank():
            tables.ranks |= dict.fromkeys(change.accounts, change.rank)
            if change.rank == "revoked":
                tables.admitted = {one for one in tables.admitted if one[1] not in change.accounts}
        case ClaimOwner(account=account):
            tables.owner_code = None
            tables.ranks[account] = "owner"
        case OfferOwner():
            tables.owner_code = (change.code_hash, change.expires_at)


def _ask(tables: Tables, change: Ask, inbox_seq: int | None) -> None:
    request = change.request
    place, oldest = (request.channel, request.account), request.asked_at - _FORGET_AFTER
    tables.requests = {key: one for key, one in tables.requests.items() if one.expires_at >= oldest}
    tables.requests[place] = request
    tables.held = {seq: whose for seq, whose in tables.held.items() if whose in tables.requests}
    if change.is_held and inbox_seq is not None:
        tables.held[inbox_seq] = place


def _let_in(tables: Tables, change: LetIn) -> None:
    place = (change.channel, change.account)
    tables.admitted.add(place)
    if tables.ranks.get(change.account) == "revoked":
        del tables.ranks[change.account]
    if change.role is not None:
        tables.ranks[change.account] = change.role
    _reopen(tables, place)


def _reopen(tables: Tables, place: tuple[str, str]) -> None:
    for seq in _taken(tables, place):
        row = tables.said[seq]
        if row.state == "done":
            row.state, row.attempts, row.due_at, row.is_told = "ready", 0, 0, False
    tables.requests.pop(place, None)


def _taken(tables: Tables, whose: tuple[str, str]) -> list[int]:
    """The messages that were held for somebody, who has them no more."""
    seqs = [seq for seq, other in tables.held.items() if other == whose]
    for seq in seqs:
        del tables.held[seq]
    return seqs


class InMemoryPeople:
    """Roles, admissions, requests and the owner's code; there is no other process."""

    foreign_changes = 0

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def book(self) -> Book:
        """As it is now."""
        return Book(
            ranks=dict(self._tables.ranks), admitted=frozenset(self._tables.admitted), chats=dict(self._tables.chats)
        )

    async def requests(self) -> Sequence[Request]:
        """Everybody who asked, oldest first."""
        held = list(self._tables.held.values())
        found = [replace(one, held=held.count(place)) for place, one in self._tables.requests.items()]
        return sorted(found, key=lambda one: one.first_at)

    async def held_in(self, channel: str, account: str) -> Sequence[ConversationRef]:
        """Where the messages were written that wait for the yes."""
        found = [seq for seq, whose in self._tables.held.items() if whose == (channel, account)]
        return list({self._tables.said[seq].message.conversation: None for seq in found})

    async def owner_code(self, now: datetime) -> str | None:
        """The hash of the code that is offered now."""
        offered = self._tables.owner_code
        return None if offered is None or offered[1] <= now else offered[0]

    async def change(self, change: PeopleChange, notices: Sequence[OutboundMessage] = ()) -> None:
        """Do it and queue the notices."""
        apply_change(self._tables, change)
        for notice in notices:
            seq = self._tables.next_seq()
            self._tables.answers[seq] = Answer(seq=seq, turn_id=notice.id, message=notice, due_at=self._tables.now_ms())

    async def keep_chat(self, account: str, conversation: ConversationRef) -> None:
        """Note which direct chat an owner used last."""
        self._tables.keep_chat(account, conversation)
