"""Replies: sent once, in order, tried again when that is safe, and never dropped in silence."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.errors import AdapterNotReady, PermanentSendError, TransientSendError, UncertainSendError
from gateway.messages import OutboundMessage, Receipt
from gateway.pipeline import delivery_retries
from gateway.pipeline import outbox as outbox_module
from gateway.pipeline.commit import TurnCommit
from gateway.pipeline.outbox import REPEAT_NOTE
from tests.fake_channel import FakeChannel, FakeChannelWithPreviews
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel


async def test_a_transient_failure_is_tried_again_until_it_arrives(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (_, channel):
        channel.failures = [TransientSendError("busy")] * 5
        assert await channel.ask("hi") == "hello"
        assert channel.attempts == 6


async def test_who_waits_for_the_next_send_is_woken_by_it_and_by_an_announced_reply(house: House) -> None:
    """The exchange of a channel and an erasure wait so; else each would wait until its time is over."""
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel), asyncio.timeout(60):
        sent = gateway.outbox.next_send
        asked = await channel.say("hi")
        await sent.wait()
        await settled(gateway)
        announced = gateway.outbox.next_send
        reply = OutboundMessage(id="t.reply", conversation=asked.conversation, text="told")
        await gateway.outbox.announce("t", reply)
        assert announced.is_set()
        assert not gateway.outbox.next_send.is_set()


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
        channel.failures = [UncertainSendError("nobody knows")] * 8
        first = await channel.say("a")
        await channel.until(lambda: channel.attempts == 8)
        assert await channel.ask("b") == "next"
        told = [sent.text for sent in channel.sent if sent.reply_to == first.id]
        assert told == ["I have an answer that I could not deliver, and have given it up. Please ask me again."]
        [dead] = await gateway.store.deliveries.rows("outbox", chosen="dead")
        assert dead.error == "nobody knows"


async def test_an_outage_of_the_platform_does_not_count_however_often_it_is_tried(house: House) -> None:
    async with house.gateway(ScriptedModel("late", "next")) as (gateway, channel):
        channel.failures = [TransientSendError("HTTP 503")] * 10_000
        asked = await channel.say("a")
        await channel.until(lambda: channel.attempts == 30)
        [trouble] = [problem for problem in (await gateway.health()).problems if "HTTP 503" in problem]
        assert trouble.startswith("fake has taken no reply for 1 min, all are kept and tried again")
        channel.failures.clear()
        assert await channel.answers_to(asked) == ["late"]
        await gateway.outbox.caught_up(asked.conversation)
        assert not (await gateway.health()).problems


async def test_a_reply_that_is_delivered_again_lets_those_that_were_put_off_go_at_once(house: House) -> None:
    slow = {"first_retry_s": 3000, "longest_retry_s": 3600}
    async with house.gateway(ScriptedModel("one", "two", "three"), delivery=slow) as (_, channel):
        channel.failures = [TransientSendError("HTTP 503")] * 2
        waiting = [await channel.say("a", conversation="1"), await channel.say("b", conversation="2")]
        await channel.until(lambda: channel.attempts == 2)
        await channel.ask("c", conversation="3")
        assert [len(await channel.answers_to(asked)) for asked in waiting] == [1, 1]


async def test_a_channel_that_is_connected_again_lets_what_was_put_off_go_at_once(house: House) -> None:
    slow = {"first_retry_s": 3000, "longest_retry_s": 3600}
    async with house.gateway(ScriptedModel("one"), delivery=slow) as (_, channel):
        channel.failures = [TransientSendError("HTTP 503")]
        asked = await channel.say("a")
        await channel.until(lambda: channel.attempts == 1)
        await channel.lose_connection()
        assert await channel.answers_to(asked) == ["one"]


async def test_after_a_restart_what_was_put_off_goes_at_once_when_the_channel_comes_up(house: House) -> None:
    slow = {"first_retry_s": 3000, "longest_retry_s": 3600}
    async with house.gateway(ScriptedModel("one", "two"), delivery=slow) as (_, channel):
        channel.failures = [TransientSendError("HTTP 503")]
        asked = await channel.say("a")
        await channel.until(lambda: channel.attempts == 1)
        behind = await channel.say("b")
    async with house.gateway(ScriptedModel("two"), delivery=slow) as (_, channel):
        assert await channel.answers_to(behind) == ["two"]
        assert [sent.reply_to for sent in channel.sent] == [asked.id, behind.id], "in the order of the conversation"


async def test_after_a_restart_the_platforms_own_word_on_when_to_come_back_is_still_honoured(house: House) -> None:
    async with house.gateway(ScriptedModel("late")) as (_, channel):
        channel.failures = [TransientSendError("HTTP 503"), TransientSendError("slow down", retry_after_s=1800)]
        await channel.say("a", conversation="limited")
        await channel.until(lambda: channel.attempts == 2)
    async with house.gateway(ScriptedModel("other")) as (gateway, channel):
        channel.message("a")  # the one before the restart
        assert await channel.ask("b", conversation="free") == "other"
        await gateway.outbox.drain(10)
        assert channel.attempts == 1


async def test_after_a_restart_a_platform_that_is_still_down_is_asked_as_seldom_as_before(house: House) -> None:
    async with house.gateway(ScriptedModel("late"), delivery={"first_retry_s": 0.001}) as (gateway, channel):
        channel.failures = [TransientSendError("HTTP 503")] * 99
        await channel.say("a")
        await channel.until(lambda: channel.attempts == 9)  # which takes an eighth of a second at least
        [row] = await gateway.store.deliveries.rows("outbox", chosen="open")
        assert row.due_in_s is not None
    async with house.gateway(ScriptedModel(), delivery={"first_retry_s": 0.001}) as (gateway, channel):
        channel.failures = [TransientSendError("HTTP 503")] * 99
        await channel.until(lambda: channel.attempts == 1)
        await gateway.outbox.drain(10)
        [row] = await gateway.store.deliveries.rows("outbox", chosen="open")
        assert row.due_in_s is not None
        assert row.due_in_s > 0.03, "a first failure would be tried again after a thousandth"


async def _reconnect(channel: FakeChannel) -> None:
    connects = channel.connects
    await channel.lose_connection()
    await channel.until(lambda: channel.connects > connects)
    await channel.connected()


async def test_a_channel_that_comes_and_goes_hurries_what_was_put_off_once_in_a_while(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"first_retry_s": 3000, "longest_retry_s": 3600}
    async with house.gateway(ScriptedModel("one"), delivery=slow) as (gateway, channel):
        channel.failures = [TransientSendError("HTTP 503")] * 2
        asked = await channel.say("a")
        await channel.until(lambda: channel.attempts == 1)
        for _ in range(3):
            await _reconnect(channel)
            await gateway.outbox.drain(10)
        assert channel.attempts == 2, "the second connection alone tried it"
        monkeypatch.setattr(delivery_retries, "EARLY_S", 0.0)
        gateway.outbox._retries._retry_early_after_pause("fake")  # its time has come
        assert await channel.answers_to(asked) == ["one"]


async def test_a_platform_that_is_slow_to_take_replies_leaves_senders_to_the_other_channels(house: House) -> None:
    channels = {name: {"kind": "tests.fake_channel"} for name in ("fake", "slow")}
    async with house.gateway(ScriptedModel(*["hello"] * 90), channels=channels) as (gateway, channel):
        slow = gateway.adapters[1]
        assert isinstance(slow, FakeChannel)
        await slow.connected()
        await slow._changed.acquire()  # it takes what is sent, and does not say so
        try:
            for number in range(80):
                await gateway.inbox.accept(slow.message("a", conversation=str(number), user=str(number)))
            await gateway.dispatcher.idle()
            assert await channel.ask("b") == "hello"
        finally:
            slow._changed.release()
        await slow.until(lambda: len(slow.sent) == 80)


async def test_who_waited_an_hour_for_a_reply_is_told_that_it_is_late(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "LATE_S", 0.0)
    async with house.gateway(ScriptedModel("one", "two")) as (_, channel):
        channel.failures = [TransientSendError("HTTP 503")]
        asked = await channel.say("a")
        await channel.until(lambda: len(channel.sent) == 2)
        assert [(sent.text, sent.reply_to) for sent in channel.sent] == [
            ("one", asked.id),
            ("My last answer comes late: it could not be delivered here for 1 min.", asked.id),
        ]
        assert await channel.ask("b") == "two", "and nothing is said where nothing was late"


async def test_after_a_day_of_outage_a_reply_is_given_up_and_the_person_told_when_it_is_over(house: House) -> None:
    delivery = {"first_retry_s": 0.001, "longest_retry_s": 0.001, "give_up_after_h": 1e-9}
    async with house.gateway(ScriptedModel("lost"), delivery=delivery) as (gateway, channel):
        channel.failures = [TransientSendError("HTTP 503")] * 2
        asked = await channel.say("a")
        [told] = await channel.answers_to(asked)
        assert "given it up" in told
        [dead] = await gateway.store.deliveries.rows("outbox", chosen="dead")
        assert dead.error == "HTTP 503"


async def test_a_channel_is_in_no_trouble_for_a_reply_that_does_not_wait_any_more(house: House) -> None:
    async with house.gateway(ScriptedModel("lost")) as (gateway, channel):
        channel.failures = [TransientSendError("HTTP 503"), PermanentSendError("the bot was blocked")]
        asked = await channel.say("a")
        await channel.until(lambda: channel.attempts == 2)
        await gateway.outbox.caught_up(asked.conversation)
        assert not gateway.outbox.troubles


async def test_a_platform_that_asks_for_a_pause_without_end_is_tried_again_within_a_week(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        channel.failures = [TransientSendError("slow down", retry_after_s=1e30)]
        await channel.say("a")
        await channel.until(lambda: channel.attempts == 1)
        await gateway.outbox.drain(10)
        [row] = await gateway.store.deliveries.rows("outbox", chosen="open")
        assert row.due_in_s == pytest.approx(7 * 24 * 3600, abs=30)
        assert gateway.outbox.troubles, "whoever is kept waiting for so long is told why"


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
        await gateway.dispatcher.idle()
        await gateway.outbox._queue.idle()
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
        await asyncio.wait_for(hang.started.wait(), 60)
        await channel.until(lambda: any(one.text == "two" for one in channel.previews))
        hang.released.set()
        assert await channel.answers_to(second) == ["two and more"]
    texts = [text for kind, text in shown if (kind, text) != ("preview", "one")]
    assert texts.index("one") < texts.index("two") < texts.index("two and more")


async def test_where_people_read_the_log_a_reply_is_delivered_by_its_commit(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit and no queue: the channel is only told."""
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        channel.capabilities = replace(channel.capabilities, shows_log=True)
        commit, rows = gateway.store.turns.commit_turn, []

        async def look(turn: TurnCommit) -> bool:
            has_more = await commit(turn)
            rows.extend(await gateway.store.deliveries.rows("outbox", chosen="all"))
            return has_more

        monkeypatch.setattr(gateway.store.turns, "commit_turn", look)
        assert await channel.ask("hi") == "hello"
        assert [(row.state, row.attempts) for row in rows] == [("sent", 1)]
        assert channel.attempts == 1
        assert await gateway.store.outbox.unsent() == []


async def test_a_channel_that_fails_to_hear_of_the_log_keeps_no_reply_from_its_people(house: House) -> None:
    async with house.gateway(ScriptedModel("hello", "there")) as (gateway, channel):
        channel.capabilities = replace(channel.capabilities, shows_log=True)
        channel.failures = [RuntimeError("a fault of the adapter")]
        await channel.say("hi")
        assert await channel.ask("and again") == "there"
        rows = await gateway.store.deliveries.rows("outbox", chosen="all")
        assert [row.state for row in rows] == ["sent", "sent"]
        assert channel.attempts == 2, "neither is sent again"


async def test_a_channel_of_a_log_that_is_down_hears_of_its_replies_when_it_is_up(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        channel.capabilities = replace(channel.capabilities, shows_log=True)
        status = gateway.outbox._channels.status(channel.name)
        status.is_leaving = True
        message = await channel.say("hi")
        await settled(gateway)
        [row] = await gateway.store.deliveries.rows("outbox", chosen="all")
        assert (row.state, channel.attempts) == ("waiting", 0)
        status.is_leaving = False
        gateway.outbox.channel_is_up(channel.name)
        assert await channel.answers_to(message) == ["hello"]
