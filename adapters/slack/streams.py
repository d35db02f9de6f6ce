"""Chat streams: previews to which Slack lets us add text.

The rules: https://docs.slack.dev/reference/methods/chat.startStream, chat.appendStream and chat.stopStream. A stream is
a reply in a thread; outside of direct chats it is written for one person, the others see its beginning and its end. It
can only be added to. While it is open it can be neither edited (`streaming_state_conflict`) nor removed
(`cant_delete_message`), and it dies about five minutes after its start even when it is busy
(slackapi/python-slack-sdk#1859): so it is stopped before, and from then on it is an ordinary message that is edited.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from adapters.slack import render
from adapters.slack.client import SlackClient
from adapters.slack.convert import Installation
from adapters.slack.errors import Refused
from adapters.slack.render import metadata_for
from gateway.errors import SendError, TransientSendError
from gateway.messages import InboundMessage, OutboundMessage

ROTATE_S = 240.0
_MAX_STARTS = 15  # a minute; starting and stopping are Tier 2, "20+ per minute", for the whole workspace
_MINUTE_S = 60.0
_MAX_RECIPIENTS = 1_000
# These are about the app or its token, so they would be the same for every stream.
_NEVER = {
    "missing_scope", "unknown_method", "method_deprecated", "not_allowed_token_type", "invalid_stream_arguments",
    "feature_not_enabled", "no_permission",
}  # fmt: skip

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Stream:
    """An open stream.

    Attributes:
        sent: what Slack has of its text.
        ending: the task that stops it before Slack does.
    """

    channel: str
    ts: str
    sent: str
    ending: asyncio.Task[None] | None = field(default=None, repr=False)


class Streams:
    """The open streams of this process, by the id of the message; after `ROTATE_S` each becomes an ordinary message."""

    def __init__(self, client: SlackClient, *, is_on: bool) -> None:
        self._client, self._rotate_s = client, ROTATE_S
        self._is_on, self._is_refused = is_on, False
        self._open: dict[str, Stream] = {}
        self._recipients: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()
        self._starts: deque[float] = deque()
        self._paused_until_s = 0.0
        self._installed: Installation | None = None

    def open(self, app: Installation) -> None:
        """We are connected; the app's permissions may have changed."""
        self._installed, self._is_refused = app, False

    def remember_recipient(self, message: InboundMessage) -> None:
        """Remember who wrote a message in a thread: the answer can be streamed to them."""
        if message.conversation.thread is None:
            return
        team, _, user = message.sender.user.partition("/")
        self._recipients[message.conversation.conversation, message.id] = (team, user)
        while len(self._recipients) > _MAX_RECIPIENTS:
            self._recipients.popitem(last=False)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._open

    def has(self, ts: str) -> bool:
        """One of the open streams has this `ts`."""
        return any(stream.ts == ts for stream in self._open.values())

    def can_stream(self, message: OutboundMessage) -> bool:
        """A stream for this message is allowed now, as far as we know."""
        where = message.conversation
        has_reader = where.conversation.startswith("D") or self._recipient(message) is not None
        is_allowed = self._is_on and not self._is_refused
        return is_allowed and where.thread is not None and has_reader and self._has_start_left()

    def _has_start_left(self) -> bool:
        now = time.monotonic()
        while self._starts and now - self._starts[0] >= _MINUTE_S:
            self._starts.popleft()
        return now >= self._paused_until_s and len(self._starts) < _MAX_STARTS

    async def start(self, message: OutboundMessage, text: str) -> str | None:
        """Open one with its first words; returns its `ts`, None where Slack refuses. May raise UncertainSendError."""
        conversation = message.conversation
        sent = render.escaped_prefix(text)
        self._starts.append(time.monotonic())
        try:
            ts = await self._client.start_stream(
                conversation.conversation, conversation.thread or "", self._recipient(message), sent
            )
        except Refused as error:
            if error.code in _NEVER:
                self._is_refused = True
                _log.info("answers are not streamed, but edited as they grow: %s", error)
            return None
        except TransientSendError as error:
            self._paused_until_s = time.monotonic() + (error.retry_after_s or _MINUTE_S)
            return None
        stream = self._open[message.id] = Stream(conversation.conversation, ts, sent)
        stream.ending = asyncio.create_task(self._rotate(message.id, stream), name="slack stream")
        return ts

    async def append(self, message_id: str, text: str) -> bool:
        """Extend an open stream to this text; False where that is not possible. May raise TransientSendError."""
        stream = self._open.get(message_id)
        rest = None if stream is None else missing_text(stream, render.escaped_prefix(text))
        if stream is None or rest is None:
            return False
        if not rest:
            return True
        try:
            await self._client.append_stream(stream.channel, stream.ts, rest)
        except TransientSendError:
            raise
        except SendError:
            return False  # it has ended, or the text may have been added already
        stream.sent += rest
        return True

    def pop(self, message_id: str) -> Stream | None:
        """Remove a stream; the caller stops it."""
        stream = self._open.pop(message_id, None)
        if stream is not None and stream.ending is not None:
            stream.ending.cancel()
        return stream

    async def close(self) -> None:
        """Forget all; their messages are completed by the next process, which stops them first."""
        endings = [stream.ending for stream in map(self.pop, list(self._open)) if stream is not None]
        tasks = [task for task in endings if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def _rotate(self, message_id: str, stream: Stream) -> None:
        """Stop the stream in time; the next preview may be minutes away."""
        await asyncio.sleep(self._rotate_s)
        if self._open.get(message_id) is stream:
            del self._open[message_id]
            with contextlib.suppress(SendError):  # tried again when the message is completed
                end = {"metadata": metadata_for(message_id, 0, is_final=False)}
                await self._client.stop_stream(stream.channel, stream.ts, end)

    def _recipient(self, message: OutboundMessage) -> tuple[str, str] | None:
        found = self._recipients.get((message.conversation.conversation, message.reply_to or ""))
        if found is None or self._installed is None:
            return None
        team, user = found
        return (self._installed.team if team == self._installed.organisation else team, user)


def missing_text(stream: Stream, text: str) -> str | None:
    """What the stream lacks of the escaped text; None when it has other text."""
    return text[len(stream.sent) :] if text.startswith(stream.sent) else None
