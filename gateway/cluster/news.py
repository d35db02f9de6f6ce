"""What one process tells the others: a hint that there is something to look at, or a preview.

Everything told is also in a table, or may be lost; so whatever cannot be sent is dropped. The own process does not hear
its own news: it is reached first and directly.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, get_args

import structlog

Kind = Literal[
    "work",  # a conversation may be claimed
    "replies",  # `channel` has replies to send, for its holder
    "log",  # a conversation has a new entry
    "preview",  # what a turn writes, for the channel's holder and open pages
    "typing",
    "tool",
    "topics",  # which parts of the dashboard changed
    "stop",  # a lane is to be stopped, or a `channel` to be let go of
    "reload",  # the configuration is to be read again
    "released",  # a `lease` was given back
    "changed",  # people, documents or accounts, by what is kept of them
    "handed",  # a call for the holder of `channel` is kept under `id`
    "taken",  # what became of it
    "answer",  # a person's answer to a server is kept under `id`, for the worker in whose call it waits
    "outcome",  # what came of it is
]
KINDS = frozenset(get_args(Kind))
# PostgreSQL takes less than 8 000 bytes, https://www.postgresql.org/docs/15/sql-notify.html.
MAX_BYTES = 7_500
# So long what is told waits for more that goes with it.
JOIN_S = 0.005
# What is told faster than it can be sent is dropped.
_MOST_WAITING = 10_000

Act = Callable[[dict[str, Any]], None]

_log = structlog.get_logger(__name__)


class News(Protocol):
    """Tells the other workers, and hears them. Neither waits, and neither fails."""

    @property
    def is_heard(self) -> bool:
        """Whether what others tell comes here at once; else one has to look."""

    def tell(self, kind: Kind, **what: Any) -> None:
        """Tell the others; `what` is made of JSON."""

    def on(self, kind: Kind, act: Act) -> None:
        """Have this done, quickly, with what another worker tells."""


class NewsBus(Protocol):
    """Carries texts from one process to all others."""

    async def open(self) -> None:
        """Connect, and see that what is sent comes back.

        Raises:
            StoreUnavailable: it does not, and why.
        """

    async def close(self) -> None:
        """Let go of it. Idempotent."""

    async def send(self, texts: Sequence[str]) -> None:
        """Send texts of at most `MAX_BYTES`; those that cannot be sent are dropped."""

    async def run(self, heard: Callable[[str], None]) -> None:
        """Hand over what comes, also what this process sent, until cancelled."""

    @property
    def is_heard(self) -> bool:
        """Whether what others send comes here now."""

    @property
    def gaps(self) -> int:
        """How often it did not for a while, however short: what was sent meanwhile was missed."""


class NoOthers:
    """The only worker has nobody to tell, and misses nothing."""

    is_heard = True

    def tell(self, kind: Kind, **what: Any) -> None:
        """Nobody listens."""

    def on(self, kind: Kind, act: Act) -> None:
        """Nobody tells anything."""


class NoBus:
    """Between workers that look for themselves."""

    is_heard = False
    gaps = 0

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Nothing is to be closed."""

    async def send(self, texts: Sequence[str]) -> None:
        """Nothing is told."""

    async def run(self, heard: Callable[[str], None]) -> None:  # noqa: ARG002 (nothing is heard)
        """Until cancelled."""
        await asyncio.get_running_loop().create_future()


class SharedNews:
    """Over a bus: what is told within `JOIN_S` goes together, and the same thing once."""

    def __init__(self, bus: NewsBus, worker: str) -> None:
        """`worker` is the id of this process."""
        self._bus = bus
        self._worker = worker
        self._acts: defaultdict[str, list[Act]] = defaultdict(list)
        self._waiting: dict[str, None] = {}
        self._is_told = asyncio.Event()

    @property
    def is_heard(self) -> bool:
        """As the bus says."""
        return self._bus.is_heard

    def on(self, kind: Kind, act: Act) -> None:
        """Have it done, and whatever else is to be done then."""
        self._acts[kind].append(act)

    def tell(self, kind: Kind, **what: Any) -> None:
        """Put it where the next sending takes it from."""
        text = json.dumps({"news": kind, **what}, ensure_ascii=False, separators=(",", ":"))
        text = text.encode("utf-8", "replace").decode()  # half a character cannot be sent
        if len(self._waiting) < _MOST_WAITING:
            self._waiting[text] = None
            self._is_told.set()

    async def run(self) -> None:
        """Send and hear until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(), name="news that are told")
            tasks.create_task(self._bus.run(self._hear), name="news that are heard")

    @property
    def is_waiting(self) -> bool:
        """Whether something was told that was not sent yet."""
        return bool(self._waiting)

    async def flush(self) -> None:
        """Send now what waits: the last thing that a process does."""
        told, self._waiting = [*self._waiting], {}
        if texts := [*self._joined(told)]:
            await self._bus.send(texts)

    async def _send(self) -> None:
        while True:
            await self._is_told.wait()
            await asyncio.sleep(JOIN_S)
            self._is_told.clear()
            await self.flush()

    def _joined(self, told: Sequence[str]) -> Iterator[str]:
        """As few texts as hold all; what is too long alone is left out."""
        head = f'{{"from":{json.dumps(self._worker)},"told":['
        text, size = "", 0
        room = MAX_BYTES - len(head) - len("]}")
        for one in told:
            one_size = len(one.encode())
            if one_size > room:
                _log.debug("news_too_long", size_bytes=one_size)
                continue
            if text and size + 1 + one_size > room:
                yield f"{head}{text}]}}"
                text, size = "", 0
            text, size = (f"{text},{one}", size + 1 + one_size) if text else (one, one_size)
        if text:
            yield f"{head}{text}]}}"

    def _hear(self, text: str) -> None:
        """Do what is to be done; other programs may use the same channel, and newer workers tell other things."""
        try:
            message = json.loads(text)
            sender, told = message["from"], message["told"]
            known = [one for one in told if one["news"] in KINDS]
        except (ValueError, TypeError, KeyError):
            _log.debug("news_not_understood", text=text[:100])
            return
        if sender == self._worker:
            return
        for one in known:
            for act in self._acts[one["news"]]:
                try:
                    act(one)
                except Exception:  # noqa: BLE001 (a worker may tell what another version does not expect)
                    _log.exception("news_fault", news=one["news"])
