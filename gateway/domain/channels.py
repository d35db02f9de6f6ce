"""The channels that there are now, and how each of them is: those of the configuration, and the local one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol

from gateway.messages import Capabilities, InboundMessage
from gateway.protocols import ChannelAdapter, ReportsProblems

ChannelState = Literal["starting", "up", "down", "auth_failed", "stopped", "elsewhere"]
"""`elsewhere`: another worker has it."""


class Hold(Protocol):
    """A channel that this process may connect, and send through."""

    @property
    def epoch(self) -> int:
        """Grows with each holder; 0 where there is only one worker."""

    @property
    def is_good(self) -> bool:
        """Whether this process certainly holds it now."""

    async def lost(self) -> None:
        """Wait until it is held no more."""


@dataclass(slots=True)
class ChannelStatus:
    """How a channel is.

    Attributes:
        since: of the state.
        last_exchange_at: of the last message accepted or sent.
        connections: how often it was connected.
        error: why it is not up, for people; no secret.
        is_proven: a message that was not there before came or went through this connection.
        is_leaving: it is about to be exchanged, so no more sends begin through it.
        hold: by what right it is connected here; None while it is not.
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
    is_leaving: bool = False
    hold: Hold | None = None
    undelivered: int = 0
    undelivered_since: datetime | None = None
    undelivered_reason: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether no other worker has it."""
        return self.hold is None or self.hold.is_good


class Shows(Protocol):
    """Shows previews and typing, where it has the methods of `SupportsPreview` and `SupportsTyping`."""

    @property
    def capabilities(self) -> Capabilities:
        """Of the channel."""


class Channels:
    """By their names. `supervisor.Supervisor` connects those of the configuration; the local one is always up."""

    def __init__(self, local: ChannelAdapter | None = None, *, kinds: Callable[[], Mapping[str, str]] = dict) -> None:
        """At first only the local one is known; `kinds` gives those of channels that have no adapter here, by name."""
        self._local = local
        self._kinds = kinds
        self._status: dict[str, ChannelStatus] = {}
        self.configured: Mapping[str, ChannelAdapter] = {}
        """Connected or not; another mapping whenever there are others."""
        self.at_holder: Callable[[ChannelAdapter], Shows | None] = lambda _adapter: None
        """Gives what tells the worker that has a channel what to show there."""

    @property
    def statuses(self) -> Sequence[ChannelStatus]:
        """Of those that are configured, in the order of the configuration."""
        return [*self._status.values()]

    @property
    def all(self) -> Mapping[str, ChannelAdapter]:
        """Those of the configuration, and the local one, by their names."""
        return self.configured if self._local is None else {**self.configured, self._local.name: self._local}

    def status(self, channel: str) -> ChannelStatus:
        """How a configured channel is."""
        return self._status[channel]

    def find(self, channel: str) -> ChannelAdapter | None:
        """Its adapter; None where it is not configured any more."""
        if self._local is not None and channel == self._local.name:
            return self._local
        return self.configured.get(channel)

    def if_up(self, channel: str) -> ChannelAdapter | None:
        """Its adapter while it is connected, and not about to be exchanged."""
        status = self._status.get(channel)
        is_up = status is None or (status.state == "up" and not status.is_leaving and status.is_held)
        return self.find(channel) if is_up else None

    def showing(self, channel: str) -> Shows | None:
        """Who shows what is not sent: its adapter, or what tells the worker that has it; None: nobody."""
        adapter = self.if_up(channel)
        if adapter is None and self.is_elsewhere(channel):
            return self.at_holder(self.configured[channel])
        return adapter

    def epoch(self, channel: str) -> int:
        """Under which it is held here; 0 where there is only one worker, or it is not held here."""
        status = self._status.get(channel)
        return 0 if status is None or status.hold is None else status.hold.epoch

    def is_still_held(self, channel: str, epoch: int) -> bool:
        """Whether this process certainly holds it at this moment, under the same epoch."""
        status = self._status.get(channel)
        return epoch == 0 or (status is not None and status.is_held and self.epoch(channel) == epoch)

    def is_elsewhere(self, channel: str) -> bool:
        """Whether another worker has it."""
        status = self._status.get(channel)
        return status is not None and status.state == "elsewhere"

    @property
    def names_elsewhere(self) -> Sequence[str]:
        """Those that other workers have."""
        return [status.name for status in self._status.values() if status.state == "elsewhere"]

    def kind(self, channel: str) -> str:
        """Its platform, the first half of an account's name; the channel's own name where it is not configured."""
        adapter = self.find(channel)
        return self._kinds().get(channel, channel) if adapter is None else adapter.kind

    @property
    def kinds(self) -> Mapping[str, str]:
        """The kinds of all channels by name, also of those that have no adapter here."""
        return {**self._kinds(), **{name: adapter.kind for name, adapter in self.all.items()}}

    def capabilities(self, channel: str) -> Capabilities | None:
        """What it can; None where it is not configured."""
        adapter = self.find(channel)
        return None if adapter is None else adapter.capabilities

    def vouches(self, channel: str) -> bool:
        """Whether its platform proves who writes there; False where that is only claimed, and while it is unknown."""
        capabilities = self.capabilities(channel)
        return capabilities is not None and not capabilities.is_sender_only_claimed

    def vouches_for(self, message: InboundMessage) -> bool:
        """The same of one message."""
        return message.sender.is_verified and self.vouches(message.conversation.channel)

    # ---- what becomes of them ---------------------------------------------------------------------------------------

    def add(self, adapters: Sequence[ChannelAdapter]) -> None:
        """Take channels up; they are not connected yet."""
        self.configured = {**self.configured, **{adapter.name: adapter for adapter in adapters}}
        self._status |= {adapter.name: ChannelStatus(adapter.name, adapter.kind) for adapter in adapters}

    def drop(self, channel: str) -> None:
        """Forget a channel."""
        self.configured = {name: adapter for name, adapter in self.configured.items() if name != channel}
        del self._status[channel]

    def exchanged(self, channel: str, *, is_new: bool = True) -> None:
        """Note that the channel has just been of use; `is_new` False for what its platform only told again."""
        status = self._status.get(channel)
        if status is not None:
            status.last_exchange_at = datetime.now(UTC)
            status.is_proven = status.is_proven or is_new

    def delivered(self, channel: str) -> None:
        """Note that the platform has taken an answer."""
        self.exchanged(channel)
        status = self._status.get(channel)
        if status is not None:
            status.undelivered, status.undelivered_since, status.undelivered_reason = 0, None, None

    def gave_up(self, channel: str, reason: str) -> None:
        """Note that an answer will not be delivered."""
        status = self._status.get(channel)
        if status is not None:
            status.undelivered += 1
            status.undelivered_since = status.undelivered_since or datetime.now(UTC)
            status.undelivered_reason = reason

    def problems(self, channel: str) -> Sequence[str]:
        """What does not work on a channel, for people: why it is not up, or what is wrong although it is."""
        status, adapter = self._status[channel], self.configured[channel]
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
