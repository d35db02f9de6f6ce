"""Tells open pages which parts of the gateway have changed, so that they fetch those again; never what changed.

What happens is known from the same spans as the metrics (`runtime/observe.py`), and is listened to only while a page is
open or has just been asked for. A reader holds a set of topics, so a thousand changes while it sleeps are one word to
it. A page is given the moment at which it was asked for, and says it when it begins to listen; so nothing is missed in
between, and nothing after a break.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from gateway.runtime.observe import Fact, Span, listening

_log = structlog.get_logger(__name__)

TOPICS = ("backups", "channels", "deliveries", "memory", "messages", "people", "repairs", "traces", "usage")
OF_PERSONS = ("memory", "messages", "usage")
"""What pages show that people who are no owners may open."""
STEADY_S = 15.0
MAX_READERS = 256
HEARTBEAT_S = 25.0
# A busy gateway changes all the time, and a person does not read faster.
PAUSE_S = 0.5
RETRY_MS = 2000
# Between two looks at files that people edit, while a page that shows one is open.
LOOK_S = 2.0
MAX_WATCHED = 64
# What lies elsewhere is asked for its version: of fewer, after so many looks at files, and never for long.
LOOKS_PER_QUESTION = 5
MAX_ASKED = 8
MOST_PATIENCE_S = 5.0
# A page that was asked for begins to listen within that time, or does so never.
LINGER_S = 30.0

TOPICS_OF: Mapping[str, tuple[str, ...]] = {
    "inbox.accept": ("messages", "deliveries", "channels"),
    "turn": ("messages", "deliveries", "channels", "people", "usage", "memory", "traces"),
    "turn.dead_letter": ("deliveries", "channels", "repairs"),
    "outbox.send": ("messages", "deliveries", "channels"),
    "outbox.dead": ("repairs",),
    "memory.sync": ("memory",),
    "memory.ingest": ("traces", "usage"),
    "memory.consolidated": ("traces",),
    "traces.changed": ("traces",),
    "schedule.fired": ("messages",),
    "channel.state": ("channels", "repairs"),
    "store.failure": ("channels", "repairs"),
    "people.changed": ("people",),
}
"""What may look different when a piece of work of that name has ended."""


_Look = tuple[int, int, int] | None


def _look(path: Path) -> _Look:
    """What shows that a file is another one or has other text; None: it cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@dataclass(frozen=True, slots=True)
class _Versioned:
    """What has a version, which somebody must be asked for."""

    topic: str
    seen: str
    ask: Callable[[], Awaitable[str]]


class _Reader:
    __slots__ = ("topics", "wake")

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.wake = asyncio.Event()


class Live:
    """The readers, and what each still has to receive."""

    def __init__(self, tell: Callable[..., object] = lambda *_topics: None) -> None:
        """`tell` has the topics that a page says have changed, for the pages of other processes."""
        self._tell = tell
        self._readers: set[_Reader] = set()
        self._listening: ExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._run = secrets.token_hex(4)
        self._moment = 0
        self._heard_from = 0
        self._changed_at: dict[str, int] = {}
        self._watched: dict[Path, tuple[str, _Look]] = {}
        self._asked: dict[Hashable, _Versioned] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether so many pages are open that there is no place for one more."""
        return len(self._readers) >= MAX_READERS

    def changed(self, *topics: str) -> None:
        """A page has changed something: tell all readers, everywhere; from the event loop."""
        self._tell(*topics)
        self.show(*topics)

    def show(self, *topics: str) -> None:
        """Tell the readers that are here."""
        self._moment += 1
        self._changed_at.update(dict.fromkeys(topics, self._moment))
        for reader in self._readers:
            reader.topics.update(topics)
            reader.wake.set()

    def moment_of(self, topic: str) -> int:
        """Of the last change of a topic; another number after each."""
        return self._changed_at.get(topic, 0)

    def watch(self, topic: str, *paths: Path) -> None:
        """Tell of a topic when one of these files changes, by an editor too. Of too many, the oldest are dropped."""
        for path in paths:
            self._watched.pop(path, None)
            self._watched[path] = topic, _look(path)
        while len(self._watched) > MAX_WATCHED:
            del self._watched[next(iter(self._watched))]

    def watch_version(self, topic: str, key: Hashable, seen: str, ask: Callable[[], Awaitable[str]]) -> None:
        """Tell of a topic when what `ask` answers is not `seen` any more; one is asked for each `key`."""
        self._asked.pop(key, None)
        self._asked[key] = _Versioned(topic, seen, ask)
        while len(self._asked) > MAX_ASKED:
            del self._asked[next(iter(self._asked))]

    async def _look_around(self) -> None:
        looks = 0
        while self._readers:
            await asyncio.sleep(LOOK_S)
            looks += 1
            await self._look_at_files()
            if looks % LOOKS_PER_QUESTION == 0:
                await self._ask_versions()
        self._looking = None

    async def _look_at_files(self) -> None:
        watched = dict(self._watched)
        found = await asyncio.to_thread(lambda paths: {path: _look(path) for path in paths}, list(watched))
        for path, look in found.items():
            topic, before = watched[path]
            if look != before and self._watched.get(path) == (topic, before):
                self._watched[path] = topic, look
                self.show(topic)

    async def _ask_versions(self) -> None:
        for key, asked in list(self._asked.items()):
            try:
                version = await asyncio.wait_for(asked.ask(), MOST_PATIENCE_S)
            except Exception as error:  # noqa: BLE001 (whatever is wrong there, it is asked again)
                _log.debug("version_unknown", topic=asked.topic, error=str(error))
                continue
            if version != asked.seen and self._asked.get(key) is asked:
                self._asked[key] = replace(asked, seen=version)
                self.show(asked.topic)

    def mark(self) -> str:
        """The moment of now, for a page that will listen soon; opaque."""
        self._listen()
        self._linger()
        return f"{self._run}-{self._moment}"

    async def events(self, after: str = "") -> AsyncGenerator[bytes]:
        """A stream of server-sent events, until it is closed. Each names topics, with a space between them.

        Args:
            after: the moment up to which the page knows everything.
        """
        reader = _Reader()
        self._listen()
        self._readers.add(reader)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_around(), name="look at files")
        reader.topics |= self._missed(after)
        if reader.topics:
            reader.wake.set()
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.wake.wait(), HEARTBEAT_S)
                if not reader.topics:
                    yield b":\n\n"
                    continue
                await asyncio.sleep(PAUSE_S)  # changes that come together are sent together
                topics, reader.topics = sorted(reader.topics), set()
                reader.wake.clear()
                yield f"id: {self._run}-{self._moment}\nevent: changed\ndata: {' '.join(topics)}\n\n".encode()
        finally:
            self._readers.discard(reader)
            self._linger()

    async def steady(self) -> AsyncGenerator[bytes]:
        """The stream for a person who sees only their own: everything is to be looked at again from time to time.

        It does not hang on what happens, so it says nothing about what others do, and when.
        """
        reader = _Reader()
        self._readers.add(reader)
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while True:
                await asyncio.sleep(STEADY_S)
                yield f"event: changed\ndata: {' '.join(OF_PERSONS)}\n\n".encode()
        finally:
            self._readers.discard(reader)

    def close(self) -> None:
        """Stop listening, also for readers that come later."""
        if self._leaving is not None:
            self._leaving.cancel()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _missed(self, after: str) -> set[str]:
        """What has changed since a moment; everything, where there were times without a listener."""
        run, _, number = after.partition("-")
        if run != self._run or not number.isdecimal() or int(number) < self._heard_from:
            return set(TOPICS) if after else set()
        return {topic for topic, moment in self._changed_at.items() if moment > int(number)}

    def _listen(self) -> None:
        if self._listening is None:
            self._loop = asyncio.get_running_loop()
            self._moment += 1
            self._heard_from = self._moment
            self._listening = ExitStack()
            self._listening.enter_context(listening(self))

    def _linger(self) -> None:
        """Listen on for a while, for those who come at once."""
        if self._leaving is not None:
            self._leaving.cancel()
        self._leaving = asyncio.get_running_loop().call_later(LINGER_S, self._stop)

    def _stop(self) -> None:
        if not self._readers:
            self.close()

    # ---- what happens ----------------------------------------------------------------------------------------------

    def began(self, span: Span) -> None:
        """Do nothing: a page shows what has ended."""

    def ended(self, span: Span) -> None:
        """A piece of work has ended."""
        self._note(span.name)
        if span.facts.get("result") == "dead":
            self._note("outbox.dead")

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:  # noqa: ARG002 (a listener's signature)
        """Something happened, perhaps in another thread."""
        self._note(name)

    def _note(self, name: str) -> None:
        topics = TOPICS_OF.get(name)
        if topics and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.show, *topics)
