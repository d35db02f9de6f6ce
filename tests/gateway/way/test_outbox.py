"""Replies: sent once, in order, tried again when that is safe, and never dropped in silence."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import AdapterNotReady, PermanentSendError, TransientSendError, UncertainSendError
from gateway.messages import OutboundMessage, Receipt
from gateway.outbox import REPEAT_NOTE
from tests.fake_channel import FakeChannel, FakeChannelWithPreviews
from tests.gateway.way.conftest import House
from tests.scripted_model import Hang, ScriptedModel


async def test_a_transient_failure_is_tried_again_until_it_arrives(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (_, channel):
        channel.failures = [TransientSendError("busy")] * 5
        assert await channel.ask("hi") == "hello"
        assert channel.attempts == 6


async def test_the_platforms_own_word_on_when_to_come_back_is_honoured(house: House) -> None:
    async with house.gateway(ScriptedModel("hello", "other")) as (gateway, channel):
        channel.failures = [TransientSendError("slow down", retry_after_s=3600)]
        await channel.say("hi", conversation="limited")
        await channel.until(lambda: channel.attempts == 1)
        assert await channel.ask("hi", conversation="free") == "other"  # another conversation is not held up
        await gateway.outbox.drain(10)
        [row] = await gateway.store.deliveries.rows("outbox", chosen="open")
        assert row.due_in_s == pytest.approx(3600, abs=30)


async def test_after_eight_tries_a_reply_is_a_dead_letter_with_its_reason_and_the_next_one_goes_out(
    house: House,
) -> None:
    """Row 7."""
    async with house.gateway(ScriptedModel("lost", "next")) as (gateway, channel):
        channel.failures = [TransientSendError("still busy")] * 8
        first = await channel.say("a")
        await channel.until(lambda: channel.attempts == 8)
        assert await channel.ask("b") == "next"
        assert not [sent for sent in channel.sent if sent.reply_to == first.id]
        [dead] = await gateway.store.deliveries.rows("outbox", chosen="dead")
        assert dead.error == "still busy"


async def test_a_permanent_failure_is_a_dead_letter_at_once(house: House) -> None:
    async with house.gateway(ScriptedModel("lost", "next")) as (gateway, channel):
        channel.failures = [PermanentSendError("the bot was blocked")]
        await channel.say("a")
        assert await channel.ask("b") == "next"
        [dead] = await gateway.store.deliveries.rows("outbox", chosen="dead")
        assert dead.error == "the bot was blocked"


async def test_an_uncertain_send_is_repeated_plainly_where_that_shows_one_message(house: House) -> None:
    """Row 6: where the platform takes an id once."""
    async with house.gateway(ScriptedModel("hello", "next"), fake={"is_idempotent": True}) as (_, channel):
        channel.failures_after = [UncertainSendError("the line broke")]
        await channel.ask("a")
        assert await channel.ask("b") == "next"
        assert [sent.text for sent in channel.sent] == ["hello", "next"]
        assert channel.attempts == 3


async def test_an_uncertain_send_is_marked_where_nobody_can_tell(house: House) -> None:
    """Row 6: where it can do neither, the person is told."""
    async with house.gateway(ScriptedModel("hello", "next")) as (_, channel):
        channel.failures_after = [UncertainSendError("the line broke")]
        await channel.ask("a")
        assert await channel.ask("b") == "next"
        assert [sent.text for sent in channel.sent] == ["hello", REPEAT_NOTE + "hello", "next"]


@pytest.mark.parametrize("has_arrived", [True, False])
async def test_a_platform_that_can_be_asked_is_asked(
    house: House, monkeypatch: pytest.MonkeyPatch, *, has_arrived: bool
) -> None:
    """Row 6: where the platform can be asked."""

    async def find_sent(self: FakeChannel, message: OutboundMessage) -> Receipt | None:
        found = any(sent.id == message.id for sent in self.sent)
        assert found is has_arrived
        return Receipt(message_ids=("found",)) if found else None

    monkeypatch.setattr(FakeChannel, "find_sent", find_sent, raising=False)
    async with house.gateway(ScriptedModel("hello", "next")) as (_, channel):
        failures = channel.failures_after if has_arrived else channel.failures
        failures.append(UncertainSendError("the line broke"))
        await channel.ask("a")
        await channel.ask("b")
        assert [sent.text for sent in channel.sent] == ["hello", "next"]


async def test_an_adapter_that_breaks_its_contract_counts_as_uncertain(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (_, channel):
        channel.failures = [KeyError("surprise")]
        assert await channel.ask("a") == REPEAT_NOTE + "hello"


async def test_replies_wait_while_the_channel_is_down_and_no_attempt_is_counted(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        message = channel.message("hi")
        await channel.connected()
        channel.connect_failures = [AdapterNotReady("gone", retry_after_s=3600)]
        await channel.lose_connection()
        await channel.until(lambda: channel.connects == 2)
        await gateway.inbox.accept(message)
        await gateway.dispatcher._lanes.idle()
        await gateway.outbox._lanes.idle()
        [row] = await gateway.store.deliveries.rows("outbox", chosen="open")
        assert (row.attempts, channel.attempts) == (0, 0)
    async with house.gateway(ScriptedModel()) as (_, channel):  # the next start delivers it
        assert await channel.answers_to(message) == ["hello"]


async def test_a_preview_waits_until_the_earlier_reply_is_out_because_it_would_stand_in_front_of_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang, shown = Hang(), []
    async with house.gateway(ScriptedModel("one", ["two", hang, " and more"]), fake={"has_previews": True}) as (
        _,
        channel,
    ):
        assert isinstance(channel, FakeChannelWithPreviews)
        preview, send = channel.preview, channel.send

        async def watched_preview(message: OutboundMessage) -> None:
            shown.append(("preview", message.text))
            await preview(message)

        async def watched_send(message: OutboundMessage) -> Receipt:
            receipt = await send(message)
            shown.append(("sent", message.text))
            return receipt

        monkeypatch.setattr(channel, "preview", watched_preview)
        monkeypatch.setattr(channel, "send", watched_send)
        channel.failures.append(TransientSendError("not now", retry_after_s=0.2))
        await channel.say("first")
        second = await channel.say("second")
        await asyncio.wait_for(hang.started.wait(), 10)
        await channel.until(lambda: any(one.text == "two" for one in channel.previews))
        hang.released.set()
        assert await channel.answers_to(second) == ["two and more"]
    texts = [text for kind, text in shown if (kind, text) != ("preview", "one")]
    assert texts.index("one") < texts.index("two") < texts.index("two and more")
