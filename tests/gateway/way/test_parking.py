"""Parking: when nothing can be answered, people are told once, wait in order, and are answered, or told that not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.app.gateway import Gateway
from gateway.errors import ModelUnavailable
from gateway.tools.journal import KeptCall
from tests.conformance.stores import call_row
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

FAR = ModelUnavailable("over quota", retry_after_s=3600)


class Switch:
    """A model that is down until it is switched on, and remembers in which order it was asked then."""

    name = "switch"

    def __init__(self) -> None:
        self.is_on = False
        self.tries = 0
        self.answered: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.tries += 1
        if not self.is_on:
            raise FAR
        self.answered.append(request.messages[-1].text)
        usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1)
        yield ModelReply(message=ChatMessage(role="assistant", text="here"), usage=usage)


async def parked(gateway: Gateway) -> int:
    return (await gateway.health()).conversations_parked


async def test_each_conversation_is_told_once_in_an_outage_and_answered_in_order_oldest_first(house: House) -> None:
    """Row 5: the model is down for as long as it likes; nobody is forgotten, nobody is told twice."""
    model = Switch()
    async with house.gateway(model, limits={"running_turns": 1}) as (gateway, channel):
        messages = [
            await channel.say(f"{number} of {who}", conversation=who, user=who)
            for number in (1, 2)
            for who in ("ada", "ben", "cleo")
        ]
        for message in messages[:3]:
            assert "I cannot reach my model" in (await channel.answers_to(message))[0]
        await settled(gateway)
        assert await parked(gateway) == 3
        assert len(channel.sent) == 3
        model.is_on = True
        last = await channel.say("hello", conversation="dora", user="dora")
        assert await channel.answers_to(last) == ["here"]
        for message in messages:
            assert (await channel.answers_to(message, 1))[-1] is not None
        await channel.until(lambda: sum(one.text == "here" for one in channel.sent) == 7)
        assert model.answered == [
            "hello",
            *(f"{number} of {who}" for number in (1, 2) for who in ("ada", "ben", "cleo")),
        ]
        assert sum("cannot reach" in one.text for one in channel.sent) == 3
        await settled(gateway)
        assert await parked(gateway) == 0


async def test_who_was_told_is_not_told_again_of_another_message_in_the_same_outage(house: House) -> None:
    model = Switch()
    async with house.gateway(model) as (gateway, channel):
        assert "I cannot reach my model" in await channel.ask("one")
        assert await channel.ask("/stop") == "Stopped."
        second = await channel.say("two")
        await settled(gateway)
        assert await parked(gateway) == 1
        assert not [one for one in channel.sent if one.reply_to == second.id]
        model.is_on = True
        assert await channel.ask("hello", conversation="other") == "here"
        assert await channel.answers_to(second) == ["here"]
        model.is_on = False
        assert "I cannot reach my model" in await channel.ask("three")  # that is another outage


async def test_after_a_restart_nobody_is_told_again_and_the_model_that_answers_one_answers_all(house: House) -> None:
    async with house.gateway(Switch()) as (_, channel):
        waiting = [await channel.say("hi", conversation=str(number)) for number in range(3)]
        for message in waiting:
            await channel.answers_to(message)
    model = Switch()
    async with house.gateway(model) as (gateway, channel):
        await channel.connected()
        assert await parked(gateway) == 3
        model.is_on = True
        fresh = channel.message("hello", conversation="fresh", id="fresh", event_id="fresh")
        await channel.deliver(fresh)
        for message in (fresh, *waiting):
            assert await channel.answers_to(message) == ["here"]
        assert len(channel.sent) == 4


@pytest.mark.parametrize("how", ["stop", "drop"])
async def test_what_is_dropped_is_no_longer_counted_as_parked(house: House, how: str) -> None:
    async with house.gateway(ScriptedModel([FAR])) as (gateway, channel):
        await channel.ask("one")
        await settled(gateway)
        assert await parked(gateway) == 1
        if how == "stop":
            await channel.ask("/stop")
        else:
            [row] = await gateway.store.deliveries.rows("inbox")
            await gateway.store.deliveries.drop("inbox", row.id)
        await settled(gateway)
        assert await parked(gateway) == 0


async def test_what_waited_too_long_is_given_up_with_a_word_and_stays_among_the_dead_letters(house: House) -> None:
    down = [ModelUnavailable("down")]
    model = ScriptedModel(down, down, "here", "late")
    async with house.gateway(model, limits={"parked_expire_after_h": 1e-9}) as (gateway, channel):
        message = await channel.say("one")
        told, given_up = await channel.answers_to(message, 2)
        assert "I cannot reach my model" in told
        assert "I could not answer this message within 1e-09 hours" in given_up
        assert await channel.ask("two") == "here"
        [dead] = await gateway.store.deliveries.rows("inbox", chosen="dead")
        assert dead.error is not None
        assert "expired" in dead.error
        assert "down" in dead.error
        conversation = await gateway.store.deliveries.retry("inbox", dead.id)
        assert conversation is not None
        assert await gateway.store.inbox.parked() == []  # it begins anew, and is not given up at the first failure
        gateway.dispatcher.look()
        assert (await channel.answers_to(message, 3))[-1] == "late"


async def test_a_personality_whose_model_is_not_set_up_leaves_its_message_parked_with_a_clear_reason(
    house: House,
) -> None:
    """It used to end as a dead letter after eight tries."""
    directory = house.home / "personalities" / "broken"
    directory.mkdir(parents=True, mode=0o700)
    (directory / "SOUL.md").write_text("You are broken.")
    (directory / "personality.yaml").write_text("model: cloud\n")
    house.home.chmod(0o700)
    cloud = {"provider": "openai", "model": "m", "api_key": "schlüssel"}
    settings = {"models": {"cloud": cloud}, "personality": "broken"}
    async with house.gateway(**settings) as (gateway, channel):
        message = await channel.say("hello")
        assert "I cannot reach my model" in (await channel.answers_to(message))[0]
        await settled(gateway)
        [row] = await gateway.store.deliveries.rows("inbox")
        assert row.state in ("parked", "running")
        assert row.error is not None
        assert "api_key" in row.error
    cloud["api_key"] = "key"
    async with house.gateway(ScriptedModel("mended"), **settings) as (_, channel):
        assert await channel.answers_to(message) == ["mended"]


async def test_a_stop_that_comes_when_the_answer_is_being_committed_does_not_claim_to_have_stopped_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(ScriptedModel("the whole answer", "next")) as (gateway, channel):
        commit, committing, released = gateway.store.turns.commit_turn, asyncio.Event(), asyncio.Event()

        async def held(turn: object) -> None:
            if not committing.is_set():
                committing.set()
                await released.wait()
            return await commit(turn)  # type: ignore[arg-type]

        monkeypatch.setattr(type(gateway.store.turns), "commit_turn", staticmethod(held))
        message = await channel.say("tell me")
        await asyncio.wait_for(committing.wait(), 60)
        stop = await channel.say("/stop")
        released.set()
        assert await channel.answers_to(message) == ["the whole answer"]
        assert await channel.answers_to(stop) == ["Nothing is running."]
        assert await channel.ask("more") == "next"


async def test_a_stop_that_comes_when_the_message_is_being_parked_drops_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(ScriptedModel([FAR])) as (gateway, channel):
        commit, committing, released = gateway.store.turns.commit_turn, asyncio.Event(), asyncio.Event()

        async def held(turn: object) -> None:
            if not committing.is_set():
                committing.set()
                await released.wait()
            return await commit(turn)  # type: ignore[arg-type]

        monkeypatch.setattr(type(gateway.store.turns), "commit_turn", staticmethod(held))
        message = await channel.say("tell me")
        await asyncio.wait_for(committing.wait(), 60)
        stop = await channel.say("/stop")
        released.set()
        assert await channel.answers_to(stop) == ["Stopped."]
        assert len(await channel.answers_to(message, 0)) == 1, "that it is parked"


async def test_a_poison_message_among_a_hundred_good_ones_is_the_only_one_that_fails(house: House) -> None:
    """Row 7: it goes to the dead letters after 8 tries, with its reason, and its conversation goes on."""

    class Picky:
        name = "picky"

        def __init__(self) -> None:
            self.tries = 0

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            asked = request.messages[-1].text
            if asked == "poison":
                self.tries += 1
                raise RuntimeError("boom")
            usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1)
            yield ModelReply(message=ChatMessage(role="assistant", text=f"re {asked}"), usage=usage)

    model = Picky()
    async with house.gateway(model) as (gateway, channel):
        texts = (
            [f"good {number}" for number in range(50)] + ["poison"] + [f"good {number}" for number in range(50, 100)]
        )
        messages = [await channel.say(text, conversation="same") for text in texts[40:60]]
        messages += [
            await channel.say(text, conversation=str(at)) for at, text in enumerate(texts) if not 40 <= at < 60
        ]
        for message in messages:
            [answer] = await channel.answers_to(message)
            expected = "Something went wrong here" if message.text == "poison" else f"re {message.text}"
            assert answer.startswith(expected)
        assert model.tries == 8
        same = [one.text for one in channel.sent if one.conversation.conversation == "same"]
        assert [text.startswith("re ") for text in same] == [True] * 10 + [False] + [True] * 9
        [dead] = await gateway.store.deliveries.rows("inbox", chosen="dead")
        assert (dead.text, dead.attempts, dead.error) == ("poison", 8, "RuntimeError: boom")


async def test_what_the_operator_drops_leaves_no_steps_behind(house: House) -> None:
    async with house.gateway(ScriptedModel([FAR])) as (gateway, channel):
        await channel.ask("one")
        await settled(gateway)
        [row] = await gateway.store.deliveries.rows("inbox")
        await gateway.store.turns.save_steps(row.turn_id, "{}", is_durable=True)
        await gateway.store.turns.begin_call(call_row(row.turn_id))
        await gateway.store.deliveries.drop("inbox", row.id)
        assert await gateway.store.turns.load_steps(row.turn_id) is None
        assert await gateway.store.turns.kept_call(call_row(row.turn_id).key) == KeptCall(
            outcome="uncertain", result=None
        )
