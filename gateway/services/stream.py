"""What the reader of a conversation receives: the log behind their place, then what is new.

The log is the only source of messages: a push says that there is news, and the stream reads on from its place. So
however pushes, reads and reconnects fall together, each message comes once and in order, and a slow reader costs no
memory: of what is shown in passing only the newest is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from gateway.messages import ConversationRef, OutboundMessage
from gateway.pipeline.local_channel import LocalChannel, ToolStep
from gateway.protocols import ConversationLog, LogEntry
from gateway.sdk.models import chat as wire
from gateway.sdk.models.schema import ApiModel

PAGE_ENTRIES = 200
MAX_PASSING = 64
HEARTBEAT_S = 15.0
HIDDEN_STATES = frozenset({"dropped"})


class PlacedLog(ConversationLog, Protocol):
    """A log that knows where its newest entries begin, without reading them."""

    async def place_before(self, conversation: ConversationRef, *, newest: int) -> int:
        """Behind which cursor the newest so many entries are; 0 where there are no more."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `place` where a reader that comes again goes on behind it, None for what is shown in passing."""

    name: wire.EventName
    data: ApiModel
    place: int | None = None


class ConversationStream:
    """One reader's view of one conversation; a `Watcher`.

    Args:
        after: the place of the last message that the reader has; 0 begins at the beginning.
        last: with how many of the newest messages to begin where `after` is None, or is no place of this conversation;
            None: with all.
    """

    def __init__(
        self,
        log: PlacedLog,
        conversation: ConversationRef,
        *,
        after: int | None,
        last: int | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._log = log
        self._conversation = conversation
        self._after = after
        self._last = last
        self._place = 0
        self._heartbeat_s = heartbeat_s
        self._wake = asyncio.Event()
        self._has_news = True
        self._is_ended = False
        self._previews: dict[str, OutboundMessage] = {}
        self._shown: dict[str, str] = {}
        self._passing: deque[Event] = deque(maxlen=MAX_PASSING)

    # ---- what happens ----------------------------------------------------------------------------------------------

    def has_news(self) -> None:
        """The log has something new."""
        self._has_news = True
        self._wake.set()

    def show_preview(self, message: OutboundMessage) -> None:
        """The answer so far."""
        self._previews.pop(message.id, None)
        self._previews[message.id] = message
        while len(self._previews) > MAX_PASSING:
            del self._previews[next(iter(self._previews))]
        self._wake.set()

    def show_typing(self) -> None:
        """An answer is on its way."""
        self._pass(Event("typing", wire.Typing()))

    def show_tool(self, step: ToolStep) -> None:
        """The agent uses a tool."""
        self._pass(Event("tool", wire.Tool(tool=step.tool, state=step.state, is_ok=step.is_ok)))

    def end(self) -> None:
        """Let the reader go; it reconnects."""
        self._is_ended = True
        self._wake.set()

    # ---- what it tells ----------------------------------------------------------------------------------------------

    async def events(self, channel: LocalChannel) -> AsyncIterator[Event | None]:
        """Everything, until it is ended or the reader leaves; None is a sign of life.

        Raises:
            StoreError: the log cannot be read now.
        """
        with channel.watched(self._conversation, self):
            self._place, is_other = await self._beginning()
            if is_other:
                yield Event("reset", wire.Reset())
            is_live = False
            while not self._is_ended:
                self._wake.clear()
                while self._has_news and not self._is_ended:
                    self._has_news = False  # before the read: whatever is committed after it says so again
                    entries = await self._log.read(self._conversation, after=self._place, limit=PAGE_ENTRIES)
                    for entry in entries:
                        self._place = entry.cursor
                        self._previews.pop(entry.id, None)
                        self._shown.pop(entry.id, None)
                        if entry.state not in HIDDEN_STATES:
                            yield Event("message", said(entry), entry.cursor)
                    self._has_news = self._has_news or len(entries) == PAGE_ENTRIES
                if not is_live:
                    is_live = True
                    yield Event("live", wire.Live(sequence=self._place), self._place)
                while self._passing:
                    yield self._passing.popleft()
                while self._previews and not self._has_news:
                    yield Event("preview", self._growth(next(iter(self._previews))))
                if not await self._woken():
                    yield None

    def _growth(self, message_id: str) -> wire.Preview:
        """What the reader has not seen yet of a preview, so that a long answer is not sent again with every word."""
        message, before = self._previews.pop(message_id), self._shown.pop(message_id, "")
        text = message.text
        offset = len(before) if text.startswith(before) else _common_chars(before, text)
        if text:
            self._shown[message_id] = text
        while len(self._shown) > MAX_PASSING:
            del self._shown[next(iter(self._shown))]
        return wire.Preview(id=message_id, reply_to=message.reply_to, offset=offset, delta=text[offset:])

    def _pass(self, event: Event) -> None:
        self._passing.append(event)
        self._wake.set()

    async def _beginning(self) -> tuple[int, bool]:
        """Behind which place to begin, and whether `after` is none of this conversation: an older log was restored."""
        is_other = False
        if self._after is not None:
            is_other = self._after > await self._log.place_before(self._conversation, newest=0)
            if not is_other:
                return self._after, False
        place = 0 if self._last is None else await self._log.place_before(self._conversation, newest=self._last)
        return place, is_other

    async def _woken(self) -> bool:
        """Wait for something to tell; False when it is time for a sign of life."""
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True


def _common_chars(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))


def said(entry: LogEntry) -> wire.ChatMessage:
    """An entry of the log, as those who watch receive it."""
    return wire.ChatMessage(
        id=entry.id,
        sequence=entry.cursor,
        author="person" if entry.direction == "in" else "agent",
        text=entry.text,
        at=entry.at,
        reply_to=entry.reply_to,
        choices=tuple(wire.Choice(label=action.label, text=f"/{action.id}") for action in entry.actions),
        has_failed=entry.state == "dead",
        turn=entry.turn_id,
        files=tuple(
            wire.SentFile(filename=file.filename, media_type=file.media_type, size_bytes=file.size_bytes)
            for file in entry.attachments
        ),
    )
