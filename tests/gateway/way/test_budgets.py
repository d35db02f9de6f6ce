"""Budgets in a whole gateway: hard, told once, over with the day, and for whatever calls a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage, Spender
from gateway.agent.summary import summarize
from gateway.app.gateway import Gateway
from gateway.app.settings import budgets_of
from gateway.config.file import load_config
from gateway.errors import BudgetExhausted
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel, call

REMEMBER = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')
ONE_TURN = {"user": {"turns": 1}}


class Dear:
    """A model that says whatever it is allowed to, at a price of a cent for a hundred tokens."""

    name = "dear"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        await asyncio.sleep(0)
        said = request.max_output_tokens or 0
        usage = ModelUsage(model=self.name, input_tokens=10, output_tokens=said, cost_usd=(10 + said) / 10_000)
        yield ModelReply(message=ChatMessage(role="assistant", text="here"), usage=usage)


async def spent(gateway: Gateway) -> tuple[int, int, float]:
    rows = await gateway.store.usage.spent(since="2000-01-01")
    tokens = sum(row.input_tokens + row.output_tokens for row in rows)
    return sum(row.turns for row in rows), tokens, sum(row.cost_usd for row in rows)


async def test_over_the_budget_the_message_waits_for_the_next_day_and_is_told_so_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel("one", "two", "three")
    async with house.gateway(model, budgets=ONE_TURN) as (gateway, channel):
        now = datetime.now(UTC)
        monkeypatch.setattr(gateway.meter, "_now", lambda: now)
        assert await channel.ask("a") == "one"
        first, second = await channel.say("b"), await channel.say("c")
        [told] = await channel.answers_to(first)
        assert told.startswith("You have used up what you may spend here in a day. Your message is kept")
        assert await channel.ask("hello", user="2", conversation="c2") == "two"  # others have budgets of their own
        await settled(gateway)
        assert (await gateway.health()).conversations_parked == 1
        now += timedelta(days=1)
        await channel.say("/retry")
        assert (await channel.answers_to(first, 2))[1] == "three"
        assert (await channel.answers_to(second))[0].startswith("You have used up")


async def test_when_the_budget_is_raised_by_a_restart_or_a_reload_what_waits_is_answered_at_once(house: House) -> None:
    async with house.gateway(ScriptedModel("one"), budgets=ONE_TURN) as (_, channel):
        assert await channel.ask("a") == "one"
        waiting = await channel.say("b")
        await channel.answers_to(waiting)
    model = ScriptedModel("two", "three")
    async with house.gateway(model, budgets={"user": {"turns": 2}}) as (gateway, channel):
        assert await channel.answers_to(waiting) == ["two"]
        message = channel.message("c", id="c", event_id="c")
        await channel.deliver(message)
        await channel.answers_to(message)
        await settled(gateway)
        assert (await gateway.health()).conversations_parked == 1
        config = gateway.config.model_copy(update={"budgets": gateway.config.budgets.model_copy(update={"user": None})})
        gateway.meter.change(budgets_of(config))
        await gateway.parking.budgets_changed()
        assert (await channel.answers_to(message, 2))[1] == "three"


async def test_a_restart_does_not_give_the_same_budget_again(house: House) -> None:
    async with house.gateway(ScriptedModel("one"), budgets=ONE_TURN) as (_, channel):
        await channel.ask("a")
        waiting = await channel.say("b")
        await channel.answers_to(waiting)
    model = ScriptedModel()
    async with house.gateway(model, budgets=ONE_TURN) as (gateway, channel):
        await channel.connected()
        await settled(gateway)
        assert not model.requests
        assert (await gateway.health()).conversations_parked == 1
        assert not channel.sent  # it was told before


@pytest.mark.parametrize(
    ("budgets", "most"),
    [
        ({"gateway": {"turns": 5}}, (5, 1 << 60, 1e9)),
        ({"personality": {"tokens": 3_000}}, (1 << 60, 3_000, 1e9)),
        ({"gateway": {"usd": 0.4}}, (1 << 60, 1 << 60, 0.4)),
        ({"user": {"turns": 1, "usd": 0.5}, "gateway": {"tokens": 9_000}}, (40, 9_000, 20.0)),
    ],
)
async def test_forty_people_at_once_do_not_spend_more_than_there_is(
    house: House, budgets: dict[str, Any], most: tuple[int, int, float]
) -> None:
    """Row 27: a flood, of a model that always says as much as it may."""
    priced = {"provider": "openai", "model": "m", "api_key": "k"}
    priced |= {"input_usd_per_million": 100, "output_usd_per_million": 100, "max_output_tokens": 500}
    settings = {"budgets": budgets, "models": {"dear": priced}, "model": "dear", "schedules": {"enabled": False}}
    async with house.gateway(Dear(), **settings) as (gateway, channel):
        messages = [await channel.say("hello", conversation=str(who), user=str(who)) for who in range(40)]
        for message in messages:
            assert await channel.answers_to(message)
        await settled(gateway)
        turns, tokens, usd = await spent(gateway)
        assert 0 < turns <= most[0]
        assert 0 < tokens <= most[1]
        assert 0 < usd <= most[2] + 1e-9
        answered = [one for one in channel.sent if one.text == "here"]
        assert len(answered) == turns < 40 or budgets.get("user") is not None


async def test_a_budget_that_is_used_up_in_the_middle_of_a_turn_parks_it_and_its_steps_are_not_made_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noting(Dear):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            self.requests.append(request)
            calls = () if request.messages[-1].role == "tool" else (REMEMBER,)
            usage = ModelUsage(model=self.name, input_tokens=10, output_tokens=49_000)
            yield ModelReply(message=ChatMessage(role="assistant", text="noted", tool_calls=calls), usage=usage)

    model = Noting()
    async with house.gateway(model, budgets={"gateway": {"tokens": 50_000}}) as (gateway, channel):
        now = datetime.now(UTC)
        monkeypatch.setattr(gateway.meter, "_now", lambda: now)
        message = await channel.say("I like tea")
        assert "What this gateway may spend in a day is used up." in (await channel.answers_to(message))[0]
        assert len(model.requests) == 1
        now += timedelta(days=1)
        await channel.say("/retry")
        assert (await channel.answers_to(message, 2))[1] == "noted\n\nnoted"
        assert [one.role for one in model.requests[1].messages] == ["user", "assistant", "tool"]
        await settled(gateway)
        user = (await gateway.identities.users())[0].id
        assert (house.home / "users" / user / "USER.md").read_text() == "Likes tea.\n"


async def test_a_call_that_is_stopped_holds_its_reservation_no_longer(house: House) -> None:
    hang = Hang()
    model = ScriptedModel([hang, "never"])
    async with house.gateway(model, budgets={"user": {"tokens": 100_000}}) as (gateway, channel):
        await channel.say("hello")
        await asyncio.wait_for(hang.started.wait(), 60)
        held = await gateway.store.engine.read(
            lambda connection: connection.execute("SELECT count(*) FROM reservations").fetchone()[0]
        )
        assert held == 1
        assert await channel.ask("/stop") == "Stopped."
        await settled(gateway)
        held = await gateway.store.engine.read(
            lambda connection: connection.execute("SELECT count(*) FROM reservations").fetchone()[0]
        )
        assert held == 0
        _, tokens, _ = await spent(gateway)
        assert tokens > 0  # it had been read


async def test_a_process_that_is_killed_during_a_call_leaves_no_reservation(house: House) -> None:
    async with house.gateway(ScriptedModel("one"), budgets={"user": {"tokens": 100_000}}) as (gateway, channel):
        await channel.ask("hello")
        await gateway.store.engine.write(
            lambda connection: (
                connection.execute(
                    "INSERT INTO reservations (owner, day, user_id, personality_id, turn_id, model, input_tokens, "
                    "output_tokens, input_usd, usd) VALUES ('killed', ?, 'u', 'assistant', 't_x', 'm', 50, 9, 0, 0)",
                    (gateway.meter.today,),
                ).rowcount
            )
        )
    async with house.gateway(ScriptedModel(), budgets={"user": {"tokens": 100_000}}) as (gateway, channel):
        await channel.connected()
        rows = await gateway.store.usage.spent(since="2000-01-01", user_id="u")
        assert [(row.input_tokens, row.output_tokens) for row in rows] == [(50, 0)]


async def test_a_summary_goes_through_the_same_gate(house: House) -> None:
    """Row 27: memory jobs included."""

    class Summariser(Dear):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            self.requests.append(request)
            usage = ModelUsage(model=self.name, input_tokens=100, output_tokens=10)
            text = "They talked." if request.purpose == "summary" else "word " * 60
            yield ModelReply(message=ChatMessage(role="assistant", text=text), usage=usage)

    model = Summariser()
    async with house.gateway(model, limits={"history_tokens": 500}) as (gateway, channel):
        for number in range(6):
            await channel.ask(f"{number} " + "word " * 60)
        await settled(gateway)
        async with asyncio.timeout(60):
            while gateway.history._tasks:
                await asyncio.sleep(0)
        summaries = [request for request in model.requests if request.purpose == "summary"]
        assert summaries
        rows = await gateway.store.usage.spent(since="2000-01-01")
        assert (sum(row.turns for row in rows), sum(row.calls for row in rows)) == (6, len(model.requests))
        gateway.meter.change(replace(gateway.meter.budgets, gateway=budgets_of(_limited(house)).gateway))
        said = (await gateway.store.sessions.messages((await gateway.store.sessions.list_sessions())[0].id))[:2]
        asked = len(model.requests)
        with pytest.raises(BudgetExhausted):
            await summarize(gateway.history._model(None), earlier="", messages=said, spender=Spender())
        assert len(model.requests) == asked


def _limited(house: House):
    (house.home / "limited.yaml").write_text("budgets: {gateway: {tokens: 1}}\n")
    return load_config(house.home / "limited.yaml", home=house.home).config


async def test_usage_says_what_is_left(house: House) -> None:
    budgets = {"user": {"turns": 20, "tokens": 50_000}, "time_zone": "Europe/Berlin"}
    async with house.gateway(ScriptedModel("one"), budgets=budgets) as (_, channel):
        await channel.ask("a")
        assert await channel.ask("/usage") == (
            "- Today (Europe/Berlin): 1 turns, 1 model calls, 10 tokens in, 1 out, 0.0100 USD\n"
            "- Last 30 days: 1 turns, 1 model calls, 10 tokens in, 1 out, 0.0100 USD\n"
            "- Left today: 19 of 20 turns, 49989 of 50000 tokens"
        )
