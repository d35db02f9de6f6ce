"""Channels and replies in awkward moments: what leaks out of an adapter, what never ends, what cannot be recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from gateway.app.gateway import Gateway
from gateway.cli.running import _talk_beside
from gateway.config.file import load_config
from gateway.errors import (
    AdapterAuthFailed,
    AdapterNotReady,
    ModelUnavailable,
    StoreUnavailable,
    TransientSendError,
)
from gateway.messages import OutboundMessage
from gateway.pipeline import outbox as outbox_module
from gateway.pipeline import preview as preview_module
from gateway.pipeline import supervisor as supervisor_module
from gateway.pipeline.outbox import REPEAT_NOTE
from gateway.protocols import Accept
from gateway.store.outbox import SqlOutbox
from tests.fake_channel import Config, FakeChannel, FakeChannelWithPreviews
from tests.gateway.way.conftest import House
from tests.gateway.way.test_supervisor import supervised
from tests.scripted_model import Hang, ScriptedModel


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "AFTER_FAULT_S", 0.01)
    monkeypatch.setattr(supervisor_module, "LONGEST_RETRY_S", 0.002)


def unstarted(house: House, **settings: Any) -> Gateway:
    """A gateway that the test runs by itself."""
    settings.setdefault("channels", {"fake": {"kind": "tests.fake_channel"}})
    house.home.mkdir(mode=0o700, exist_ok=True)
    (house.home / "config.yaml").write_text(yaml.safe_dump(settings))
    return Gateway(house.home, load_config(home=house.home).config, is_served=False)


@pytest.mark.parametrize("method", ["record_sent", "record_retry"])
async def test_a_send_that_cannot_be_recorded_now_is_recorded_later_and_the_next_reply_goes_out(
    house: House, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    record = getattr(SqlOutbox, method)
    failures = [StoreUnavailable("the disk is full")] * 3

    async def failing(self, *args, **keywords):
        if failures:
            raise failures.pop()
        await record(self, *args, **keywords)

    monkeypatch.setattr(SqlOutbox, method, failing)
    async with house.gateway(ScriptedModel("one", "two")) as (_, channel):
        if method == "record_retry":
            channel.failures = [TransientSendError("busy")]
        first, second = await channel.say("a"), await channel.say("b")
        assert await channel.answers_to(first) == ["one"]
        assert await channel.answers_to(second) == ["two"]
        assert not failures


async def test_a_cancellation_that_leaks_out_of_a_send_is_uncertain_and_ends_no_sender(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "SENDERS", 1)
    async with house.gateway(ScriptedModel("hello", "next")) as (_, channel):
        channel.failures = [asyncio.CancelledError()]  # type: ignore[list-item]
        assert await channel.ask("a") == REPEAT_NOTE + "hello"
        assert await channel.ask("b") == "next"


@pytest.mark.parametrize("is_in_connect", [True, False])
async def test_a_cancellation_that_leaks_out_of_an_adapter_does_not_end_the_gateway(
    house: House, *, is_in_connect: bool
) -> None:
    async with house.gateway(ScriptedModel("hello")) as (_, channel):
        await channel.connected()
        if is_in_connect:
            channel.connect_failures = [asyncio.CancelledError()]  # type: ignore[list-item]
            await channel.lose_connection()
        else:
            assert channel._lost is not None
            channel._lost.cancel()
        await channel.until(lambda: channel.connects == (3 if is_in_connect else 2))
        assert await channel.ask("hi") == "hello"


async def test_the_gateway_goes_on_when_no_channel_can_be_used(house: House) -> None:
    """The operator sees on its pages what is wrong; a service that ends by itself would be started over and over."""
    stop = asyncio.Event()
    async with unstarted(house) as gateway:
        for adapter in gateway.adapters:
            assert isinstance(adapter, FakeChannel)
            adapter.connect_failures = [AdapterAuthFailed("the token was refused")]
        running = asyncio.create_task(gateway.run(stop))
        await asyncio.wait_for(gateway.supervisor.all_tried.wait(), 60)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not running.done()
        stop.set()
        await asyncio.wait_for(running, 60)


async def test_what_ended_a_connection_is_told_as_it_was_and_its_wait_is_kept() -> None:
    channel = FakeChannel("a", Config())
    with capture_logs() as logs:
        async with supervised(channel) as (supervisor, _, ups):
            await channel.lose_connection(AdapterNotReady("the platform is being mended", retry_after_s=3600))
            await asyncio.wait_for(_until(lambda: supervisor._channels.statuses[0].state == "down"), 60)
            assert supervisor._channels.statuses[0].error == "the platform is being mended"
            assert ups == ["a"]
            for _ in range(100):
                await asyncio.sleep(0)
            assert channel.connects == 1  # its wait is an hour
    assert "adapter_fault" not in [log["event"] for log in logs]


async def test_a_key_that_is_refused_in_a_running_connection_is_not_tried_again() -> None:
    channel = FakeChannel("a", Config())
    async with supervised(channel) as (supervisor, _, _ups):
        await channel.lose_connection(AdapterAuthFailed("the token was taken back"))
        await asyncio.wait_for(_until(lambda: supervisor._channels.statuses[0].state != "up"), 60)
        assert (supervisor._channels.statuses[0].state, supervisor._channels.statuses[0].error) == (
            "auth_failed",
            "the token was taken back",
        )
        assert channel.connects == 1


async def test_an_adapter_that_does_not_end_does_not_keep_the_gateway_from_ending(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "END_TIMEOUT_S", 0.01, raising=False)
    held = asyncio.Event()

    async def run(self: FakeChannel, accept: Accept) -> None:
        self._accept = accept
        await self._notify()
        try:
            await asyncio.Event().wait()
        finally:
            await held.wait()  # says good-bye to a platform that does not answer

    async def close(_self: FakeChannel) -> None:
        await held.wait()

    monkeypatch.setattr(FakeChannel, "run", run)
    monkeypatch.setattr(FakeChannel, "close", close)
    stop = asyncio.Event()
    async with unstarted(house) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        adapter = gateway.adapters[0]
        assert isinstance(adapter, FakeChannel)
        await adapter.connected()
        stop.set()
        await asyncio.wait_for(running, 60)
        held.set()


async def test_a_preview_that_never_ends_does_not_hold_up_a_parked_message(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview_module, "WITHDRAW_TIMEOUT_S", 0.01, raising=False)

    async def preview(self: FakeChannelWithPreviews, message: OutboundMessage) -> None:
        self.previews.append(message)
        await self._notify()
        if not message.text:
            await asyncio.Event().wait()

    monkeypatch.setattr(FakeChannelWithPreviews, "preview", preview)
    hang = Hang()
    model = ScriptedModel(["Hel", hang, ModelUnavailable("down", retry_after_s=3600)])
    async with house.gateway(model, fake={"has_previews": True}) as (_, channel):
        assert isinstance(channel, FakeChannelWithPreviews)
        message = await channel.say("hi")
        await channel.until(lambda: bool(channel.previews))
        hang.released.set()
        assert (await channel.answers_to(message))[0].startswith("I cannot reach my model")


async def test_a_preview_that_was_on_its_way_is_withdrawn_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def preview(self: FakeChannelWithPreviews, message: OutboundMessage) -> None:
        self.previews.append(message)  # the platform has it; its answer is on the way
        await self._notify()
        if message.text:
            await asyncio.Event().wait()

    monkeypatch.setattr(FakeChannelWithPreviews, "preview", preview)
    hang = Hang()
    model = ScriptedModel(["Hel", hang, ModelUnavailable("down", retry_after_s=3600)])
    async with house.gateway(model, fake={"has_previews": True}) as (_, channel):
        assert isinstance(channel, FakeChannelWithPreviews)
        message = await channel.say("hi")
        await channel.until(lambda: bool(channel.previews))
        hang.released.set()
        await channel.answers_to(message)
        assert [one.text for one in channel.previews] == ["Hel", ""]


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_a_chat_that_is_interrupted_ends_the_gateway_beside_it_before_its_store_is_closed(house: House) -> None:
    hang = Hang()
    house.home.mkdir(mode=0o700)
    (house.home / "config.yaml").write_text(yaml.safe_dump({"channels": {"fake": {"kind": "tests.fake_channel"}}}))
    config = load_config(home=house.home).config
    async with Gateway(house.home, config, is_served=False, model=lambda _name: ScriptedModel([hang])) as gateway:
        adapter = gateway.adapters[0]
        assert isinstance(adapter, FakeChannel)

        async def talk() -> int:
            await adapter.say("hello")
            await asyncio.Event().wait()
            return 0

        talking = asyncio.create_task(_talk_beside(gateway.run, talk(), asyncio.Event()))
        await asyncio.wait_for(hang.started.wait(), 60)
        talking.cancel()  # Ctrl-C without a prompt
        await asyncio.wait([talking])
        assert talking.cancelled()
        assert adapter.is_closed
        [row] = await gateway.store.deliveries.rows("inbox")
        assert (row.state, row.attempts) == ("waiting", 0)
