"""Channels: connected, watched, connected anew; a failure of one is nothing to the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from gateway import supervisor as supervisor_module
from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.messages import InboundMessage
from gateway.supervisor import Supervisor
from tests.fake_channel import Config, FakeChannel


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(supervisor_module, "LONGEST_RETRY_S", 0.002)


class Accepted(list[InboundMessage]):
    async def accept(self, message: InboundMessage) -> None:
        self.append(message)


@asynccontextmanager
async def supervised(*channels: FakeChannel) -> AsyncIterator[tuple[Supervisor, Accepted, list[str]]]:
    accepted, ups = Accepted(), []
    supervisor = Supervisor(channels, accepted.accept, on_up=ups.append)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, accepted, ups
    finally:
        running.cancel()
        await asyncio.wait([running])
        await supervisor.close()


async def test_a_platform_that_is_not_there_yet_is_tried_again_until_it_is() -> None:
    channel = FakeChannel("a", Config())
    channel.connect_failures = [AdapterNotReady("no route")] * 4
    with capture_logs() as logs:
        async with supervised(channel) as (supervisor, accepted, ups):
            await channel.deliver(channel.message("hi"))
            assert [status.state for status in supervisor.statuses] == ["up"]
            assert (channel.connects, len(accepted), ups) == (5, 1, ["a"])
            assert supervisor.statuses[0].last_exchange_at is not None
    assert [log["event"] for log in logs] == ["channel_down", "channel_up"]  # once down, once up


async def test_a_refused_key_is_told_and_not_tried_again_and_the_others_go_on() -> None:
    refused, good = FakeChannel("refused", Config()), FakeChannel("good", Config())
    refused.connect_failures = [AdapterAuthFailed("the token was refused; put a new one into channels.refused.token")]
    async with supervised(refused, good) as (supervisor, accepted, _):
        await good.deliver(good.message("hi"))
        await asyncio.wait_for(supervisor.all_tried.wait(), 10)
        states = {status.name: (status.state, status.error) for status in supervisor.statuses}
        assert states["refused"] == ("auth_failed", "the token was refused; put a new one into channels.refused.token")
        assert states["good"] == ("up", None)
        assert refused.connects == 1
        assert supervisor.adapter_if_up("refused") is None
        assert len(accepted) == 1


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), RuntimeError("a fault"), None])
async def test_a_connection_that_breaks_is_made_anew(error: Exception | None) -> None:
    channel = FakeChannel("a", Config())
    async with supervised(channel) as (_, accepted, _ups):
        await channel.deliver(channel.message("one"))
        await channel.lose_connection(error)
        await channel.until(lambda: channel.connects == 2)
        await channel.deliver(channel.message("two"))
        assert len(accepted) == 2


async def test_every_channel_is_closed_at_the_end() -> None:
    channels = [FakeChannel("a", Config()), FakeChannel("b", Config())]
    async with supervised(*channels):
        await channels[0].deliver(channels[0].message("hi"))
    assert all(channel.is_closed for channel in channels)
