"""What an open page receives: the log after its cursor, then what is new, with nothing lost or repeated.

The log is the only source of messages. A push only says that there is news, and the stream reads on from its cursor;
so however pushes, reads and reconnects fall together, each entry is sent once and in order, and a slow page costs no
memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from adapters.web.convert import entry_to_event, to_event, to_html
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import ConversationLog, LogEntry

PAGE_ENTRIES = 200
MAX_PREVIEWS = 8
HEARTBEAT_S = 15.0
PREVIEW_REST = 9
"""A preview is rendered after a rest of this many times what the last one took: at most a tenth of the time."""

_HIDDEN_STATES = frozenset({"dropped"})
_HEARTBEAT = b": still here\n\n"


class EventStream:
    """One page's view of one conversation.

    Args:
        after: the cursor of the last entry that the page has; None begins with the newest entries.
        last: how many of the newest entries to begin with.
    """

    def __init__(
        self,
        log: ConversationLog,
        conversation: ConversationRef,
        *,
        after: int | None,
        last: int = PAGE_ENTRIES,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._log = log
        self._conversation = conversation
        self._after = after
        self._last = last
        self._heartbeat_s = heartbeat_s
        self._wake = asyncio.Event()
        self._has_news = False
        self._is_typing = False
        self._is_ended = False
        self._previews: dict[str, str] = {}
        self._preview_not_before_s = 0.0

    # ---- what the adapter calls -------------------------------------------------------------------------------------

    def notify(self) -> None:
        """The log has something new."""
        self._has_news = True
        self._wake.set()

    def show_preview(self, message: OutboundMessage) -> None:
        """The latest text wins; beyond a few answers at once, the oldest is left out."""
        self._previews.pop(message.id, None)
        self._previews[message.id] = message.text
        if len(self._previews) > MAX_PREVIEWS:
            del self._previews[next(iter(self._previews))]
        self._wake.set()

    def show_typing(self) -> None:
        """Somebody works on an answer."""
        self._is_typing = True
        self._wake.set()

    def end(self) -> None:
        """Stop; the page comes again."""
        self._is_ended = True
        self._wake.set()

    # ---- what the page receives -------------------------------------------------------------------------------------

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The events, until `end`.

        Raises:
            EthosError: the log cannot be read now.
        """
        yield b"retry: 1000\n" + _HEARTBEAT
        cursor = self._after
        if cursor is not None and await self._newest_cursor() < cursor:
            cursor = None
            yield to_event("reset", {})
        is_whole = True
        if cursor is None:
            entries = await self._log.read(self._conversation, limit=self._last, newest=True)
            is_whole = len(entries) < self._last
            cursor = 0
            if entries:
                yield await self._events_of(entries)
                cursor = entries[-1].cursor
        is_live = False
        self._has_news = True  # what came while the history was read
        while not self._is_ended:
            self._wake.clear()
            while self._has_news and not self._is_ended:
                self._has_news = False  # before the read: whatever is committed after it says so again
                entries = await self._log.read(self._conversation, after=cursor, limit=PAGE_ENTRIES)
                if entries:
                    yield await self._events_of(entries)
                    cursor = entries[-1].cursor
                self._has_news = self._has_news or len(entries) == PAGE_ENTRIES
            if not is_live:
                is_live = True
                yield to_event("live", {"is_whole": is_whole})
            passing = await self._passing_events()
            if passing:
                yield passing
            if not await self._woken():
                yield _HEARTBEAT

    async def _newest_cursor(self) -> int:
        newest = await self._log.read(self._conversation, limit=1, newest=True)
        return newest[-1].cursor if newest else 0

    async def _events_of(self, entries: Sequence[LogEntry]) -> bytes:
        """In a thread: a long answer takes a while to render, and everybody else is served in the same event loop."""
        for entry in entries:
            self._previews.pop(entry.id, None)
        shown = [entry for entry in entries if entry.state not in _HIDDEN_STATES]
        return await asyncio.to_thread(lambda: b"".join(map(entry_to_event, shown)))

    async def _passing_events(self) -> bytes:
        """What is shown now and kept nowhere."""
        events = []
        if self._is_typing:
            self._is_typing = False
            events.append(to_event("typing", {}))
        if self._previews and time.monotonic() >= self._preview_not_before_s:
            previews, self._previews = self._previews, {}
            started_s = time.monotonic()
            for message_id, text in previews.items():
                html = await asyncio.to_thread(to_html, text) if text else ""
                events.append(to_event("preview", {"id": message_id, "html": html}))
            ended_s = time.monotonic()
            self._preview_not_before_s = ended_s + PREVIEW_REST * (ended_s - started_s)
        return b"".join(events)

    async def _woken(self) -> bool:
        """Wait for something to do; False when it is time for a sign of life."""
        rest_s = self._preview_not_before_s - time.monotonic() if self._previews else self._heartbeat_s
        try:
            async with asyncio.timeout(max(rest_s, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return bool(self._previews)
        return True


class Audience:
    """The streams that are open now, by conversation."""

    def __init__(self) -> None:
        self._streams: dict[ConversationRef, set[EventStream]] = {}

    @contextmanager
    def joined(self, conversation: ConversationRef, stream: EventStream) -> Iterator[None]:
        """Hold the stream open; it must be entered before the log is read."""
        self._streams.setdefault(conversation, set()).add(stream)
        try:
            yield
        finally:
            streams = self._streams[conversation]
            streams.discard(stream)
            if not streams:
                del self._streams[conversation]

    def of(self, conversation: ConversationRef) -> tuple[EventStream, ...]:
        """The pages that show this conversation."""
        return tuple(self._streams.get(conversation, ()))

    def end(self) -> None:
        """End them all."""
        for streams in self._streams.values():
            for stream in streams:
                stream.end()
