"""What linking works with: requests that wait for their second proof, links that were decided, and where both are kept.

A link rewrites no rows. It says that one user is absorbed by another; a query for a person's sessions, messages or
usage is given those of all ids of that person, and taking the link back ends that at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol

from gateway.errors import EthosError
from gateway.messages import ConversationRef, OutboundMessage

CODE_VALID_S = 600.0
"""For the code to be typed, and then again for the question to be answered."""
TRIES = 5
TRIES_WITHIN_S = 600.0
UNDO_WITHIN = timedelta(days=7)

RequestState = Literal["open", "asked", "linked", "refused", "replaced", "expired"]
LinkState = Literal["decided", "mapped", "linked", "undoing", "parted", "undone"]

UNFINISHED: Collection[LinkState] = ("decided", "mapped", "undoing", "parted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """An account that takes part.

    Attributes:
        account: `kind:id`.
        label: a name for people; proves nothing.
        conversation: where the account is spoken to alone; None where no such place is known.
    """

    account: str
    label: str
    conversation: ConversationRef | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRequest:
    """A code that was given out, and what became of it.

    Attributes:
        state: `open` while a code is awaited; `asked` until the starter answers; then one of the others.
        redeemer: who typed the code. None while anybody may; an open request with a redeemer waits for the second code,
            from that account only.
        link_id: of the link that came of it.
    """

    id: str
    starter: Party
    state: RequestState = "open"
    redeemer: Party | None = None
    link_id: str | None = None


@dataclass(frozen=True, slots=True)
class Wrong:
    """There is no such code: mistyped, used, replaced, or over."""

    tries_left: int


@dataclass(frozen=True, slots=True)
class TooManyTries:
    """The account has guessed too often, and was not listened to."""

    again_in_s: float


@dataclass(frozen=True, slots=True)
class OwnCode:
    """The code was typed on the account that asked for it; it stays good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountBefore:
    """An account of the absorbed user, as the identity map had it before the link."""

    key: str
    via: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A decision that two users are one person.

    Attributes:
        survivor, absorbed: user ids; the absorbed one's accounts are the survivor's now.
        accounts: the absorbed user's, from before.
        parties: who is told, of the link and of its end.
        by: `code`, or `operator`.
        state: how far it has been carried out. `decided`, `mapped` (the identity map says it), `linked` (the notes are
            merged, and both know). Then perhaps `undoing`, `parted` (the map is as before), `undone`.
        undone_at: since when it does not count any more.
    """

    id: str
    survivor: str
    absorbed: str
    accounts: tuple[AccountBefore, ...]
    parties: tuple[Party, ...]
    by: str
    linked_at: datetime
    state: LinkState = "decided"
    undone_at: datetime | None = None

    @property
    def undo_until(self) -> datetime:
        """Until when the person may take it back."""
        return self.linked_at + UNDO_WITHIN


class NotLinked(EthosError):
    """Two accounts cannot be linked; the text says why, for people."""


class LinkStore(Protocol):
    """Where requests and links are kept. Every method is one transaction, and repeating it after a crash is harmless.

    Every method raises:
        StoreUnavailable: nothing was committed.
    """

    async def start(self, request: LinkRequest, code_hash: str) -> None:
        """Keep a new request; an unfinished one of the same starter gives way to it."""

    async def redeem(
        self,
        code_hash: str,
        guesser: Party,
        *,
        turn_id: str,
        second_hash: str | None,
        question: Callable[[LinkRequest], OutboundMessage],
    ) -> LinkRequest | Wrong | TooManyTries | OwnCode:
        """Use a code up, and queue the question to its starter; counts as a try of the guesser.

        The same turn is given the same answer again, and is one try.

        Args:
            code_hash: of what was typed.
            guesser: who typed it.
            turn_id: in which it was typed.
            second_hash: of the code that takes the place of the one that `/link` gave. The request stays open until
                the guesser types it, and no question comes before. None where the first code is enough.
            question: makes the question from the request.
        """

    async def requests_of(self, account: str) -> Sequence[LinkRequest]:
        """Those in which the account is the starter or the redeemer, whatever became of them, newest first."""

    async def refuse(self, request_id: str, notice: Callable[[LinkRequest], OutboundMessage | None]) -> bool:
        """End a request that is `open` or `asked`, and queue a word to the other side; whether it is refused now."""

    async def decide(self, link: Link, *, request_id: str | None) -> Link | None:
        """Commit the decision that two users are one person.

        Args:
            link: the decision.
            request_id: whose question was answered with yes; None for an operator's decision.

        Returns:
            The link; the one from before, where the request has led to one already. None where the request is not
            `asked` any more, or where one of the two users is absorbed, or part of something unfinished.
        """

    async def undo(self, link_id: str) -> Link | None:
        """Commit that a `linked` link ends; it counts no more from now on. None where there is nothing to end."""

    async def end_by_hand(self, link_id: str) -> None:
        """The identity map was edited, and says otherwise: the link counts no more, and nothing is left to do."""

    async def advance(self, link_id: str, state: LinkState, told: Sequence[OutboundMessage] = ()) -> None:
        """Note that a step is done, and queue what is to be said of it, each message once."""

    async def link(self, link_id: str) -> Link | None:
        """One link."""

    async def links(self, *, ended_too: bool = False) -> Sequence[Link]:
        """Those that count or are not carried out yet, and where wished all others, oldest first."""

    async def person_ids(self, user_id: str) -> Sequence[str]:
        """The user id, and the ids of all that it has absorbed, directly or not."""

    async def direct_conversation(self, channels: Collection[str], sender: str) -> ConversationRef | None:
        """Where the platform's account has written last in a direct chat on one of the channels."""


class LinkGuard(Protocol):
    """What linking asks of `people.pairing.Pairing`."""

    @property
    def lock(self) -> asyncio.Lock:
        """Held from the question to the commit of what follows from it."""

    async def is_barred(self, party: Party) -> bool:
        """Whether an owner has refused the account where it writes, or revoked its access."""


class SendsReplies(Protocol):
    """What linking asks of `pipeline.outbox.Outbox`."""

    def wake(self, conversation: ConversationRef) -> None:
        """Say that the conversation has a reply to send."""


class AppliesMemory(Protocol):
    """What linking asks of `memory.sync.MemorySync`."""

    async def is_behind(self, user_id: str) -> bool:
        """Whether something that this user's turns have committed is not in the memory yet."""
