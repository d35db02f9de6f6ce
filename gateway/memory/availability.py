"""Whether the memory can be used: its calls have a time limit, and while it is away it is asked in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, cast

import structlog

from gateway.errors import EthosError, MemoryUnavailable
from gateway.protocols import MemoryProvider
from gateway.runtime.backoff import delay_s

TIMEOUT_S = 2.0
FIRST_PROBE_S = 2.0
LONGEST_PROBE_S = 60.0
# Calls that did not end when they were told to; with so many, no further one is begun in the background.
MAX_ABANDONED = 4
# Of a `MemoryProvider`, and of an `EditableMemory`, a `HistoricMemory` and a `SearchableMemory`.
_ASKED_BY_PEOPLE = (
    *("prefetch", "sync", "read", "write", "search"),
    *("log", "change", "texts", "why", "difference", "undo", "restore"),
)
# These take as long as they take, and run as jobs that are tried again; or they ask no server.
_AS_THEY_ARE = ("erase", "export", "unite", "part", "file_of")

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class NotInTime(MemoryUnavailable):
    """The memory did not answer within its time; what was asked of it may still be done."""


class Availability:
    """Knows whether the memory answers.

    While it is known to be down no turn waits for it. A background task asks it again, first at once, then after 2 to
    60 s, and the first answer makes it up again.
    """

    def __init__(self, probe: Callable[[], Awaitable[object]], *, timeout_s: float = TIMEOUT_S) -> None:
        """It counts as up until something fails.

        Args:
            probe: reads a little of the memory.
            timeout_s: how long it may take to read.
        """
        self._probe = probe
        self.timeout_s = timeout_s
        self.since = datetime.now(UTC)
        self.problem: str | None = None
        self._up = asyncio.Event()
        self._up.set()
        self._doubted = asyncio.Event()
        self._failed_probes = 0
        self._abandoned: set[asyncio.Task[object]] = set()

    @property
    def is_up(self) -> bool:
        """Whether it is worth asking."""
        return self._up.is_set()

    @property
    def state(self) -> Literal["up", "down"]:
        """The same in a word."""
        return "up" if self.is_up else "down"

    async def call(self, ask: Callable[[], Awaitable[T]], limit_s: float | None = None) -> T:
        """Ask the memory something.

        It runs in a task of its own: code of others that does not end when it is cancelled holds up no caller.

        Args:
            limit_s: how long it may take, if not `timeout_s`.

        Raises:
            NotInTime: it takes longer.
            Exception: whatever the memory raises.
        """
        limit_s = limit_s or self.timeout_s
        task = asyncio.create_task(_awaited(ask), name="memory call")
        try:
            await asyncio.wait([task], timeout=limit_s)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task], timeout=limit_s)
            raise
        if not task.done():
            self._abandon(task)
            raise NotInTime(f"the memory has not answered within {limit_s:g} s")
        if task.cancelled():
            raise MemoryUnavailable("the memory broke off its own work")
        return task.result()

    def failed(self, error: Exception, *, is_down: bool) -> None:
        """Note a failure, and have the memory asked again soon.

        Args:
            is_down: the memory cannot be used at all; otherwise only this call may have failed.
        """
        if is_down:
            self._go_down(error)
        self._doubted.set()

    def check(self) -> None:
        """Raise at once where it is known to be down.

        Raises:
            MemoryUnavailable: it is.
        """
        if not self.is_up:
            raise MemoryUnavailable(self.problem or "the memory does not answer")

    async def ask(self) -> bool:
        """Find out whether it answers now; takes no longer than `timeout_s`."""
        try:
            await self.call(self._probe)
        except Exception as error:  # noqa: BLE001 (whatever it is, it does not answer)
            if self.is_up and not isinstance(error, EthosError):
                _log.exception("memory_fault")
            self._go_down(error)
            self._failed_probes += 1
            return False
        if not self.is_up:
            _log.info("memory_up", problem=self.problem)
            self.since, self.problem = datetime.now(UTC), None
            self._up.set()
        return True

    async def until_up(self) -> bool:
        """Wait while it is down; whether it really was, and did not only answer late once."""
        was_down = not self.is_up
        await self._up.wait()
        return was_down and self._failed_probes > 0

    async def run(self) -> None:
        """Ask it after each failure until it answers, until cancelled."""
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            attempt = 1
            while not await self.ask():
                await asyncio.sleep(delay_s(attempt, first_s=FIRST_PROBE_S, longest_s=LONGEST_PROBE_S))
                attempt += 1
                if len(self._abandoned) >= MAX_ABANDONED:
                    await asyncio.wait(self._abandoned, return_when=asyncio.FIRST_COMPLETED)

    def _go_down(self, error: Exception) -> None:
        self.problem = in_words(error)
        if self.is_up:
            _log.error("memory_down", problem=self.problem)
            self.since, self._failed_probes = datetime.now(UTC), 0
            self._up.clear()

    def _abandon(self, task: asyncio.Task[T]) -> None:
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[T]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # nothing waits for it any more


def within_time(memory: MemoryProvider, availability: Availability, limit_s: float) -> MemoryProvider:
    """The same memory for people who ask it directly: it answers in time, or with an error that says what is wrong.

    It has what the memory has of the protocols.
    """

    def bounded(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            availability.check()
            try:
                return await availability.call(lambda: method(*arguments, **named), limit_s)
            except MemoryUnavailable as error:
                availability.failed(error, is_down=isinstance(error, NotInTime))
                raise
            except EthosError:
                raise
            except Exception as error:
                _log.exception("memory_fault")
                raise MemoryUnavailable(in_words(error)) from error

        return call

    methods = {name: bounded(getattr(memory, name)) for name in _ASKED_BY_PEOPLE if hasattr(memory, name)}
    jobs = {name: getattr(memory, name) for name in _AS_THEY_ARE if hasattr(memory, name)}
    return cast("MemoryProvider", SimpleNamespace(**methods, **jobs))


async def _awaited(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


def in_words(error: Exception) -> str:
    """What went wrong, for people; of an error that is not ours the log has the text, which may quote somebody."""
    if isinstance(error, EthosError):
        return str(error)
    return f"the memory failed with {type(error).__name__}; see the log"
