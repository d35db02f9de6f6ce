"""When replies that a platform did not take are tried again, and which channels take none."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from gateway.domain.channels import Channels
from gateway.messages import ConversationRef
from gateway.pipeline.queues import DeliveryPolicy, OutboxRow
from gateway.pipeline.scheduler import FairQueue

# Where one reply goes out, or the channel comes up, those that were put off are tried at once: no more often than this.
EARLY_S = 30.0
# After so long without success the person is told of a reply, and the operator of a channel.
LATE_S = 3600.0
# A platform's own word on when to come back counts for so long at most.
LONGEST_PAUSE_S = 7 * 24 * 3600.0
_SECONDS_PER_MINUTE = 60.0
_SECONDS_PER_HOUR = 3600.0


class DeliveryRetries:
    """Counts the failures of platforms, and wakes conversations early when their channel works again."""

    def __init__(self, queue: FairQueue, channels: Channels) -> None:
        self._queue = queue
        self._channels = channels
        self._failures: Counter[ConversationRef] = Counter()  # in a row
        self._put_off: dict[str, set[ConversationRef]] = {}  # by channel: to be tried again when it takes another
        self._early: set[ConversationRef] = set()  # of these, whose time has come early
        self._retried_early_at_s: dict[str, float] = {}
        self._will_retry_early: set[str] = set()
        self._troubles: dict[str, tuple[float, str]] = {}  # by channel: since when, and why

    @property
    def troubles(self) -> Sequence[str]:
        """The channels that are up and take no replies, one line each, for people."""
        now_s = time.monotonic()
        return [
            f"{channel} has taken no reply for {in_words(now_s - since_s)}, all are kept and tried again: {reason}"
            for channel, (since_s, reason) in self._troubles.items()
            if self._channels.if_up(channel) is not None
        ]

    def recover(self, put_off: Iterable[ConversationRef]) -> None:
        """Take over what an earlier process had put off."""
        for conversation in put_off:
            self._put_off.setdefault(conversation.channel, set()).add(conversation)

    def failed(self, row: OutboxRow, policy: DeliveryPolicy, *, retry_after_s: float | None, reason: str) -> float:
        """Note that the platform did not take a reply; the seconds until it is to be tried again.

        Args:
            retry_after_s: the platform's own word on that.
        """
        where = row.message.conversation
        if where not in self._failures:  # of those before the last start nothing is left but the time that they took
            self._failures[where] = int((row.failing_s or 0.0) / policy.first_retry_s).bit_length()
        self._failures[where] += 1
        pause_s = min(retry_after_s or 0.0, LONGEST_PAUSE_S)
        if retry_after_s is None:
            self._put_off.setdefault(where.channel, set()).add(where)
        else:
            self._put_off.get(where.channel, set()).discard(where)
        if retry_after_s is None or pause_s >= LATE_S:
            self._troubles[where.channel] = (self._troubles.get(where.channel, (time.monotonic(),))[0], reason)
        return max(policy.delay_s(self._failures[where]), pause_s)

    def given_up(self, conversation: ConversationRef) -> None:
        """Note that its reply is tried no more."""
        self._failures.pop(conversation, None)

    def delivered(self, conversation: ConversationRef) -> None:
        """Note that its channel works; what was put off there is tried early."""
        self._finished(conversation)
        self._troubles.pop(conversation.channel, None)
        self.retry_early(conversation.channel)

    def rested(self, conversation: ConversationRef) -> None:
        """Note that nothing waits there any more: it is no sign of a channel that takes no replies."""
        channel = conversation.channel
        self._finished(conversation)
        if channel in self._troubles and not any(failing.channel == channel for failing in self._failures):
            del self._troubles[channel]

    def is_early(self, conversation: ConversationRef) -> bool:
        """Whether its reply is to be tried before its time; `no_longer_early` once it is due in the store."""
        return conversation in self._early

    def no_longer_early(self, conversation: ConversationRef) -> None:
        """Note that its reply is due in the store, too."""
        self._early.discard(conversation)

    def retry_early(self, channel: str) -> None:
        """Try at once what was put off; where that was done a moment ago, a little later."""
        if not self._put_off.get(channel) or channel in self._will_retry_early:
            return
        now_s = time.monotonic()
        wait_s = self._retried_early_at_s.get(channel, -EARLY_S) + EARLY_S - now_s
        if wait_s > 0:
            self._will_retry_early.add(channel)
            asyncio.get_running_loop().call_later(wait_s, self._retry_early_after_pause, channel)
            return
        self._retried_early_at_s[channel] = now_s
        for conversation in self._put_off.pop(channel):
            self._early.add(conversation)
            self._queue.wake(conversation, channel)

    def _retry_early_after_pause(self, channel: str) -> None:
        self._will_retry_early.discard(channel)
        self.retry_early(channel)

    def _finished(self, conversation: ConversationRef) -> None:
        self._failures.pop(conversation, None)
        self._put_off.get(conversation.channel, set()).discard(conversation)


def in_words(seconds: float) -> str:
    """A time for people."""
    if seconds < 2 * _SECONDS_PER_HOUR:
        return f"{max(1, round(seconds / _SECONDS_PER_MINUTE))} min"
    return f"{round(seconds / _SECONDS_PER_HOUR)} hours"
