"""The two durable queues: their rows, the protocols of their stores, and when to try again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gateway.messages import ConversationRef, InboundMessage, OutboundMessage, Receipt
from gateway.runtime.backoff import delay_s

# A message that was being answered at so many deaths of the process is answered alone from then on.
SUSPECT_DEATHS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """A message that is claimed for its turn.

    Attributes:
        turn_id: chosen at accept, so that it is the same however often the turn is tried.
        attempts: claims so far, this one included; a parked message's waits do not count, nor does the end of the
            process.
        is_told: the person was told already that the message waits.
        has_steps: an earlier try left steps from which the turn goes on; see `TurnStore.load_steps`.
        has_more: its conversation has another message behind it.
        next_sender: who wrote that one; None where there is none.
        accepted_at: by the wall clock.
        lone_deaths: how often the process died while this, and nothing else, was being answered.
    """

    seq: int
    turn_id: str
    message: InboundMessage
    attempts: int
    is_told: bool
    has_steps: bool
    has_more: bool
    next_sender: str | None
    accepted_at: datetime
    lone_deaths: int = 0


@dataclass(frozen=True, slots=True)
class Suspect:
    """The process died so often while the head of the queue was being answered that it is to be answered alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDue:
    """The head of the queue waits for a time to come."""

    due_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much of one sender may wait, over all conversations of the channel.

    Attributes:
        messages: at most; what comes beyond that is refused.
        notice: the answer to a refused message, None where it deserves none. It is sent once in each conversation
            until all is answered that waited when it was sent.
    """

    messages: int
    notice: OutboundMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The message was committed as one that gets no turn; `is_told`: the notice was committed with it."""

    is_told: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An unfinished message whose sender knows that it waits; `waits_for` is what `TurnCommit` said of it."""

    conversation: ConversationRef
    waits_for: str | None


class InboxStore(Protocol):
    """The durable queue of what people wrote, one row per message for ever."""

    async def add(self, message: InboundMessage, turn_id: str, room: Room | None = None) -> int | Refused | None:
        """Commit the message; its sequence number, or None when the event or the message is there already."""

    async def claim(
        self, conversation: ConversationRef, *, owner: str, lease_s: float, is_alone: bool = False
    ) -> InboxRow | NotDue | Suspect | None:
        """Take the conversation's oldest unfinished message, if it is not claimed and its time has come.

        A suspect is taken only by a caller that runs nothing else: `is_alone`.
        """

    async def renew(self, owner: str, lease_s: float) -> None:
        """Put off the end of all leases of the owner."""

    async def release(self, seq: int, *, owner: str, after_s: float, error: str | None, is_counted: bool) -> None:
        """Give the message back, to be claimed again after some seconds; `is_counted` False takes the attempt back."""

    async def make_due(self, conversation: ConversationRef) -> None:
        """Let what waits in the conversation be claimed now."""

    async def reclaim(self, owner: str, after_s: Callable[[int], float] = lambda _deaths: 0.0) -> int:
        """Give back what other owners hold; for a start, when the others are known to be dead.

        Which of several messages ended the process is not known, so a death is counted only for a lone message.

        Args:
            after_s: how long a message waits after so many lone deaths.
        """

    async def waiting(self) -> Sequence[tuple[ConversationRef, float]]:
        """Every conversation with an unfinished message, and the seconds until its head is due."""

    async def speakers(self) -> Mapping[ConversationRef, str]:
        """Who wrote the head of every conversation with an unfinished message."""

    async def parked(self) -> Sequence[Parked]:
        """Messages that wait for a model or for a budget, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A reply that is claimed for sending.

    Attributes:
        turn_id: of the turn whose answer it is.
        attempts: this one included; those that failed for the platform's sake do not count.
        is_uncertain: an earlier attempt may have arrived.
        has_more: its conversation has another reply behind it.
        epoch: of the channel's holder that sends it; 0 where there is only one worker.
        failing_s: for how long its platform has not been able to take it, without the time in which it was not tried;
            None where it was not tried in vain.
    """

    seq: int
    turn_id: str
    message: OutboundMessage
    attempts: int
    is_uncertain: bool
    has_more: bool
    failing_s: float | None = None
    epoch: int = 0


class OutboxStore(Protocol):
    """The durable queue of what is to be sent."""

    async def claim_reply(
        self, conversation: ConversationRef, *, is_durable: bool, epoch: int = 0
    ) -> OutboxRow | NotDue | None:
        """Mark the conversation's oldest unsent reply as being sent, if its time has come.

        Args:
            is_durable: False is enough where sending twice is harmless.
            epoch: of the lease of its channel, 0 where there is only one worker.

        Raises:
            ClaimLost: another worker has the channel.
        """

    async def record_sent(self, seq: int, receipt: Receipt, notice: OutboundMessage | None = None) -> None:
        """The platform has it; the notice is queued with that."""

    async def record_retry(
        self,
        seq: int,
        *,
        epoch: int = 0,
        after_s: float,
        error: str,
        is_uncertain: bool,
        is_counted: bool = True,
        is_put_off: bool = False,
    ) -> None:
        """To be sent again after some seconds, unless a later holder of its channel has it.

        Args:
            epoch: under which it was claimed.
            is_counted: False: it was the platform's failure, not the reply's.
            is_put_off: or as soon as its platform takes replies again.
        """

    async def make_reply_due(self, conversation: ConversationRef) -> None:
        """Let what waits in the conversation be claimed now."""

    async def record_dead(self, seq: int, error: str, notice: OutboundMessage | None = None) -> None:
        """Give up; the row stays among the dead letters with its reason. The notice is queued with that."""

    async def recover_replies(self) -> int:
        """For a start: what was being sent when the process died becomes unsent and uncertain; how many."""

    async def take_over_replies(self, channel: str, epoch: int) -> int:
        """What was being sent through a channel under an older epoch becomes unsent and uncertain; how many."""

    async def unsent(self, channel: str | None = None) -> Sequence[tuple[ConversationRef, float]]:
        """Every conversation, of one channel or all, with an unsent reply; and the seconds until its head is due."""

    async def put_off(self) -> Sequence[ConversationRef]:
        """Every conversation whose head waits until its platform takes replies again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """When to try a turn or a reply again, and when to give up.

    Attributes:
        max_attempts: failures of one message of its own, or of a reply that may have arrived.
        give_up_after_h: for so long a reply is tried whose platform cannot take it now.
        hide: takes secrets out of a reason before it is kept.
    """

    max_attempts: int = 8
    first_retry_s: float = 1.0
    longest_retry_s: float = 900.0
    give_up_after_h: float = 24.0
    hide: Callable[[str], str] = str

    def delay_s(self, failures: int) -> float:
        """The pause after so many failures in a row."""
        return delay_s(failures, first_s=self.first_retry_s, longest_s=self.longest_retry_s)
