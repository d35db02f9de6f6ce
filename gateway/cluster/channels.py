"""Who holds a channel: one worker at a time connects it and sends through it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from gateway.cluster.leases import LEASE_S, Leases, LeaseStore
from gateway.cluster.news import News
from gateway.domain.channels import Hold

CHANNEL = "channel:"
# A channel that an operator took from its holder: so long the former one leaves it to others.
RELEASED_S = 2 * LEASE_S


class ChannelHolding(Protocol):
    """Which channels this worker holds."""

    async def take(self, channel: str) -> Hold:
        """Wait until this worker holds the channel; it is to stop it when that is lost."""

    async def give_back(self, channel: str, hold: Hold) -> None:
        """Let another worker take it now, and tell them: nothing of it runs here any more."""

    async def release(self, channel: str) -> bool:
        """Have the holder let go of a channel, whichever worker that is; whether anybody held it."""


class _ForEver:
    """What the only worker holds."""

    epoch = 0
    is_good = True

    async def lost(self) -> None:
        await asyncio.get_running_loop().create_future()


class OneWorker:
    """The only worker holds every channel always."""

    async def take(self, channel: str) -> Hold:  # noqa: ARG002 (all are its own)
        """At once."""
        return _ForEver()

    async def give_back(self, channel: str, hold: Hold) -> None:
        """There is nobody to take it."""

    async def release(self, channel: str) -> bool:  # noqa: ARG002 (there is nobody to take it)
        """Not done."""
        return False


class LeasedChannels:
    """Those of one worker among others, by leases `channel:NAME`."""

    def __init__(
        self, leases: Leases, store: LeaseStore, news: News, *, channels: Collection[str] | None = None
    ) -> None:
        """`channels` are those that this worker may hold, None for all."""
        self._leases = leases
        self._store = store
        self._news = news
        self._channels = channels
        news.on("released", lambda _told: leases.look())
        news.on("stop", self._stop)

    async def take(self, channel: str) -> Hold:
        """Wait until this worker holds it: for ever, where only others may."""
        if self._channels is not None and channel not in self._channels:
            await asyncio.get_running_loop().create_future()
        return await self._leases.wait_for(CHANNEL + channel)

    async def give_back(self, channel: str, hold: Hold) -> None:
        """Let others take it, and say so."""
        await self._leases.give_back(CHANNEL + channel, hold.epoch)
        self._news.tell("released", lease=CHANNEL + channel)

    async def release(self, channel: str) -> bool:
        """Take it from its holder, which stops it first; where that hears no news, its lease ends within `LEASE_S`."""
        is_held = await self._store.release(CHANNEL + channel)
        if is_held:
            self._news.tell("stop", channel=channel)
            self._stop({"channel": channel})
        return is_held

    def _stop(self, told: dict[str, object]) -> None:
        if isinstance(channel := told.get("channel"), str):
            self._leases.lose(CHANNEL + channel, pause_s=RELEASED_S)
