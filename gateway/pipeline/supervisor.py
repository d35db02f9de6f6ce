"""The supervisor: connects every channel, watches it, and connects it anew when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import structlog

from gateway.errors import AdapterAuthFailed, AdapterError, AdapterNotReady, StoreError
from gateway.messages import InboundMessage
from gateway.protocols import Accept, AuthenticatesOperator, ChannelAdapter, ReportsProblems, SupportsBackfill
from gateway.runtime.backoff import delay_s
from gateway.runtime.cancellation import is_cancelled_from_outside
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import happened

CONNECT_TIMEOUT_S = 60.0
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
# An adapter that has not ended by then is left behind.
END_TIMEOUT_S = 5.0
# A connection that held this long was a good one, even if nothing passed: the next wait is a short one again.
STABLE_S = 60.0

ChannelState = Literal["starting", "up", "down", "auth_failed", "stopped"]

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ChannelStatus:
    """How a channel is.

    Attributes:
        since: of the state.
        last_exchange_at: of the last message accepted or sent.
        connections: how often it was connected.
        error: why it is not up, for people; no secret.
        is_proven: a message that was not there before came or went through this connection.
        undelivered: answers that were given up since one was last delivered.
        undelivered_since: of the first of these.
        undelivered_reason: of the last of these.
    """

    name: str
    kind: str
    state: ChannelState = "starting"
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    last_exchange_at: datetime | None = None
    connections: int = 0
    error: str | None = None
    is_proven: bool = False
    undelivered: int = 0
    undelivered_since: datetime | None = None
    undelivered_reason: str | None = None


class Supervisor:
    """Keeps the channels connected while it runs."""

    def __init__(
        self,
        adapters: Sequence[ChannelAdapter],
        accept: Callable[[InboundMessage], Awaitable[bool]],
        *,
        on_up: Callable[[str], None],
    ) -> None:
        """Nothing is connected before `run`.

        Args:
            accept: commits a message, and says whether it is a new one; see `inbox.Inbox`.
            on_up: told the name of a channel whenever it is connected.
        """
        self._adapters = {adapter.name: adapter for adapter in adapters}
        self._accept = accept
        self._on_up = on_up
        self._statuses = {adapter.name: ChannelStatus(adapter.name, adapter.kind) for adapter in adapters}
        self._leaving: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._fault: asyncio.Future[None] | None = None
        self._untried = set(self._adapters)
        self.all_tried = asyncio.Event()
        if not self._untried:
            self.all_tried.set()

    @property
    def statuses(self) -> Sequence[ChannelStatus]:
        """In the order of the configuration."""
        return list(self._statuses.values())

    def kind(self, channel: str) -> str:
        """The platform of a channel; the channel's own name where it is not configured any more."""
        adapter = self._adapters.get(channel)
        return adapter.kind if adapter is not None else channel

    @property
    def adapters(self) -> Mapping[str, ChannelAdapter]:
        """By the names of their channels, connected or not."""
        return self._adapters

    def is_operator(self, message: InboundMessage) -> bool:
        """Whether the message's channel is up and proves that its writer holds the data directory."""
        adapter = self.adapter_if_up(message.conversation.channel)
        if adapter is None or not isinstance(adapter, AuthenticatesOperator):
            return False
        return adapter.operator_account == message.sender.user

    def adapter_if_up(self, channel: str) -> ChannelAdapter | None:
        """The adapter, while it is connected, and not about to be exchanged."""
        status = self._statuses.get(channel) if channel not in self._leaving else None
        return self._adapters[channel] if status is not None and status.state == "up" else None

    def exchanged(self, channel: str, *, is_new: bool = True) -> None:
        """Note that the channel has just been of use; `is_new` False for what its platform only told again."""
        status = self._statuses.get(channel)
        if status is not None:
            status.last_exchange_at = datetime.now(UTC)
            status.is_proven = status.is_proven or is_new

    def delivered(self, channel: str) -> None:
        """Note that the platform has taken an answer."""
        self.exchanged(channel)
        status = self._statuses.get(channel)
        if status is not None:
            status.undelivered, status.undelivered_since, status.undelivered_reason = 0, None, None

    def gave_up(self, channel: str, reason: str) -> None:
        """Note that an answer will not be delivered."""
        status = self._statuses.get(channel)
        if status is not None:
            status.undelivered += 1
            status.undelivered_since = status.undelivered_since or datetime.now(UTC)
            status.undelivered_reason = reason

    def problems(self, channel: str) -> Sequence[str]:
        """What does not work on a channel, for people: why it is not up, or what is wrong although it is."""
        status, adapter = self._statuses[channel], self._adapters[channel]
        found = [] if status.error is None else [status.error]
        if status.state == "up" and isinstance(adapter, ReportsProblems):
            found += adapter.problems
        if status.undelivered_since is not None:
            answers = "1 answer" if status.undelivered == 1 else f"{status.undelivered} answers"
            found.append(
                f"{answers} could not be delivered since {status.undelivered_since:%Y-%m-%d %H:%M} UTC, and none was: "
                f"{status.undelivered_reason} (see `ethos deliveries list outbox`)"
            )
        return found

    async def run(self) -> None:
        """Keep every channel connected until cancelled, or until `stop_receiving`; also when there is none left."""
        self._fault = asyncio.get_running_loop().create_future()
        for adapter in self._adapters.values():
            self._start(adapter)
        try:
            await self._fault
        finally:
            self._fault = None
            await self.stop_receiving()

    def hold(self, channel: str) -> None:
        """Begin no more sends through a channel that is about to be exchanged, though it connect anew meanwhile."""
        self._leaving.add(channel)

    async def exchange(self, gone: Collection[str], new: Sequence[ChannelAdapter]) -> None:
        """Let go of channels, then keep others connected, which may have the same names. Those left are not touched.

        Takes no longer than twice `END_TIMEOUT_S`.
        """
        await self._end([self._tasks.pop(name) for name in gone if name in self._tasks])
        await asyncio.gather(*(self._close(self._adapters.pop(name)) for name in gone))
        for name in gone:
            del self._statuses[name]
            self._untried.discard(name)
            self._leaving.discard(name)
        for adapter in new:
            self._adapters[adapter.name] = adapter
            self._statuses[adapter.name] = ChannelStatus(adapter.name, adapter.kind)
            if self._fault is not None:
                self._start(adapter)
        if not self._untried:
            self.all_tried.set()

    def _start(self, adapter: ChannelAdapter) -> None:
        task = asyncio.create_task(self._keep(adapter), name=f"channel {adapter.name}")
        self._tasks[adapter.name] = task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A channel that waits for its operator has ended well; a fault of ours ends the supervisor, and is seen."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._fault is not None and not self._fault.done():
            self._fault.set_exception(error)

    async def stop_receiving(self) -> None:
        """Take no more messages; what is connected can still send. Takes no longer than `END_TIMEOUT_S`."""
        await self._end(list(self._tasks.values()))

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=END_TIMEOUT_S)
            for task in late:
                _log.warning("channel_does_not_end", task=task.get_name(), waited_s=END_TIMEOUT_S)

    async def close(self) -> None:
        """Let go of every platform."""
        await self.stop_receiving()
        await asyncio.gather(*(self._close(adapter) for adapter in self._adapters.values()))

    # ---- one channel -----------------------------------------------------------------------------------------------

    async def _keep(self, adapter: ChannelAdapter) -> None:
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            started_s = clock()
            try:
                await self._serve(adapter)
            except AdapterAuthFailed as error:
                self._note(adapter, "auth_failed", str(error))
                return
            except AdapterNotReady as error:
                problem, retry_after_s = str(error), error.retry_after_s or 0.0
            except (AdapterError, StoreError, OSError, TimeoutError) as error:
                problem, retry_after_s = f"{type(error).__name__}: {error}", 0.0
            except asyncio.CancelledError:
                if is_cancelled_from_outside():
                    raise
                problem, retry_after_s = "the adapter gave the connection up", 0.0
            except Exception as error:  # noqa: BLE001 (whatever an adapter does, the others go on)
                _log.exception("adapter_fault", channel=adapter.name)
                problem, retry_after_s = f"{type(error).__name__}: {error}", 0.0
            else:
                problem, retry_after_s = "the connection ended", 0.0
            if is_cancelled_from_outside():  # it took its time, and another may have its name by now
                return
            failures = 1 if self._was_good(adapter.name, clock() - started_s) else failures + 1
            self._note(adapter, "down", problem)
            wait_s = delay_s(failures, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)
            await asyncio.sleep(max(wait_s, retry_after_s))

    def _was_good(self, channel: str, lasted_s: float) -> bool:
        status = self._statuses[channel]
        return status.state == "up" and (status.is_proven or lasted_s > STABLE_S)

    async def _serve(self, adapter: ChannelAdapter) -> None:
        """Connect once, and hand over messages until the connection breaks."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await adapter.connect()
        finally:
            self._untried.discard(adapter.name)
            if not self._untried:
                self.all_tried.set()
        self._note(adapter, "up", None)
        accept = self._accept_from(adapter.name)
        since = self._statuses[adapter.name].last_exchange_at  # before anything new is accepted
        try:
            async with asyncio.TaskGroup() as tasks:
                backfill = tasks.create_task(self._backfill(adapter, accept, since))
                try:
                    await adapter.run(accept)
                finally:
                    backfill.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from group

    def _accept_from(self, channel: str) -> Accept:
        async def accept(message: InboundMessage) -> None:
            is_new = await self._accept(message)
            self.exchanged(channel, is_new=is_new)
            reach("inbox.acknowledging")

        return accept

    async def _backfill(self, adapter: ChannelAdapter, accept: Accept, since: datetime | None) -> None:
        if isinstance(adapter, SupportsBackfill) and since is not None:
            fetched = await adapter.backfill(accept, since)
            _log.info("backfilled", channel=adapter.name, messages=fetched)

    def _note(self, adapter: ChannelAdapter, state: ChannelState, error: str | None) -> None:
        """Take down the state; the log hears of every change, and of nothing else."""
        if self._adapters.get(adapter.name) is not adapter:  # it was exchanged, and ends late
            return
        status = self._statuses[adapter.name]
        if status.state != state:
            happened("channel.state", channel=adapter.name, state=state)
            if state == "up":
                _log.info("channel_up", channel=adapter.name, connection=status.connections + 1)
            elif state == "auth_failed":
                _log.error("channel_auth_failed", channel=adapter.name, connection=status.connections, error=error)
            else:
                _log.warning("channel_down", channel=adapter.name, connection=status.connections, error=error)
            status.state, status.since = state, datetime.now(UTC)
        status.error = error
        if state == "up":
            status.is_proven = False
            status.connections += 1
            self._on_up(adapter.name)

    async def _close(self, adapter: ChannelAdapter) -> None:
        self._statuses[adapter.name].state = "stopped"
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await adapter.close()
        except Exception as error:  # noqa: BLE001 (one adapter's fault must not keep the others open)
            _log.warning("close_failed", channel=adapter.name, error=repr(error))


def _first(group: BaseExceptionGroup) -> BaseException:
    """What ended the connection; the rest followed from it."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
