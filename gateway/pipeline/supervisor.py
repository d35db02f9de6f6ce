"""The supervisor: connects every channel, watches it, and connects it again when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import structlog

from gateway.cluster.channels import ChannelHolding, OneWorker
from gateway.cluster.leases import while_held
from gateway.domain.channels import Channels, ChannelState, Hold
from gateway.errors import AdapterAuthFailed, AdapterError, AdapterNotReady, StoreError
from gateway.messages import InboundMessage
from gateway.pipeline.inbox import Inbox
from gateway.pipeline.outbox import Outbox
from gateway.protocols import Accept, ChannelAdapter, ReceivesAnywhere
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

_log = structlog.get_logger(__name__)


class Supervisor:
    """Keeps the channels connected while it runs."""

    def __init__(self, channels: Channels, inbox: Inbox, outbox: Outbox, holding: ChannelHolding | None = None) -> None:
        """`holding` says which channels this worker holds; None: it is the only one."""
        self._channels = channels
        self._inbox = inbox
        self._outbox = outbox
        self._holding = holding or OneWorker()
        self._holds: dict[str, Hold] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._fault: asyncio.Future[None] | None = None
        self._untried = set(channels.configured)
        self.all_tried = asyncio.Event()
        self._tried(())

    async def run(self) -> None:
        """Keep every channel connected until cancelled, or until `stop_receiving`; also when there is none left."""
        self._fault = asyncio.get_running_loop().create_future()
        for adapter in self._channels.configured.values():
            self._start(adapter)
        try:
            await self._fault
        finally:
            self._fault = None
            await self.stop_receiving()

    def hold(self, channel: str) -> None:
        """Begin no more sends through a channel that is about to be exchanged, even if it connects again meanwhile."""
        self._channels.status(channel).is_leaving = True

    async def exchange(self, gone: Collection[str], new: Sequence[ChannelAdapter]) -> None:
        """Let go of channels, then keep others connected, which may have the same names. Those left are not touched.

        Takes no longer than twice `END_TIMEOUT_S`.
        """
        await self._end([self._tasks.pop(name) for name in gone if name in self._tasks])
        await asyncio.gather(*(self._close(self._channels.configured[name]) for name in gone))
        await asyncio.gather(*(self._give_back(name) for name in gone))
        for name in gone:
            self._channels.drop(name)
        self._channels.add(new)
        if self._fault is not None:
            for adapter in new:
                self._start(adapter)
        self._tried(gone)

    def _tried(self, channels: Collection[str]) -> None:
        self._untried.difference_update(channels)
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
        """Take no more messages. What is connected can still send, but what another worker is to have is given back.

        Takes no longer than `END_TIMEOUT_S`, and twice as long where something is given back.
        """
        await self._end(list(self._tasks.values()))
        await asyncio.gather(*(self._give_back(name) for name in [*self._holds]))

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
        await asyncio.gather(*(self._close(adapter) for adapter in self._channels.configured.values()))

    # ---- one channel -----------------------------------------------------------------------------------------------

    async def _keep(self, adapter: ChannelAdapter) -> None:
        """Keep it connected whenever this worker holds it."""
        while True:
            hold = await self._held(adapter)
            if hold.epoch == 0:
                await self._keep_connected(adapter, hold)
                return
            self._holds[adapter.name] = hold
            if await while_held(hold, self._keep_connected(adapter, hold)):
                await hold.lost()  # it waits for its operator, here as elsewhere
            await self._give_back(adapter.name)

    async def _held(self, adapter: ChannelAdapter) -> Hold:
        """Wait until this worker holds the channel; what comes by HTTP is accepted meanwhile, where it can be.

        One whose people read the log belongs to every worker: what is said there is delivered by its commit.
        """
        if adapter.capabilities.shows_log:
            return await OneWorker().take(adapter.name)
        receiving = asyncio.create_task(self._receive(adapter), name=f"HTTP of {adapter.name}")
        try:
            hold = await self._holding.take(adapter.name)
        finally:
            receiving.cancel()
            await asyncio.wait([receiving])
        status = self._channels.status(adapter.name)
        status.hold = hold
        if hold.epoch:
            self._note(adapter, "starting", None)
        return hold

    async def _receive(self, adapter: ChannelAdapter) -> None:
        self._note(adapter, "elsewhere", None)
        self._tried([adapter.name])
        failures = 0
        while isinstance(adapter, ReceivesAnywhere):
            try:
                await adapter.receive(self._accept_from(adapter.name))
            except AdapterError as error:
                _log.info("channel_not_received", channel=adapter.name, error=str(error))
            except Exception:  # noqa: BLE001 (whatever an adapter does, it waits for the channel)
                _log.exception("adapter_fault", channel=adapter.name)
            failures += 1
            await asyncio.sleep(delay_s(failures, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S))

    async def _give_back(self, channel: str) -> None:
        """Let another worker have a channel that has stopped here, once its last sends are over."""
        hold = self._holds.pop(channel, None)
        if hold is None:
            return
        self.hold(channel)
        await self._outbox.quiet(channel, END_TIMEOUT_S)
        await self._holding.give_back(channel, hold)
        status = self._channels.status(channel)
        status.hold, status.is_leaving = None, False
        if status.state != "stopped":
            self._note(self._channels.configured[channel], "elsewhere", None)

    async def _keep_connected(self, adapter: ChannelAdapter, hold: Hold) -> None:
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            started_s, retry_after_s = clock(), 0.0
            try:
                await self._serve(adapter, hold)
            except AdapterAuthFailed as error:
                self._note(adapter, "auth_failed", str(error))
                return
            except AdapterNotReady as error:
                problem, retry_after_s = str(error), error.retry_after_s or 0.0
            except (AdapterError, StoreError, OSError, TimeoutError) as error:
                problem = f"{type(error).__name__}: {error}"
            except asyncio.CancelledError:
                if is_cancelled_from_outside():
                    raise
                problem = "the adapter gave the connection up"
            except Exception as error:  # noqa: BLE001 (whatever an adapter does, the others go on)
                _log.exception("adapter_fault", channel=adapter.name)
                problem = f"{type(error).__name__}: {error}"
            else:
                problem = "the connection ended"
            if is_cancelled_from_outside():  # it took its time, and another may have its name by now
                return
            failures = 1 if self._was_good(adapter.name, clock() - started_s) else failures + 1
            self._note(adapter, "down", problem)
            wait_s = delay_s(failures, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)
            await asyncio.sleep(max(wait_s, retry_after_s))

    def _was_good(self, channel: str, lasted_s: float) -> bool:
        status = self._channels.status(channel)
        return status.state == "up" and (status.is_proven or lasted_s > STABLE_S)

    async def _serve(self, adapter: ChannelAdapter, hold: Hold) -> None:
        """Connect once, and hand over messages until the connection breaks."""
        try:
            if hold.epoch:
                await self._outbox.take_over(adapter.name, hold.epoch)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await adapter.connect()
        finally:
            self._tried([adapter.name])
        self._note(adapter, "up", None)
        try:
            await adapter.run(self._accept_from(adapter.name, hold))
        except BaseExceptionGroup as group:
            raise _first(group) from group

    def _accept_from(self, channel: str, hold: Hold | None = None) -> Accept:
        async def accept(message: InboundMessage) -> None:
            if hold is not None and not hold.is_good:
                raise AdapterNotReady("another worker has the channel")
            accepted = await self._inbox.accept(message)
            self._channels.exchanged(channel, is_new=accepted is not None)
            reach("inbox.acknowledging")

        return accept

    def _note(self, adapter: ChannelAdapter, state: ChannelState, error: str | None) -> None:
        """Take down the state; the log hears of every change, and of nothing else."""
        if self._channels.configured.get(adapter.name) is not adapter:  # it was exchanged, and ends late
            return
        status = self._channels.status(adapter.name)
        if status.state != state:
            happened("channel.state", channel=adapter.name, state=state)
            if state == "up":
                _log.info("channel_up", channel=adapter.name, connection=status.connections + 1)
            elif state in ("starting", "elsewhere"):
                _log.info("channel_" + ("taken" if state == "starting" else state), channel=adapter.name)
            elif state == "auth_failed":
                _log.error("channel_auth_failed", channel=adapter.name, connection=status.connections, error=error)
            else:
                _log.warning("channel_down", channel=adapter.name, connection=status.connections, error=error)
            status.state, status.since = state, datetime.now(UTC)
        status.error = error
        if state == "up":
            status.is_proven = False
            status.connections += 1
            self._outbox.channel_is_up(adapter.name)

    async def _close(self, adapter: ChannelAdapter) -> None:
        self._channels.status(adapter.name).state = "stopped"
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
