"""Channels: connected, watched, connected anew; a failure of one is nothing to the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from gateway.domain.channels import Channels
from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.messages import InboundMessage
from gateway.pipeline import supervisor as supervisor_module
from gateway.pipeline.supervisor import Supervisor
from gateway.protocols import Accept
from tests.fake_channel import Config, FakeChannel


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(supervisor_module, "LONGEST_RETRY_S", 0.002)


class Accepted(list[InboundMessage]):
    async def accept(self, message: InboundMessage) -> int | None:
        is_new = all(message.event_id != one.event_id for one in self)
        self.append(message)
        return len(self) if is_new else None


class Ups:
    """What is told when a channel is up."""

    def __init__(self, names: list[str]) -> None:
        self.channel_is_up = names.append


@asynccontextmanager
async def supervised(*channels: FakeChannel) -> AsyncIterator[tuple[Supervisor, Accepted, list[str]]]:
    accepted, ups = Accepted(), []
    known = Channels()
    known.add(channels)
    supervisor = Supervisor(known, accepted, Ups(ups))  # type: ignore[arg-type]
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
            assert [status.state for status in supervisor._channels.statuses] == ["up"]
            assert (channel.connects, len(accepted), ups) == (5, 1, ["a"])
            assert supervisor._channels.statuses[0].last_exchange_at is not None
    told = [(log["event"], log["connection"]) for log in logs]
    assert told == [("channel_down", 0), ("channel_up", 1)]  # once down, once up


async def test_a_refused_key_is_told_and_not_tried_again_and_the_others_go_on() -> None:
    refused, good = FakeChannel("refused", Config()), FakeChannel("good", Config())
    refused.connect_failures = [AdapterAuthFailed("the token was refused; put a new one into channels.refused.token")]
    async with supervised(refused, good) as (supervisor, accepted, _):
        await good.deliver(good.message("hi"))
        await asyncio.wait_for(supervisor.all_tried.wait(), 60)
        states = {status.name: (status.state, status.error) for status in supervisor._channels.statuses}
        assert states["refused"] == ("auth_failed", "the token was refused; put a new one into channels.refused.token")
        assert states["good"] == ("up", None)
        assert refused.connects == 1
        assert supervisor._channels.if_up("refused") is None
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


class Stubborn(FakeChannel):
    """Takes its time over the end of a connection, and then ends as if nobody had asked for it."""

    def __init__(self, name: str, error: Exception | None) -> None:
        super().__init__(name, Config())
        self.may_end = asyncio.Event()
        self.error = error

    async def run(self, accept: Accept) -> None:
        try:
            await super().run(accept)
        except asyncio.CancelledError:
            await self.may_end.wait()
            if self.error is not None:
                raise self.error from None


@pytest.mark.parametrize("error", [None, ConnectionResetError("gone"), AdapterAuthFailed("refused")])
@pytest.mark.parametrize("is_replaced", [True, False])
async def test_an_adapter_that_ends_late_neither_comes_back_nor_speaks_for_its_successor(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, *, is_replaced: bool
) -> None:
    """After an exchange that did not wait for it, it would connect anew beside the new one, or end the gateway."""
    monkeypatch.setattr(supervisor_module, "END_TIMEOUT_S", 0.01)
    late, new = Stubborn("a", error), FakeChannel("a", Config())
    other = FakeChannel("b", Config())
    async with supervised(late, other) as (supervisor, accepted, _):
        await late.connected()
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "channel a"]
        await supervisor.exchange(["a"], [new] if is_replaced else [])
        if is_replaced:
            await new.connected()
        late.may_end.set()
        await asyncio.wait([task], timeout=60)
        assert task.done()
        assert late.connects == 1
        assert [status.state for status in supervisor._channels.statuses if status.name == "a"] == ["up"] * is_replaced
        await other.deliver(other.message("the others go on"))
        assert len(accepted) == 1


async def test_nothing_is_sent_through_a_channel_that_is_to_go_although_it_connects_anew_meanwhile() -> None:
    channel = FakeChannel("a", Config())
    async with supervised(channel) as (supervisor, _, _ups):
        await channel.connected()
        supervisor.hold("a")
        await channel.lose_connection()
        await channel.until(lambda: channel.connects == 2)
        await channel.connected()
        assert supervisor._channels.if_up("a") is None
        await supervisor.exchange(["a"], [new := FakeChannel("a", Config())])
        await new.connected()
        assert supervisor._channels.if_up("a") is new


@pytest.mark.parametrize(("passes", "failures"), [("new", [1, 1, 1]), ("sent", [1, 1, 1]), ("told again", [1, 2, 3])])
async def test_the_wait_grows_only_while_nothing_new_passes(
    monkeypatch: pytest.MonkeyPatch, passes: str, failures: list[int]
) -> None:
    """A line that breaks often and is of use each time is not punished; one that only tells the same again is."""
    waits: list[int] = []

    def noted(attempt: int, **_: float) -> float:
        waits.append(attempt)
        return 0.0

    monkeypatch.setattr(supervisor_module, "delay_s", noted)
    channel = FakeChannel("a", Config())
    first = channel.message("hi")
    async with supervised(channel) as (supervisor, _, _ups):
        for turn in range(3):
            await channel.until(lambda: channel.connects == turn + 1)  # noqa: B023 (awaited in this round)
            await channel.connected()
            if passes == "sent" and turn:
                supervisor._channels.exchanged("a")
            else:
                await channel.deliver(first if passes == "told again" else channel.message("hi"))
            await channel.lose_connection()
        await channel.until(lambda: channel.connects == 4)
        assert waits == failures
