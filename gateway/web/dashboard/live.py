"""Tells open pages which parts of the gateway have changed, so that they fetch those anew; never what changed.

What happens is known from the same spans as the metrics (`gateway.observe`), and is listened to only while a page is
open. A reader holds a set of topics, so a thousand changes while it sleeps are one word to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack

from gateway.observe import Fact, Span, listening

TOPICS = ("channels", "deliveries", "memory", "messages", "people", "traces", "usage")
MAX_READERS = 256
HEARTBEAT_S = 25.0
# A busy gateway changes all the time, and a person does not read faster.
PAUSE_S = 0.5
RETRY_MS = 2000

# What may look different when a piece of work has ended.
_OF_WORK: Mapping[str, tuple[str, ...]] = {
    "inbox.accept": ("messages", "deliveries", "channels"),
    "turn": ("messages", "deliveries", "channels", "people", "usage", "memory"),
    "turn.bury": ("deliveries", "channels"),
    "outbox.send": ("messages", "deliveries", "channels"),
    "memory.sync": ("memory",),
    "memory.ingest": ("traces", "usage"),
    "channel.state": ("channels",),
    "store.failure": ("channels",),
    "people.changed": ("people",),
}


class _Reader:
    __slots__ = ("topics", "wake")

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.wake = asyncio.Event()


class Live:
    """The readers, and what they are still to be told."""

    def __init__(self) -> None:
        self._readers: set[_Reader] = set()
        self._listening = ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_full(self) -> bool:
        """Whether so many pages are open that there is no place for one more."""
        return len(self._readers) >= MAX_READERS

    def changed(self, *topics: str) -> None:
        """Tell all readers; from the event loop."""
        for reader in self._readers:
            reader.topics.update(topics)
            reader.wake.set()

    async def events(self) -> AsyncIterator[str]:
        """A stream of server-sent events, until it is closed. Each names topics, with a space between them."""
        reader = _Reader()
        self._join(reader)
        try:
            yield f"retry: {RETRY_MS}\n\n"
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.wake.wait(), HEARTBEAT_S)
                if not reader.topics:
                    yield ":\n\n"
                    continue
                await asyncio.sleep(PAUSE_S)  # what comes together is told together
                topics, reader.topics = sorted(reader.topics), set()
                reader.wake.clear()
                yield f"event: changed\ndata: {' '.join(topics)}\n\n"
        finally:
            self._leave(reader)

    def _join(self, reader: _Reader) -> None:
        if not self._readers:
            self._loop = asyncio.get_running_loop()
            self._listening.enter_context(listening(self))
        self._readers.add(reader)

    def _leave(self, reader: _Reader) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._listening.close()

    # ---- what happens ----------------------------------------------------------------------------------------------

    def began(self, span: Span) -> None:
        """Nothing is shown of what begins."""

    def ended(self, span: Span) -> None:
        """A piece of work has ended."""
        self._note(span.name)

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:  # noqa: ARG002 (a listener's signature)
        """Something happened, perhaps in another thread."""
        self._note(name)

    def _note(self, name: str) -> None:
        topics = _OF_WORK.get(name)
        if topics and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.changed, *topics)
