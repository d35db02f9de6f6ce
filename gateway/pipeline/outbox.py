"""The outbox: replies wait here, committed, until their platform has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial

import structlog

from gateway.domain.channels import Channels
from gateway.domain.codes import without_codes
from gateway.errors import EthosError, PermanentSendError, StoreError, TransientSendError, UncertainSendError
from gateway.messages import ConversationRef, OutboundMessage, Receipt
from gateway.pipeline.delivery_retries import LATE_S, DeliveryRetries, in_words
from gateway.pipeline.queues import DeliveryPolicy, NotDue, OutboxRow, OutboxStore
from gateway.pipeline.scheduler import AGAIN, IDLE, FairQueue
from gateway.protocols import ChannelAdapter, SupportsSendLookup
from gateway.runtime.cancellation import is_cancelled_from_outside
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import note, stage

SENDERS = 64
# One channel, whose platform may be slow to say that it is down, leaves some to the others.
SENDERS_PER_CHANNEL = 48
AFTER_FAULT_S = 5.0
AFTER_BUSY_S = 1.0
VOICE = ".voice"
"""How the id of a voice note ends."""
QUIET_S = 20.0
_SECONDS_PER_HOUR = 3600.0
BESIDE = (VOICE, ".late", ".given-up")
"""How the ids of messages end that stand beside an answer: without them nothing of it is missing."""
# Said in front of a reply whose first copy may have arrived.
REPEAT_NOTE = "(This may be a repeat.) "

_log = structlog.get_logger(__name__)


class _NotHeld(Exception):
    """The channel is not held here any more, and nothing was sent."""


class NotYet(Exception):
    """A voice note cannot be made just now, because too many are being made; nothing was sent."""


class Outbox:
    """Sends replies in the order of their conversation, and records what became of each."""

    def __init__(self, store: OutboxStore, channels: Channels, policy: DeliveryPolicy) -> None:
        self._store = store
        self._channels = channels
        self.policy = policy
        self._queue = FairQueue(
            self._send_next,
            workers=SENDERS,
            after_fault_s=AFTER_FAULT_S,
            workers_of=lambda _channel: SENDERS_PER_CHANNEL,
        )
        self._held: dict[str, set[ConversationRef]] = {}
        self._sending: Counter[str] = Counter()
        self._retries = DeliveryRetries(self._queue, channels)
        self.next_send = asyncio.Event()
        """Set after the next try to send something; another one then stands in its place."""
        self._unrecorded: dict[ConversationRef, Callable[[], Awaitable[None]]] = {}
        self.tell_holder: Callable[[str], None] = lambda _channel: None
        """Told of a channel that another worker has, and whose replies wait."""
        self.on_given_up: Callable[[], object] = lambda: None
        """Called when a reply was given up, and that is on disk."""
        self.settle: Callable[[OutboundMessage], Awaitable[None]] = _nothing_shown
        """Awaited before a reply is sent: it ends what is being shown in its conversation for another worker."""
        self.fetched: Callable[[OutboundMessage], AbstractAsyncContextManager[OutboundMessage]] = nullcontext
        """Around the sending of a reply: gives it with files that another worker made."""
        self.voiced: Callable[[OutboxRow], Awaitable[OutboundMessage]] = _no_service
        """Makes the voice note of a row, before it is sent; raises `NotYet`, or what `send` raises."""
        self.not_sent: Callable[[OutboundMessage], Awaitable[None]] = _nothing_shown
        """Told of a voice note whose row is gone, so that nothing of it is left."""

    @property
    def troubles(self) -> Sequence[str]:
        """The channels that are up and take no replies, one line each, for people."""
        return self._retries.troubles

    def wake(self, conversation: ConversationRef) -> None:
        """Say that the conversation has a reply to send."""
        self._queue.wake(conversation, conversation.channel)

    def reaches(self, channel: str) -> bool:
        """Whether the channel is one that this gateway, or another worker, sends to."""
        return self._channels.capabilities(channel) is not None

    async def caught_up(self, conversation: ConversationRef) -> None:
        """Wait until nothing of the conversation is on its way, or waits to be tried again."""
        await self._queue.rested(conversation)

    def delivered_by_commit(self, replies: Sequence[OutboundMessage]) -> frozenset[str]:
        """The ids of replies that need no sending: the people of their channel read the log, which has them."""
        return frozenset(reply.id for reply in replies if self._shows_log(reply.conversation.channel))

    async def post(self, message: OutboundMessage) -> OutboundMessage:
        """Queue a message of no turn, once for its id, and have it sent; what stands under its id.

        Raises:
            StoreUnavailable: nothing was queued.
        """
        delivered = self.delivered_by_commit((message,))
        kept = await self._store.add(message, delivered=delivered)
        if not delivered:
            self.wake(message.conversation)
        else:
            await self.announce(kept.id, kept)
        return kept

    async def announce(self, turn_id: str, reply: OutboundMessage) -> None:
        """Tell the channel that the log has a new reply; its row was ended by the commit, so there is no receipt.

        Where the channel is down, its people read the log later.
        """
        adapter = self._channels.if_up(reply.conversation.channel)
        if adapter is None:
            return
        try:
            with stage("outbox.send", turn_id, reply.conversation, attempt=1):
                await adapter.send(reply)
                note(result="sent")
        except Exception as error:  # noqa: BLE001 (an adapter may break its contract)
            _log.error("adapter_fault", channel=adapter.name, message_id=reply.id, exc_info=error)
        else:
            _log.debug("reply_sent", message_id=reply.id, text=without_codes(reply))
            self._channels.delivered(adapter.name)
        self._tried()

    def _tried(self) -> None:
        tried, self.next_send = self.next_send, asyncio.Event()
        tried.set()

    def channel_is_up(self, channel: str) -> None:
        """Send what was held back while the channel was down."""
        for conversation in self._held.pop(channel, set()):
            self.wake(conversation)
        self._retries.retry_early(channel)

    async def quiet(self, channel: str, timeout_s: float = QUIET_S) -> None:
        """Wait until nothing is being sent through a channel, which must be held back, for so long at most."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._sending[channel]:
                    await self.next_send.wait()
        except TimeoutError:
            _log.warning("sends_given_up", channel=channel, waited_s=timeout_s)

    async def recover(self) -> int:
        """Take up what an earlier process left; returns how many replies it was sending when it died."""
        uncertain = await self._store.recover_replies()
        self._retries.recover(await self._store.put_off())
        for conversation, due_in_s in await self._store.unsent():
            self._queue.belongs(conversation, conversation.channel)
            self._queue.wake_in(conversation, due_in_s)
        return uncertain

    async def take_over(self, channel: str, epoch: int) -> None:
        """Take up what an earlier holder of the channel left: what it was sending is uncertain."""
        uncertain = await self._store.recover_replies(channel, epoch)
        if uncertain:
            _log.info("replies_taken_over", channel=channel, uncertain_replies=uncertain)
        await self.look(channel)

    async def look(self, channel: str) -> None:
        """Send what waits for a channel: other workers answered people there."""
        for conversation, due_in_s in await self._store.unsent(channel):
            self._queue.belongs(conversation, conversation.channel)
            self._queue.wake_in(conversation, due_in_s)

    async def run(self) -> None:
        """Send until cancelled."""
        await self._queue.run()

    async def drain(self, timeout_s: float) -> None:
        """Send what is due now, for so long at most."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.idle()
        except TimeoutError:
            _log.warning("replies_left", waited_s=timeout_s)

    async def _send_next(self, conversation: ConversationRef) -> float | None:
        adapter = self._channels.if_up(conversation.channel)
        if adapter is None:
            self._held.setdefault(conversation.channel, set()).add(conversation)
            if self._channels.is_elsewhere(conversation.channel):
                self.tell_holder(conversation.channel)
            return IDLE
        self._sending[conversation.channel] += 1
        retry_in_s: float | None = None
        try:
            await self._record_held(conversation)
            if self._retries.is_early(conversation):
                await self._store.make_reply_due(conversation)
                self._retries.no_longer_early(conversation)
            is_durable, epoch = not adapter.capabilities.is_idempotent_send, self._channels.epoch(conversation.channel)
            row = await self._store.claim_reply(conversation, is_durable=is_durable, epoch=epoch)
            if isinstance(row, NotDue):
                return row.due_in_s
            if row is not None:
                with stage("outbox.send", row.turn_id, conversation, attempt=row.attempts):
                    retry_in_s = await self._send(adapter, row)
        except StoreError as error:
            _log.error("outbox_store_failed", channel=conversation.channel, error=str(error))
            return AFTER_FAULT_S
        finally:
            self._sending[conversation.channel] -= 1
            self._tried()
        if retry_in_s is not None:
            return retry_in_s
        if row is not None and row.has_more:
            return AGAIN
        self._retries.rested(conversation)
        return IDLE

    async def _send(self, adapter: ChannelAdapter, row: OutboxRow) -> float | None:
        """Send one reply; the seconds until it is to be tried again, None when it is finished.

        A send that is cancelled stays marked as being sent: the next start takes it up as uncertain.
        """
        reach("outbox.claimed")
        await self.settle(row.message)
        try:
            row = await self._made(row)
            async with self.fetched(row.message) as message:
                with_files = row if message is row.message else replace(row, message=message)
                receipt = await self._deliver(adapter, with_files)
        except asyncio.CancelledError:
            if is_cancelled_from_outside():
                raise
            return await self._failed(adapter, row, UncertainSendError("the adapter gave the send up"))
        except _NotHeld as error:
            return await self._retry(row, 0.0, str(error), is_uncertain=row.is_uncertain, is_counted=False)
        except NotYet:
            return await self._retry(row, AFTER_BUSY_S, "", is_uncertain=False, is_counted=False)
        except Exception as error:  # noqa: BLE001 (an adapter may break its contract)
            return await self._failed(adapter, row, error)
        reach("outbox.delivered")
        note(result="sent")
        notice = _late_notice(row)
        await self._record(row, partial(self._store.record_sent, row, receipt, notice))
        _log.debug("reply_sent", message_id=row.message.id, text=without_codes(row.message))
        self._channels.delivered(adapter.name)
        self._retries.delivered(row.message.conversation)
        return None if notice is None else AGAIN

    async def _made(self, row: OutboxRow) -> OutboxRow:
        """With the voice note that the row is to be; it is kept with the row, so that it is made once."""
        if row.message.speech is None:
            return row
        reach("speech.saying")
        made = await self.voiced(row)
        if not await self._store.exchange(row, made):
            await self.not_sent(made)
            raise _NotHeld("the voice note is gone, or another worker has the channel")
        reach("speech.made")
        return replace(row, message=made, is_uncertain=False)  # nothing of it can have been sent before

    async def _failed(self, adapter: ChannelAdapter, row: OutboxRow, error: Exception) -> float | None:
        """The seconds until it is to be tried again, None when it is finished."""
        reason = self.policy.hide(str(error) if isinstance(error, EthosError) else f"{type(error).__name__}: {error}")
        is_repeatable = adapter.capabilities.is_idempotent_send or isinstance(adapter, SupportsSendLookup)
        if isinstance(error, PermanentSendError):
            return await self._give_up(row, reason, None)
        if isinstance(error, TransientSendError):
            return await self._postpone(row, reason, is_uncertain=row.is_uncertain, retry_after_s=error.retry_after_s)
        if isinstance(error, UncertainSendError) and is_repeatable:  # to try it again shows it once
            return await self._postpone(row, reason, is_uncertain=True, retry_after_s=None)
        if not isinstance(error, UncertainSendError):  # it broke its contract: nothing is known
            _log.error("adapter_fault", channel=adapter.name, message_id=row.message.id, exc_info=error)
        if row.attempts >= self.policy.max_attempts:  # perhaps it has arrived, so it is not repeated for ever
            return await self._give_up(row, reason, _given_up_notice(row))
        return await self._retry(row, self.policy.delay_s(row.attempts), reason, is_uncertain=True)

    def _shows_log(self, channel: str) -> bool:
        adapter = self._channels.if_up(channel)  # such a channel is every worker's own
        return adapter is not None and adapter.capabilities.shows_log

    async def _deliver(self, adapter: ChannelAdapter, row: OutboxRow) -> Receipt:
        if row.message.is_empty and not adapter.capabilities.shows_log:
            return Receipt(message_ids=())
        message = row.message
        if row.is_uncertain and not adapter.capabilities.is_idempotent_send:
            if not isinstance(adapter, SupportsSendLookup):
                message = replace(message, text=message.text and REPEAT_NOTE + message.text)
            elif (found := await adapter.find_sent(message)) is not None:
                return found
        # The process may have been paused since the claim.
        if not self._channels.is_still_held(adapter.name, row.epoch):
            raise _NotHeld("another worker has the channel")
        return await adapter.send(message)

    async def _postpone(
        self, row: OutboxRow, reason: str, *, is_uncertain: bool, retry_after_s: float | None
    ) -> float | None:
        """The platform cannot take it now, which is not the reply's fault: it is tried for as long as a day."""
        if (row.failing_s or 0.0) >= self.policy.give_up_after_h * _SECONDS_PER_HOUR:
            return await self._give_up(row, reason, _given_up_notice(row))
        after_s = self._retries.failed(row, self.policy, retry_after_s=retry_after_s, reason=reason)
        is_put_off = retry_after_s is None
        return await self._retry(
            row, after_s, reason, is_uncertain=is_uncertain, is_counted=False, is_put_off=is_put_off
        )

    async def _retry(
        self,
        row: OutboxRow,
        after_s: float,
        reason: str,
        *,
        is_uncertain: bool,
        is_counted: bool = True,
        is_put_off: bool = False,
    ) -> float:
        """Seconds until the reply is to be tried again, once that is written down; see `OutboxStore.record_retry`."""
        note(result="uncertain" if is_uncertain else "retry")
        record = partial(self._store.record_retry, row, after_s=after_s, error=reason, is_uncertain=is_uncertain)
        await self._record(row, partial(record, is_counted=is_counted, is_put_off=is_put_off))
        _log.warning("reply_retry", message_id=row.message.id, attempts=row.attempts, after_s=after_s, error=reason)
        return after_s

    async def _give_up(self, row: OutboxRow, reason: str, notice: OutboundMessage | None) -> float | None:
        """Make it a dead letter, and tell the person where there is a notice."""
        note(result="dead")
        channel = row.message.conversation.channel
        await self._record(row, partial(self._store.record_dead, row, reason, notice))
        self._retries.given_up(row.message.conversation)
        _log.error("reply_dead", channel=channel, message_id=row.message.id, attempts=row.attempts, error=reason)
        if row.message.speech is None:  # what was not even made is no fault of the channel
            self._channels.gave_up(channel, reason)
        self.on_given_up()
        return None if notice is None else AGAIN

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


async def _nothing_shown(_message: OutboundMessage) -> None:
    return


async def _no_service(_row: OutboxRow) -> OutboundMessage:
    raise PermanentSendError("the voice note was not made: no service for it is configured any more")


def _late_notice(row: OutboxRow) -> OutboundMessage | None:
    if row.failing_s is None or row.failing_s < LATE_S:
        return None
    waited = in_words(row.failing_s)
    return _notice(row, ".late", f"My last answer comes late: it could not be delivered here for {waited}.")


def _given_up_notice(row: OutboxRow) -> OutboundMessage | None:
    text = "I have an answer that I could not deliver, and have given it up. Please ask me again."
    return _notice(row, ".given-up", text)


def _notice(row: OutboxRow, name: str, text: str) -> OutboundMessage | None:
    """What the person is told of a reply; of a notice itself, or of a voice note, nothing is told."""
    if row.message.id.endswith(BESIDE):
        return None
    message = row.message
    return OutboundMessage(
        id=message.id + name, conversation=message.conversation, text=text, reply_to=message.reply_to
    )
