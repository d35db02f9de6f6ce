"""One server: when it is connected, when it rests, and what is said of it while it is away.

One task owns it. The library's context lives in a second task, a new one for each connection, so that an end in there,
whatever its kind, is a result here and never a cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import structlog

from gateway.mcp.errors import WANTS_MORE, ConnectionEnded, LacksPermission, SessionGone
from gateway.mcp.lives import Lives
from gateway.runtime.backoff import delay_s
from gateway.tools.contract import ToolUnavailable, ToolUncertain

if TYPE_CHECKING:
    from mcp.types import CallToolResult, InputRequiredResult

    from gateway.mcp.catalogue import Era, Listing
    from gateway.mcp.connection import Connection
    from gateway.mcp.life import Life, Link, Mode
    from gateway.tools.forms import Given

State = Literal["idle", "connecting", "up", "resting"]
"""`idle`: nobody needs it; `resting`: it could not be connected, and is tried again later."""

KEPT_LINES = 50
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """In seconds.

    Attributes:
        connect: until a server that was started has told its tools.
        first_rest: after the first failure; it doubles.
        answer: for which a server of the old era waits for a person, in the middle of a call.
        idle: without calls, after which a process is stopped.
    """

    connect: float = 10.0
    first_rest: float = 1.0
    longest_rest: float = 300.0
    idle: float = 600.0
    answer: float = 300.0


@dataclass(slots=True, kw_only=True)
class Standing:
    """How a server is.

    Attributes:
        error: why it is not up, with what to do; None where nothing is wrong.
        said: the last lines of its standard error.
        left_out: of tools that cannot be used, the name and why.
    """

    state: State = "idle"
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    error: str | None = None
    said: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    left_out: Mapping[str, str] = field(default_factory=dict)


class McpServer:
    """A server, with its owner task in `run`.

    Attributes:
        is_leaving: no task is to own it any more.
    """

    def __init__(
        self,
        name: str,
        *,
        link: Callable[[Standing], AbstractAsyncContextManager[Link]],
        on_listing: Callable[[str, Listing], Awaitable[None]],
        is_quiet: Callable[[], bool] = lambda: True,
        protocol: Mode = "auto",
        is_stopped_when_idle: bool = False,
        times: Times | None = None,
        lives: Lives | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            link: makes a way to it, for one connection.
            on_listing: is told its tools.
            is_quiet: whether no turn runs, so that a changed list may be read at once.
            is_stopped_when_idle: it is a process, which needs memory while nobody calls.
            lives: calls that wait for a person.
        """
        self.name = name
        self.standing = Standing()
        self._link = link
        self._on_listing = on_listing
        self._is_quiet = is_quiet
        self._protocol = protocol
        self._is_stopped_when_idle = is_stopped_when_idle
        self._times = times or Times()
        self._lives = lives or Lives()
        self._era: Era | None = None
        self._needed = asyncio.Event()
        self._poked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._moved = asyncio.Condition()
        self._connection: Connection | None = None
        self._used_at = 0.0
        self._stale_from: float | None = None
        self.is_leaving = False

    # ---- what others ask --------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Connect, unless it is up or rests."""
        self._needed.set()

    def remember(self, era: Era | None) -> None:
        """In which era of the protocol it was last asked; that one is tried first."""
        self._era = era

    def hurry(self) -> None:
        """Connect, and cut a rest short."""
        self._needed.set()
        self._hurried.set()

    @property
    def answer_within_s(self) -> float | None:
        """How long it waits for what it asks a person; None: as long as that takes."""
        return self._times.answer if self._era == "legacy" else None

    def reread(self) -> None:
        """Read its tools again, where it has said that they changed; no turn that runs depends on them."""
        if self._stale_from is not None and time.monotonic() >= self._stale_from:
            self._poked.set()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float,
        is_repeatable: bool,
        given: Given | None = None,
        can_be_asked: bool = False,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool, by the server's own name of it; `given` answers what it was to wait for.

        Raises:
            ToolError: the server refused it.
            ToolUnavailable: it was not done.
            ToolUncertain: nobody knows.
        """
        try:
            return await self._call(tool, arguments, timeout_s, given, can_be_asked=can_be_asked)
        except SessionGone:
            if not is_repeatable:
                raise ToolUnavailable(f"the server {self.name} was restarted; call it again") from None
        except ToolUncertain as error:
            if is_repeatable:  # it only looks, so there is nothing that could have happened
                raise ToolUnavailable(str(error)) from error
            raise
        try:
            return await self._call(tool, arguments, timeout_s, given, can_be_asked=can_be_asked)
        except (SessionGone, ToolUncertain):
            raise ToolUnavailable(f"the server {self.name} was restarted again and again") from None

    async def _call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        timeout_s: float,
        given: Given | None,
        *,
        can_be_asked: bool,
    ) -> CallToolResult | InputRequiredResult:
        try:
            if given is not None and given.is_live:
                return await self._lives.answer(given, timeout_s=timeout_s)
            connection = await self.connected()
            return await connection.call(tool, arguments, timeout_s=timeout_s, given=given, can_be_asked=can_be_asked)
        finally:
            self._used_at = time.monotonic()

    async def tried(self) -> Connection:
        """The connection, for which a rest is cut short. Raises as `connected`."""
        async with self._moved:
            while self.standing.state == "resting" and not self.is_leaving:
                self._hurried.set()
                await self._moved.wait()
        return await self.connected()

    async def connected(self) -> Connection:
        """The connection; where nobody needed it so far, wait for it.

        Raises:
            ToolUnavailable: there is none now; says why.
        """
        with contextlib.suppress(TimeoutError):  # the next lines say so
            async with asyncio.timeout(2 * self._times.connect), self._moved:
                while self._up is None and self.standing.state != "resting":
                    if self.standing.state != "connecting":
                        self._needed.set()
                    await self._moved.wait()
        if self._up is not None:
            return self._up
        why = f": {self.standing.error}" if self.standing.error else ""
        kind = LacksPermission if why.endswith(WANTS_MORE) else ToolUnavailable
        raise kind(f"the server {self.name} is not reachable now{why}")

    @property
    def _up(self) -> Connection | None:
        """The connection, if it can be used."""
        return None if self._connection is None or self._connection.ended.is_set() else self._connection

    # ---- the owner task ---------------------------------------------------------------------------------------------

    async def run(self, *, is_for_ever: bool = True) -> None:
        """Connect when it is needed; if not for ever, until nobody has called for long, or it cannot be connected."""
        failures = 0
        while True:
            await self._needed.wait()
            life = await self._connect()
            if life is not None:
                failures = 0
                await self._stay(life)
            else:
                failures += 1
                await self._rest(failures)
            if not is_for_ever and (life is None or not self._needed.is_set()):
                return

    async def leave(self) -> None:
        """Once its task has ended for good: whoever waits for a connection hears that there is none."""
        self.is_leaving = True
        await self._move("resting", "it was taken out of the configuration, or changed there; call it again")

    async def _rest(self, failures: int) -> None:
        times = self._times
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s(failures, first_s=times.first_rest, longest_s=times.longest_rest)):
                await self._hurried.wait()
        self._hurried.clear()

    async def _connect(self) -> Life | None:
        """The connection; None: there is none, and the standing says why."""
        await self._move("connecting", self.standing.error)
        why, is_late = "", False
        for mode in self._modes():
            life = await self._begin(mode)
            try:
                await asyncio.wait(
                    (life.connected, life.task), timeout=self._times.connect, return_when=asyncio.FIRST_COMPLETED
                )
                if life.connected.done():
                    await self._take_over(life)
                    return life
                is_late = not life.task.done()
            except BaseException:
                await life.end(self._times.connect)
                raise
            why = life.why or "it ended the connection"
            if is_late:  # which a second try would not change
                why = f"it did not start within {self._times.connect:g} s"
                await self._move("resting", why)
                await life.end(self._times.connect)
                break
        _log.warning("mcp_server_down", server=self.name, reason=why)
        await self._move("resting", why)
        return None

    def _modes(self) -> tuple[Mode, ...]:
        """In which it is tried, one after the other: some servers end the connection at a question of the new era."""
        if self._protocol != "auto":
            return (self._protocol,)
        return ("legacy", "auto") if self._era == "legacy" else ("auto", "legacy")

    async def _begin(self, mode: Mode) -> Life:
        from gateway.mcp.life import Life  # noqa: PLC0415 (the SDK is loaded with the first server, which takes 0.7 s)

        return Life(
            self.name,
            self._link(self.standing),
            mode,
            on_change=self._changed,
            answer_within_s=self._times.answer,
            lives=self._lives,
        )

    async def _take_over(self, life: Life) -> None:
        connection, listing = life.connected.result()
        self.remember(connection.era)
        await self._take(listing)
        self._connection = connection
        self._needed.clear()
        self._used_at = time.monotonic()
        await self._move("up", None)

    async def _stay(self, life: Life) -> None:
        """Be up, until the connection ends or nobody has called for long."""
        try:
            while not life.ended.is_set():
                waiting = [asyncio.create_task(each.wait()) for each in (self._poked, life.ended)]
                try:
                    await asyncio.wait(waiting, timeout=self._idle_s(), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in waiting:
                        each.cancel()
                if life.ended.is_set():
                    break
                if self._poked.is_set():
                    self._poked.clear()
                    await self._read_again()
                elif self._idle_s() == 0:
                    _log.info("mcp_server_stopped", server=self.name)
                    break
        finally:
            self._connection = None
            await life.end(self._times.connect)
            await self._move("idle", life.why or None)

    def _idle_s(self) -> float | None:
        """Until it is stopped; None: it is not."""
        if not self._is_stopped_when_idle or self._connection is None:
            return None
        if self._connection.running:
            return self._times.idle
        return max(0.0, self._used_at + self._times.idle - time.monotonic())

    async def _read_again(self) -> None:
        if self._connection is not None:
            try:
                await self._take(await self._connection.listing())
            except (ConnectionEnded, ToolUnavailable) as error:
                _log.warning("mcp_list_not_read", server=self.name, error=str(error))

    async def _take(self, listing: Listing) -> None:
        self._stale_from = None if listing.ttl_s is None else time.monotonic() + listing.ttl_s
        self.standing.left_out = listing.left_out
        await self._on_listing(self.name, listing)

    def _changed(self) -> None:
        self._stale_from = time.monotonic()
        if self._is_quiet():
            self.reread()

    async def _move(self, state: State, error: str | None) -> None:
        if state != self.standing.state:
            self.standing.since = datetime.now(UTC)
        self.standing.state, self.standing.error = state, error
        async with self._moved:
            self._moved.notify_all()
