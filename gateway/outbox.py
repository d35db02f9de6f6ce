"""The outbox: replies wait here, committed, until their platform has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from gateway.backoff import delay_s
from gateway.cancellation import is_cancelled_from_outside
from gateway.errors import EthosError, PermanentSendError, StoreError, TransientSendError, UncertainSendError
from gateway.failpoints import reach
from gateway.inbox import NotDue
from gateway.lanes import AGAIN, IDLE, Lanes
from gateway.messages import ConversationRef, OutboundMessage, Receipt
from gateway.observe import note, stage
from gateway.protocols import ChannelAdapter, SupportsSendLookup

SENDERS = 64
AFTER_FAULT_S = 5.0
QUIET_S = 20.0
# Said in front of a reply when nobody can tell whether its first copy arrived.
REPEAT_NOTE = "(This may be a repeat.) "

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A reply that is claimed for sending.

    Attributes:
        turn_id: of the turn whose answer it is.
        attempts: this one included.
        is_uncertain: an earlier attempt may have arrived.
        has_more: its conversation has another reply behind it.
    """

    seq: int
    turn_id: str
    message: OutboundMessage
    attempts: int
    is_uncertain: bool
    has_more: bool


class OutboxStore(Protocol):
    """The durable queue of what is to be sent."""

    async def claim_reply(self, conversation: ConversationRef, *, is_durable: bool) -> OutboxRow | NotDue | None:
        """Mark the conversation's oldest unsent reply as being sent, if its time has come.

        `is_durable` False is enough where sending twice is harmless.
        """

    async def record_sent(self, seq: int, receipt: Receipt) -> None:
        """The platform has it."""

    async def record_retry(
        self, seq: int, *, after_s: float, error: str, is_uncertain: bool, is_counted: bool = True
    ) -> None:
        """To be sent again after some seconds."""

    async def record_dead(self, seq: int, error: str) -> None:
        """Give up; the row stays among the dead letters with its reason."""

    async def recover_replies(self) -> int:
        """For a start: what was being sent when the process died becomes unsent and uncertain; how many."""

    async def unsent(self) -> Sequence[tuple[ConversationRef, float]]:
        """Every conversation with an unsent reply, and the seconds until its head is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """When to try again, and when to give up.

    Attributes:
        hide: takes out of a reason what nobody may see, before it is kept.
    """

    max_attempts: int = 8
    first_retry_s: float = 1.0
    longest_retry_s: float = 300.0
    hide: Callable[[str], str] = str


class Outbox:
    """Sends replies in the order of their conversation, and records what became of each."""

    def __init__(
        self,
        store: OutboxStore,
        channel_if_up: Callable[[str], ChannelAdapter | None],
        *,
        policy: DeliveryPolicy | None = None,
        on_sent: Callable[[str], None] = lambda _channel: None,
    ) -> None:
        """Nothing happens before `run`.

        Args:
            channel_if_up: the adapter of that name, or None while it is not connected.
            on_sent: told the channel after every successful send.
        """
        self._store = store
        self._channel_if_up = channel_if_up
        self.policy = policy or DeliveryPolicy()
        self._on_sent = on_sent
        self._lanes: Lanes[ConversationRef] = Lanes(self._send_next, workers=SENDERS, after_fault_s=AFTER_FAULT_S)
        self._held: dict[str, set[ConversationRef]] = {}
        self._sending: Counter[str] = Counter()
        self._sent_one = asyncio.Event()
        self._unrecorded: dict[ConversationRef, Callable[[], Awaitable[None]]] = {}

    def wake(self, conversation: ConversationRef) -> None:
        """Say that the conversation has a reply to send."""
        self._lanes.wake(conversation)

    async def caught_up(self, conversation: ConversationRef) -> None:
        """Wait until nothing of the conversation is on its way, or waits to be tried again."""
        await self._lanes.rested(conversation)

    def channel_is_up(self, channel: str) -> None:
        """Send what was held back while the channel was down."""
        for conversation in self._held.pop(channel, set()):
            self._lanes.wake(conversation)

    async def quiet(self, channel: str, timeout_s: float = QUIET_S) -> None:
        """Wait until nothing is being sent through a channel, which must be held back, for so long at most."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._sending[channel]:
                    self._sent_one.clear()
                    await self._sent_one.wait()
        except TimeoutError:
            _log.warning("sends_given_up", channel=channel, waited_s=timeout_s)

    async def recover(self) -> int:
        """Take up what an earlier process left; returns how many replies it was sending when it died."""
        uncertain = await self._store.recover_replies()
        for conversation, due_in_s in await self._store.unsent():
            self._lanes.wake_in(conversation, due_in_s)
        return uncertain

    async def run(self) -> None:
        """Send until cancelled."""
        await self._lanes.run()

    async def drain(self, timeout_s: float) -> None:
        """Send what is due now, for so long at most."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._lanes.idle()
        except TimeoutError:
            _log.warning("replies_left", waited_s=timeout_s)

    async def _send_next(self, conversation: ConversationRef) -> float | None:
        adapter = self._channel_if_up(conversation.channel)
        if adapter is None:
            self._held.setdefault(conversation.channel, set()).add(conversation)
            return IDLE
        self._sending[conversation.channel] += 1
        try:
            await self._record_held(conversation)
            row = await self._store.claim_reply(conversation, is_durable=not adapter.capabilities.is_idempotent_send)
            if row is None:
                return IDLE
            if isinstance(row, NotDue):
                return row.due_in_s
            with stage("outbox.send", row.turn_id, conversation, attempt=row.attempts):
                retry_in_s = await self._send(adapter, row)
        except StoreError as error:
            _log.error("outbox_store_failed", channel=conversation.channel, error=str(error))
            return AFTER_FAULT_S
        finally:
            self._sending[conversation.channel] -= 1
            self._sent_one.set()
        if retry_in_s is not None:
            return retry_in_s
        return AGAIN if row.has_more else IDLE

    async def _send(self, adapter: ChannelAdapter, row: OutboxRow) -> float | None:
        """Send one reply; the seconds until it is to be tried again, None when it is finished.

        A send that is cancelled stays marked as being sent: the next start takes it up as uncertain.
        """
        reach("outbox.claimed")
        try:
            receipt = await self._deliver(adapter, row)
        except PermanentSendError as error:
            note(result="dead")
            await self._record(row, partial(self._store.record_dead, row.seq, self.policy.hide(str(error))))
            _log.error("reply_dead", channel=adapter.name, message_id=row.message.id, error=str(error))
            return None
        except TransientSendError as error:
            return await self._retry(row, error, is_uncertain=row.is_uncertain, retry_after_s=error.retry_after_s)
        except UncertainSendError as error:
            return await self._retry(row, error, is_uncertain=True)
        except asyncio.CancelledError:
            if is_cancelled_from_outside():
                raise
            return await self._retry(row, UncertainSendError("the adapter gave the send up"), is_uncertain=True)
        except Exception as error:  # noqa: BLE001 (an adapter broke its contract: nothing is known)
            _log.exception("adapter_fault", channel=adapter.name, message_id=row.message.id)
            return await self._retry(row, error, is_uncertain=True)
        reach("outbox.delivered")
        note(result="sent")
        await self._record(row, partial(self._store.record_sent, row.seq, receipt))
        _log.debug("reply_sent", message_id=row.message.id, text=row.message.text)
        self._on_sent(adapter.name)
        return None

    async def _deliver(self, adapter: ChannelAdapter, row: OutboxRow) -> Receipt:
        if not row.is_uncertain or adapter.capabilities.is_idempotent_send:
            return await adapter.send(row.message)
        if isinstance(adapter, SupportsSendLookup):
            found = await adapter.find_sent(row.message)
            return found if found is not None else await adapter.send(row.message)
        return await adapter.send(replace(row.message, text=REPEAT_NOTE + row.message.text))

    async def _retry(
        self, row: OutboxRow, error: Exception, *, is_uncertain: bool, retry_after_s: float | None = None
    ) -> float | None:
        reason = self.policy.hide(str(error) if isinstance(error, EthosError) else f"{type(error).__name__}: {error}")
        note(result="uncertain" if is_uncertain else "retry")
        if row.attempts >= self.policy.max_attempts:
            note(result="dead")
            await self._record(row, partial(self._store.record_dead, row.seq, reason))
            _log.error("reply_dead", message_id=row.message.id, attempts=row.attempts, error=reason)
            return None
        after_s = delay_s(row.attempts, first_s=self.policy.first_retry_s, longest_s=self.policy.longest_retry_s)
        after_s = max(after_s, retry_after_s or 0.0)
        record = partial(self._store.record_retry, row.seq, after_s=after_s, error=reason, is_uncertain=is_uncertain)
        await self._record(row, record)
        _log.warning("reply_retry", message_id=row.message.id, attempts=row.attempts, after_s=after_s, error=reason)
        return after_s

    async def _record(self, row: OutboxRow, record: Callable[[], Awaitable[None]]) -> None:
        """Write down what became of a reply; where that cannot be done now, it is done before the next claim."""
        self._unrecorded[row.message.conversation] = record
        await self._record_held(row.message.conversation)

    async def _record_held(self, conversation: ConversationRef) -> None:
        record = self._unrecorded.get(conversation)
        if record is not None:
            await record()
            reach("outbox.recorded")
            del self._unrecorded[conversation]
