"""The two durable queues: their rows, the protocols of their stores, and when to try again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from gateway.messages import ConversationRef, InboundMessage, OutboundMessage, Receipt
from gateway.runtime.backoff import delay_s

Asks = Literal["stop", "retry"]
# A message that was being answered at so many deaths of the process is answered alone from then on.
SUSPECT_DEATHS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """A message that is claimed for its turn.

    Attributes:
        lane: of its conversation; `seq` is its number there.
        claim: what shows that the lane is still held for this turn.
        turn_id: chosen at accept, so that it is the same however often the turn is tried.
        attempts: this one, and those that failed; a parked message's waits do not count, nor does the end of the
            process.
        is_told: the person was told already that the message waits.
        has_steps: an earlier try left steps from which the turn goes on; see `TurnStore.load_steps`.
        is_stopped: the person has said stop since.
        asks: it is a `/stop` or a `/retry`; `had_effect`: before its own turn.
        accepted_at: by the wall clock.
        deaths: how often the process died while it was being answered.
        lone_deaths: how often that while nothing else was.
        approval_id: it makes the call that was approved under this number; nobody wrote it.
        schedule_id: it is what this schedule has due; nobody wrote it, either.
    """

    lane: int
    seq: int
    claim: str
    turn_id: str
    message: InboundMessage
    attempts: int
    is_told: bool
    has_steps: bool
    accepted_at: datetime
    is_stopped: bool = False
    asks: Asks | None = None
    had_effect: bool = False
    deaths: int = 0
    lone_deaths: int = 0
    approval_id: int | None = None
    schedule_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What a worker got.

    Attributes:
        suspects: lanes whose next message is for a worker that runs nothing else.
        is_more: there were others to be claimed at that moment.
    """

    rows: Sequence[InboxRow]
    suspects: Sequence[int] = ()
    is_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lane that a worker still holds; `stop_seq`: an earlier message's turn is to be stopped."""

    lane: int
    claim: str
    stop_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Whether a lane is due that this worker does not hold, and in how many seconds the next one will be."""

    is_due: bool
    next_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesDue:
    """How many conversations could be claimed now, and for how long the first of them could have been."""

    due: int = 0
    oldest_s: float = 0.0


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

    async def add(
        self, message: InboundMessage, turn_id: str, room: Room | None = None, *, asks: Asks | None = None
    ) -> int | Refused | None:
        """Commit the message; its number in its conversation, or None when the event or the message is there already.

        Args:
            asks: what it does at once to those before it in its conversation. A `stop` ends the turn that runs, or else
                the next; a `retry` lets what waits for its time be claimed now.
        """

    async def parked(self) -> Sequence[Parked]:
        """Messages that wait for a model or for a budget, oldest first."""


class LaneStore(Protocol):
    """Conversations that have something to answer: who of many workers answers it, and when."""

    async def claim(
        self,
        worker: str,
        *,
        lease_s: float,
        limit: int,
        turns_of_one: Mapping[str, int],
        elsewhere: Collection[str] = (),
        has_files: bool = False,
        after_death_s: Callable[[int], float] = lambda _deaths: 0.0,
        alone: int | None = None,
    ) -> Claimed:
        """Take the oldest unfinished message of lanes that are due, in an order that is fair to all senders.

        A worker never gets what it holds. A claim that has expired is another's to take; the death of its worker is
        counted for what it was answering.

        Args:
            limit: so many at most.
            turns_of_one: how many lanes of one sender may be claimed at once, by channel; `""` for all others.
            elsewhere: the channels that other workers hold: a message with files to fetch is theirs.
            has_files: only such messages; others are left to other workers.
            after_death_s: how long a message waits after so many lone deaths.
            alone: only this lane, also where its message is a suspect; for a worker that runs nothing else.
        """

    async def renew(self, worker: str, lease_s: float) -> Sequence[Held]:
        """Put off the end of all leases of the worker; what it still holds."""

    async def held(self, worker: str) -> Sequence[Held]:
        """What it holds, of which nothing is put off."""

    async def free(self, held: Held) -> None:
        """Give back a lane that is claimed so and that nobody answers in; it is due now."""

    async def release(self, row: InboxRow, *, after_s: float, error: str | None, is_counted: bool) -> None:
        """Give the lane back, to be claimed again after some seconds; `is_counted`: the attempt failed.

        Nothing happens when the claim is lost.
        """

    async def make_due(self, conversation: ConversationRef) -> None:
        """Let what waits in the conversation be claimed now."""

    async def recover(self, worker: str, after_death_s: Callable[[int], float] = lambda _deaths: 0.0) -> int:
        """Give back what dead workers hold, for a start; how many lanes. Who gives no sign of life is dead.

        Nothing waits longer after it than it was meant to, nor than an hour, whatever the clock does.
        """

    async def look(self, worker: str) -> Look:
        """When there is something to claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A reply that is claimed for sending; `seq` is its number in the lane of its conversation.

    Attributes:
        turn_id: of the turn whose answer it is.
        attempts: this one included; those that failed for the platform's sake do not count.
        is_uncertain: an earlier attempt may have arrived.
        has_more: its conversation has another reply behind it.
        epoch: of the channel's holder that sends it; 0 where there is only one worker.
        failing_s: for how long its platform has not been able to take it, without the time in which it was not tried;
            None where it was not tried in vain.
    """

    lane: int
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

    async def add(self, message: OutboundMessage, *, delivered: Collection[str]) -> OutboundMessage:
        """Queue a message of no turn; gives what stands under its id, which stays where it was there before.

        Args:
            delivered: ids of messages that need no sending, because their channel shows the log.
        """

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

    async def exchange(self, row: OutboxRow, message: OutboundMessage) -> bool:
        """Put a message in the place of the one that is claimed; False where that is gone, or another's by now."""

    async def record_sent(self, row: OutboxRow, receipt: Receipt, notice: OutboundMessage | None = None) -> None:
        """The platform has it; the notice is queued with that."""

    async def record_retry(
        self,
        row: OutboxRow,
        *,
        after_s: float,
        error: str,
        is_uncertain: bool,
        is_counted: bool = True,
        is_put_off: bool = False,
    ) -> None:
        """To be sent again after some seconds, unless a later holder of its channel has it.

        Args:
            is_counted: False: it was the platform's failure, not the reply's.
            is_put_off: or as soon as its platform takes replies again.
        """

    async def make_reply_due(self, conversation: ConversationRef) -> None:
        """Let what waits in the conversation be claimed now."""

    async def record_dead(self, row: OutboxRow, error: str, notice: OutboundMessage | None = None) -> None:
        """Give up; the row stays among the dead letters with its reason. The notice is queued with that."""

    async def recover_replies(self, channel: str | None = None, epoch: int = 1) -> int:
        """For a start: what was being sent when the process died becomes unsent and uncertain; how many.

        Args:
            channel: of this one only, for who holds it from now on.
            epoch: only what was sent under an earlier one.
        """

    async def unsent(self, channel: str | None = None) -> Sequence[tuple[ConversationRef, float]]:
        """Every conversation with an unsent reply, of one channel or of all, and the seconds until its head is due."""

    async def put_off(self, channel: str | None = None) -> Sequence[ConversationRef]:
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
