"""The agent asks with buttons, and what is pressed is a message of the person."""

from __future__ import annotations

import json

import pytest

from gateway.domain.provenance import own_words
from gateway.errors import ModelUnavailable
from gateway.messages import remaining_actions
from tests.gateway.way.conftest import House
from tests.scripted_model import ScriptedModel, call

ON = {"questions": True}
QUESTION = {"question": "Which tea?", "choices": ["Green", "  Black\ntea "]}
ASK = call("ask_person", json.dumps(QUESTION), id="a1")


async def test_what_is_pressed_comes_back_as_the_persons_words(house: House) -> None:
    model = ScriptedModel([ASK], "Let me see.", "Black it is.")
    async with house.gateway(model, tools=ON) as (gateway, channel):
        assert await channel.ask("order tea") == "Let me see.\n\nWhich tea?"
        buttons = channel.sent[-1].actions
        assert [one.label for one in buttons] == ["Green", "Black tea"]
        assert not any(remaining_actions([one.id for one in buttons], buttons[0].id)), (
            "once one is pressed, the other goes, too"
        )
        assert await channel.ask(f"/{buttons[1].id}") == "Black it is."
        last = model.requests[-1].messages[-1]
        assert (last.role, last.text) == ("user", "Black tea")
        [session] = await gateway.store.sessions.list_sessions()
        said = await gateway.store.sessions.messages(session.id)
        assert [one.text for one in said if one.role == "user"] == ["order tea", "Black tea"]
        assert not said[-1].is_tainted


async def test_a_question_alone_is_an_answer(house: House) -> None:
    model = ScriptedModel([ASK], "")
    async with house.gateway(model, tools=ON) as (_, channel):
        assert await channel.ask("order tea") == "Which tea?"


@pytest.mark.parametrize("typed", ["choose 3 {}", "choose 0 {}", "choose x {}", "choose 1 t_0", "choose", "choose 1"])
async def test_a_choice_that_was_not_offered_answers_nothing(house: House, typed: str) -> None:
    model = ScriptedModel([ASK], "")
    async with house.gateway(model, tools=ON) as (_, channel):
        await channel.ask("order tea")
        turn = channel.sent[-1].actions[0].id.rpartition(" ")[2]
        assert (await channel.ask("/" + typed.format(turn))).startswith("That question is not open any more")
    assert len(model.requests) == 2


async def test_a_question_is_open_until_something_else_is_said(house: House) -> None:
    model = ScriptedModel([ASK], "", "Fine.", "Green it is.")
    async with house.gateway(model, tools=ON) as (_, channel):
        await channel.ask("order tea")
        green = channel.sent[-1].actions[0].id
        await channel.ask("never mind")
        assert (await channel.ask(f"/{green}")).startswith("That question is not open any more")


async def test_an_answer_asks_one_question_and_a_bad_one_is_told_to_the_model(house: House) -> None:
    bad = call("ask_person", '{"question": "Which?", "choices": ["Green", "Green "]}', id="a0")
    again = call("ask_person", json.dumps({**QUESTION, "question": "Really?"}), id="a2")
    model = ScriptedModel([bad], [ASK], [again], "", "Green it is.")
    async with house.gateway(model, tools=ON) as (_, channel):
        assert await channel.ask("order tea") == "Which tea?"
        assert "two of the choices are the same" in model.requests[1].messages[-1].text
        assert "asks a question already" in model.requests[3].messages[-1].text
        assert await channel.ask(f"/{channel.sent[-1].actions[0].id}") == "Green it is."
        assert model.requests[-1].messages[-1].text == "Green"


async def test_a_question_that_words_of_others_led_to_taints_its_answer(house: House) -> None:
    model = ScriptedModel([ASK], "", "Green it is.")
    async with house.gateway(model, tools=ON) as (gateway, channel):
        message = channel.message("what do they say?", is_trusted_text=False)
        await channel.deliver(message)
        await channel.answers_to(message)
        await channel.ask(f"/{channel.sent[-1].actions[0].id}")
        [session] = await gateway.store.sessions.list_sessions()
        said = await gateway.store.sessions.messages(session.id)
        [chosen] = [one for one in said if one.role == "user" and "Green" in one.text]
        assert chosen.is_tainted
        assert own_words(chosen.text) == "I choose this:", "a button makes nobody's words the person's own"


async def test_a_choice_is_answered_after_the_model_is_back(house: House) -> None:
    model = ScriptedModel([ASK], "", [ModelUnavailable("it is away")], "Green it is.")
    async with house.gateway(model, tools=ON) as (gateway, channel):
        await channel.ask("order tea")
        message = channel.message(f"/{channel.sent[-1].actions[0].id}")
        await channel.deliver(message)
        assert "Your message is kept" in (await channel.answers_to(message))[0]
        await gateway.dispatcher.retry_now(message.conversation)
        await channel.until(lambda: channel.sent[-1].text == "Green it is.")
