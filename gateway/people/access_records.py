"""Who was let in, and as what. Accounts are named as in the identity map, `kind:id`.

A role belongs to an account, and a person has the highest of all their accounts: so linking and unlinking accounts
needs no word here. Strangers stand here as requests, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, Protocol

from gateway.domain.roles import Role
from gateway.messages import ConversationRef, OutboundMessage

Rank = Role | Literal["revoked"]
"""`revoked`: this account is let in nowhere, whatever the configuration says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A stranger who asks to be let in on one channel; there is one for each account and channel.

    Attributes:
        account: `kind:id`.
        label: the name that the platform shows; it proves nothing.
        seed: what the code is made of; see `codes.code_of`.
        times: how many codes the account was given since `first_at`.
        expires_at: until when the code is good, or until when a refused account gets no other one.
        told_at: when the code was said last.
        held: messages that wait for the yes.
    """

    channel: str
    account: str
    label: str
    conversation: ConversationRef
    seed: str
    state: Literal["waiting", "refused"]
    times: int
    first_at: datetime
    asked_at: datetime
    expires_at: datetime
    told_at: datetime
    held: int = 0


# ---- changes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRequest:
    """Keep the request as it is given; `is_held`: the message that it came with waits for the yes."""

    request: Request
    is_held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LetIn:
    """Let the account in on the channel; what it said meanwhile gets its turn. `role` None: that of the channel."""

    channel: str
    account: str
    label: str
    role: Role | None
    via: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    """What the account said on the channel while it was a stranger gets its turn, and its request is over."""

    channel: str
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAway:
    """Refuse the account's request; it gets no other code until then."""

    channel: str
    account: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRank:
    """Give accounts a role, or take everything from them: `revoked` forgets where they were let in, too."""

    accounts: tuple[str, ...]
    rank: Rank
    via: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOwner:
    """Make the account an owner's, which uses up the code."""

    account: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferOwner:
    """Keep the hash of a code by which somebody becomes an owner, in the place of any other."""

    code_hash: str
    expires_at: datetime


PeopleChange = KeepRequest | LetIn | Reopen | TurnAway | SetRank | ClaimOwner | OfferOwner


# ---- the store ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSnapshot:
    """Everybody who was let in by a person rather than by the configuration.

    Attributes:
        ranks: by account.
        admitted: channel and account.
        chats: the direct chat that each account of an owner used last, by account; the last one used is the last.
    """

    ranks: Mapping[str, Rank] = field(default_factory=dict)
    admitted: frozenset[tuple[str, str]] = frozenset()
    chats: Mapping[str, ConversationRef] = field(default_factory=dict)


class PeopleStore(Protocol):
    """Where roles, requests and direct chats of people are kept."""

    @property
    def foreign_changes(self) -> int:
        """Grows whenever another process may have changed something."""

    async def snapshot(self) -> AccessSnapshot:
        """All records, as they are now."""

    async def requests(self) -> Sequence[Request]:
        """Everybody who asked, the waiting, the refused and those whose time is over, oldest first."""

    async def held_in(self, channel: str, account: str) -> Sequence[ConversationRef]:
        """Where the messages were written that wait for the yes."""

    async def owner_code(self, now: datetime) -> str | None:
        """The hash of the code that is offered, None where there is none or its time is over."""

    async def change(self, change: PeopleChange, notices: Sequence[OutboundMessage] = ()) -> None:
        """Do it and queue the notices, durably and at once; as part of a turn it is a field of `TurnCommit`."""

    async def keep_chat(self, account: str, conversation: ConversationRef) -> None:
        """Note which direct chat an owner used last; survives a killed process, perhaps not a power cut."""


class AccessRecords:
    """The records in memory, read again when somebody changed them."""

    def __init__(self, store: PeopleStore) -> None:
        self._store = store
        self._snapshot = AccessSnapshot()
        self._read_at: int | None = None
        self._changes = 0
        self._reading = asyncio.Lock()
        self.tell: Callable[[], object] = lambda: None
        """Called with each change of this process, for others."""
        self.heard: Callable[[], object] = lambda: None
        """Called with each change, of whatever process."""
        self.moved: Callable[[], object] = lambda: None
        """Called when an owner is reached in another direct chat."""

    @property
    def last(self) -> AccessSnapshot:
        """The records as they were read last."""
        return self._snapshot

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was changed since."""
        return self._read_at == self._store.foreign_changes

    def changed(self) -> None:
        """Say that this process changed it."""
        self.reread()
        self.tell()

    def reread(self) -> None:
        """Have the next question read the records: another process changed them."""
        self._changes += 1
        self._read_at = None
        self.heard()

    async def snapshot(self) -> AccessSnapshot:
        """All records, as they are now; costs nothing while nothing changes.

        A change by another process is seen with the next commit of ours, and every message begins with one.
        """
        if self.is_fresh:
            return self._snapshot
        async with self._reading:
            seen, changes = self._store.foreign_changes, self._changes
            if self._read_at != seen:
                self._snapshot = await self._store.snapshot()
                if changes == self._changes:  # else it is read again by the next call
                    self._read_at = seen
            return self._snapshot

    async def has_moved(self, account: str, conversation: ConversationRef) -> bool:
        """Whether an owner's account writes from another direct chat than an owner did last."""
        chats = (await self.snapshot()).chats
        return [*chats.items()][-1:] != [(account, conversation)]

    def chat_kept(self, account: str, conversation: ConversationRef) -> None:
        """Say that the store has this direct chat as the last one of an owner."""
        self._changes += 1  # a snapshot that is being read may not have it
        others = {owner: chat for owner, chat in self._snapshot.chats.items() if owner != account}
        self._snapshot = replace(self._snapshot, chats={**others, account: conversation})
        self.moved()

    async def keep_chat(self, account: str, conversation: ConversationRef) -> None:
        """Note which direct chat an owner's account used last."""
        if await self.has_moved(account, conversation):
            await self._store.keep_chat(account, conversation)
            self.chat_kept(account, conversation)


def ranks_of(accounts: Collection[str], ranks: Mapping[str, Rank]) -> set[Rank]:
    """The ranks that these accounts have."""
    return {ranks[account] for account in accounts if account in ranks}
