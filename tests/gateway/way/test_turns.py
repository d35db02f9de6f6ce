"""The way of a message through a whole gateway: from `accept` to what the person reads, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.agent.model import ModelEvent, ModelRequest
from gateway.errors import ModelRefused, ModelUnavailable
from gateway.messages import Sender
from tests.fake_channel import FakeChannelWithPreviews
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel, call


async def test_a_message_is_answered_in_reply_to_itself(house: House) -> None:
    async with house.gateway(ScriptedModel("Hello Ada.")) as (_, channel):
        message = await channel.say("hello")
        assert await channel.answers_to(message) == ["Hello Ada."]


async def test_a_redelivered_message_is_answered_once(house: House) -> None:
    async with house.gateway(ScriptedModel("one", "two")) as (_, channel):
        message = await channel.say("hello")
        await channel.answers_to(message)
        await channel.deliver(message)
        await channel.deliver(replace(message, event_id="another delivery of the same message"))
        assert await channel.ask("and now") == "two"
        assert len(channel.sent) == 2


async def test_an_event_that_comes_three_times_across_a_restart_is_answered_once(house: House) -> None:
    """Row 2."""
    async with house.gateway(ScriptedModel("one")) as (_, channel):
        message = await channel.say("hello")
        await channel.deliver(message)
        assert await channel.answers_to(message) == ["one"]
    async with house.gateway(ScriptedModel("two")) as (gateway, channel):
        await channel.deliver(message)
        await settled(gateway)
        assert not channel.sent
        other = channel.message("and now", id="other", event_id="other")
        await channel.deliver(other)
        assert await channel.answers_to(other) == ["two"]


@pytest.mark.slow
async def test_a_thousand_conversations_are_each_answered_one_message_at_a_time_and_in_order(house: House) -> None:
    """Row 3: 16 workers, and each conversation never has two of them."""
    running: set[str] = set()
    most = 0

    class Watching(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            nonlocal most
            conversation = request.messages[-1].text.split()[0]
            assert conversation not in running, "two turns of one conversation at once"
            running.add(conversation)
            most = max(most, len(running))
            await asyncio.sleep(0)
            async for event in ScriptedModel(request.messages[-1].text).stream(request):
                yield event
            running.discard(conversation)

    async with house.gateway(Watching(), limits={"running_turns": 16}) as (gateway, channel):
        places = [f"c{number}" for number in range(1000)]
        said = [
            await channel.say(f"{place} {turn}", conversation=place, user=str(number % 50))
            for turn in range(2)
            for number, place in enumerate(places)
        ]
        async with asyncio.timeout(300):
            while len(channel.sent) < len(said):
                await asyncio.sleep(0.05)
        answers: dict[str, list[str]] = {}
        for sent in channel.sent:
            answers.setdefault(sent.conversation.conversation, []).append(sent.text)
        assert answers == {place: [f"{place} 0", f"{place} 1"] for place in places}
        assert 1 < most <= 16
        assert gateway.dispatcher.running == 0


async def test_messages_of_a_conversation_are_answered_in_order(house: House) -> None:
    """Row 3."""
    async with house.gateway() as (_, channel):
        said = [await channel.say(f"echo {number}") for number in range(30)]
        await channel.answers_to(said[-1])
        assert [sent.reply_to for sent in channel.sent] == [message.id for message in said]


async def test_a_slow_turn_does_not_delay_another_conversation(house: House) -> None:
    """Row 3."""
    hang = Hang()

    class Model(ScriptedModel):
        async def stream(self, request):
            if request.messages[-1].text == "slow":
                hang.started.set()
                await hang.released.wait()
            async for event in ScriptedModel("done").stream(request):
                yield event

    async with house.gateway(Model()) as (_, channel):
        slow = await channel.say("slow", conversation="a")
        await asyncio.wait_for(hang.started.wait(), 60)
        assert await channel.ask("fast", conversation="b") == "done"
        assert not [sent for sent in channel.sent if sent.reply_to == slow.id]
        hang.released.set()
        assert await channel.answers_to(slow) == ["done"]


async def test_what_was_remembered_is_in_the_next_prompt_and_in_the_file(house: House) -> None:
    model = ScriptedModel(
        [call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')], "Noted.", "Tea."
    )
    async with house.gateway(model) as (gateway, channel):
        await channel.ask("I like tea")
        await channel.ask("what do I like?")
        assert "Likes tea." not in model.requests[1].system
        assert "## About You\n\nLikes tea." in model.requests[2].system
        await settled(gateway)
        user = (await gateway.identities.users())[0].id
        assert (house.home / "users" / user / "USER.md").read_text() == "Likes tea.\n"


async def test_the_same_person_is_known_after_a_restart_and_in_the_same_session(house: House) -> None:
    async with house.gateway(ScriptedModel("first")) as (_, channel):
        await channel.ask("one")
    model = ScriptedModel("second")
    async with house.gateway(model) as (gateway, channel):
        message = replace(channel.message("two"), id="later", event_id="later")
        await channel.deliver(message)
        await channel.answers_to(message)
        assert [one.text for one in model.requests[0].messages] == ["one", "first", "two"]
        assert len(await gateway.identities.users()) == 1


async def test_the_answer_is_previewed_and_the_final_message_has_the_previews_id(house: House) -> None:
    hang = Hang()
    model = ScriptedModel(["Hel", "lo", hang, " there"])
    async with house.gateway(model, fake={"has_previews": True}) as (_, channel):
        assert isinstance(channel, FakeChannelWithPreviews)
        message = await channel.say("hi")
        await channel.until(lambda: bool(channel.previews) and channel.previews[-1].text == "Hello")
        hang.released.set()
        assert await channel.answers_to(message) == ["Hello there"]
        assert {preview.id for preview in channel.previews} == {channel.sent[0].id}


async def test_stop_ends_the_running_answer_with_what_it_has(house: House) -> None:
    hang = Hang()
    async with house.gateway(ScriptedModel(["I was about to", hang], "next")) as (_, channel):
        message = await channel.say("long story please")
        await asyncio.wait_for(hang.started.wait(), 60)
        stop = await channel.say("/stop")
        assert await channel.answers_to(message) == ["I was about to"]
        assert await channel.answers_to(stop) == ["Stopped."]
        assert await channel.ask("go on") == "next"


@pytest.mark.parametrize("shows_log", [True, False])
async def test_one_message_says_that_an_answer_without_words_was_stopped(house: House, *, shows_log: bool) -> None:
    """Where people read the log, an answer without text ends the wait for the first message; elsewhere none is sent."""
    hang = Hang()
    async with house.gateway(ScriptedModel([hang])) as (gateway, channel):
        channel.capabilities = replace(channel.capabilities, shows_log=shows_log)
        message = await channel.say("tell me")
        await asyncio.wait_for(hang.started.wait(), 60)
        assert await channel.ask("/stop") == "Stopped."
        assert await channel.answers_to(message, 0) == ([""] if shows_log else [])
        await settled(gateway)
        assert {row.state for row in await gateway.store.deliveries.rows("outbox", chosen="all")} == {"sent"}


async def test_a_menu_that_waits_for_words_is_told_that_its_answer_was_stopped(house: House) -> None:
    hang = Hang()
    async with house.gateway(ScriptedModel("one", [hang])) as (_, channel):
        await channel.ask("hi")
        retry = replace(channel.message("/retry"), command="retry")
        await channel.deliver(retry)
        await asyncio.wait_for(hang.started.wait(), 60)
        assert await channel.ask("/stop") == "Stopped."
        assert await channel.answers_to(retry) == ["Stopped."]


async def test_stop_without_anything_running_says_so(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (_, channel):
        assert await channel.ask("/stop") == "Nothing is running."


async def test_a_model_that_is_down_parks_the_message_tells_the_person_once_and_answers_later(house: House) -> None:
    down = [[ModelUnavailable("no route", retry_after_s=0.0)]] * 3
    async with house.gateway(ScriptedModel(*down, "here I am")) as (gateway, channel):
        message = await channel.say("are you there?")
        told, answer = await channel.answers_to(message, 2)
        assert told.startswith("I cannot reach my model right now. Your message is kept")
        assert "no route" not in told
        assert answer == "here I am"
        assert gateway.parking.parked == 0


async def test_while_a_message_is_parked_those_behind_it_wait_and_keep_their_order(house: House) -> None:
    async with house.gateway(ScriptedModel([ModelUnavailable("down", retry_after_s=3600)], "a", "b")) as (_, channel):
        first = await channel.say("first")
        await channel.answers_to(first)
        second = await channel.say("second")
        retry = await channel.say("/retry")
        assert (await channel.answers_to(first, 2))[1] == "a"
        assert await channel.answers_to(second) == ["b"]
        assert await channel.answers_to(retry) == ["I tried the message that was waiting."]


async def test_stop_drops_a_parked_message(house: House) -> None:
    async with house.gateway(ScriptedModel([ModelUnavailable("down", retry_after_s=3600)], "fine")) as (_, channel):
        first = await channel.say("first")
        await channel.answers_to(first)
        stop = await channel.say("/stop")
        assert await channel.answers_to(stop) == ["Stopped."]
        assert len(await channel.answers_to(first, 0)) == 1, "that it is parked"
        assert await channel.ask("second") == "fine"


async def test_a_parked_message_is_answered_after_a_restart(house: House) -> None:
    async with house.gateway(ScriptedModel([ModelUnavailable("down", retry_after_s=0.2)])) as (_, channel):
        first = await channel.say("first")
        await channel.answers_to(first)
    async with house.gateway(ScriptedModel("at last")) as (_, channel):
        assert await channel.answers_to(first) == ["at last"]


async def test_a_refused_request_is_told_and_the_conversation_goes_on(house: House) -> None:
    async with house.gateway(ScriptedModel([ModelRefused("too long")], "fine")) as (_, channel):
        assert await channel.ask("a") == "The model does not answer this: too long"
        assert await channel.ask("b") == "fine"


async def test_a_poison_message_becomes_a_dead_letter_with_its_reason_and_its_conversation_goes_on(
    house: House,
) -> None:
    faults = [[RuntimeError("boom")]] * 8
    async with house.gateway(ScriptedModel(*faults, "fine")) as (gateway, channel):
        poison = await channel.say("poison")
        good = await channel.say("good")
        told = (await channel.answers_to(poison))[0]
        assert told.startswith("Something went wrong here")
        assert f"your message `{poison.text}`" in told, "which one"
        assert await channel.answers_to(good) == ["fine"]
        dead = await gateway.store.deliveries.rows("inbox", chosen="dead")
        assert [row.error for row in dead] == ["RuntimeError: boom"]


async def test_a_turn_that_takes_too_long_ends_with_a_word(house: House) -> None:
    async with house.gateway(ScriptedModel([Hang()]), limits={"turn_timeout_s": 0.05}) as (_, channel):
        assert (await channel.ask("hello")).startswith("I gave up: the answer took longer than 0.05 seconds.")


async def test_a_message_that_is_too_long_or_empty_is_answered_with_the_reason(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (_, channel):
        assert await channel.ask("x" * 5_000_000) == (
            "Your message has 5000000 characters; I read at most 100000. Please send the part that matters."
        )
        assert await channel.ask(" \n ") == "Your message came without any text."


async def test_nuls_and_lone_surrogates_do_no_harm(house: House) -> None:
    model = ScriptedModel("ok")
    async with house.gateway(model) as (_, channel):
        assert await channel.ask("a\0b\ud800c") == "ok"
        assert model.requests[0].messages[-1].text == "ab\ufffdc"


async def test_strangers_are_refused_and_leave_no_trace_in_the_identity_map(house: House) -> None:
    async with house.gateway(ScriptedModel(), fake={"access": "allowlist", "allow": ["2"]}) as (gateway, channel):
        assert "`1`" in await channel.ask("let me in", user="1")
        assert await gateway.identities.users() == []


async def test_an_account_without_proof_and_a_group_that_does_not_speak_to_the_bot_get_no_answer(house: House) -> None:
    async with house.gateway(ScriptedModel("yes")) as (_, channel):
        unproved = channel.message("hi")
        await channel.deliver(
            replace(unproved, sender=Sender(channel="fake", user="1", display_name="x", is_verified=False))
        )
        assert await channel.answers_to(unproved) == ["I cannot tell who wrote this, so I do not answer it."]
        await channel.deliver(channel.message("chatter", conversation="group", is_direct=False))
        mention = channel.message("bot?", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(mention)
        assert await channel.answers_to(mention) == ["yes"]
        assert len(channel.sent) == 2


async def test_a_broken_personality_is_told_and_another_can_be_chosen(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        directory = house.home / "personalities" / "pirate"
        directory.mkdir()
        (directory / "SOUL.md").write_text("You are a pirate.")
        assert await channel.ask("/personality pirate") == "From now on **Pirate** answers here."
        (directory / "SOUL.md").unlink()
        directory.rmdir()
        assert "/personality" in await channel.ask("hello")
        await channel.ask("/personality assistant")
        assert await channel.ask("hello") == "hello"
        assert gateway.dispatcher.running == 0
