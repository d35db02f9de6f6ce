"""Which model does what in a whole gateway, how much it thinks, and what of a provider's cache people see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_clock import HOUR, NOON, Wall, plan
from tests.gateway.way.test_web import PRICE, Site, site
from tests.model_formats import AnthropicFormat
from tests.model_server import Answer, Call, Failure, Hang, ModelServer

__all__ = ["site"]  # a fixture

NOW = Call(name="current_time", id="toolu_1")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


def settings(server: ModelServer, **more: Any) -> dict[str, Any]:
    """A large model, and a small one for small work."""
    wire = {"provider": "openai", "base_url": server.openai_url}
    models = {"main": {**wire, "model": "large"}, "helper": {**wire, "model": "small"}}
    return {"model": "main", "models": models, **more}


def thinking(server: ModelServer, model: str = "claude-haiku-4-5", **more: Any) -> dict[str, Any]:
    wire = {"provider": "anthropic", "base_url": server.anthropic_url, "api_key": "k", "model": model}
    return {"model": "main", "models": {"main": {**wire, "thinking": "low", **more}}}


def asked(server: ModelServer) -> list[str]:
    return [request.body["model"] for request in server.requests]


async def test_summaries_are_written_by_the_model_for_small_work(house: House, server: ModelServer) -> None:
    server.script([Answer(text="word " * 100)], repeats=True)
    async with house.gateway(**settings(server, limits={"history_tokens": 1_000})) as (gateway, channel):
        for number in range(12):
            await channel.ask(f"question {number} " + "word " * 50)
            await settled(gateway)
            if gateway.history._tasks:
                await asyncio.wait(list(gateway.history._tasks.values()))
    made = [request for request in server.requests if "You keep the summary" in str(request.body["messages"][0])]
    assert made
    assert {request.body["model"] for request in made} == {"small"}
    assert {request.body["model"] for request in server.requests if request not in made} == {"large"}


async def test_health_says_why_a_model_does_not_think_and_is_well_all_the_same(
    house: House, server: ModelServer
) -> None:
    server.script([Failure(status=400, message="no reasoning here"), Answer(text="Noon.")])
    async with house.gateway(**thinking(server)) as (gateway, channel):
        assert await channel.ask("what time is it?") == "Noon."
        await settled(gateway)
        health = await gateway.health()
    assert (health.status, health.models[0].state) == ("ok", "up")
    assert "no reasoning here" in str(health.models[0].unthought)


async def test_values_are_read_by_the_model_for_small_work(house: House, server: ModelServer, site: Site) -> None:
    arguments = (
        f'{{"source": "{site.url}", "fields": [{{"name": "price", "kind": "number", "what": "{PRICE["what"]}"}}]}}'
    )
    call = Call(name="read_values", arguments=arguments)
    server.script([Answer(calls=(call,)), Answer(text='{"price": 3}'), Answer(text="It is 3.")])
    async with house.gateway(**settings(server, web=site.settings())) as (gateway, channel):
        assert await channel.ask(f"what is the price on {site.url}?") == "It is 3."
        await settled(gateway)
        await gateway.store.engine.write(lambda _connection: None)
        user = await gateway.identities.resolve("fake:1", "1")
        rows = {row.model: row.calls for row in await gateway.store.usage.spent(since="2000-01-01", user_id=user)}
    assert asked(server) == ["large", "small", "large"]
    assert rows == {"large": 2, "small": 1}, "both are the person's"


@pytest.mark.parametrize(("mode", "model"), [("watch", "small"), ("do", "large")])
async def test_a_watch_asks_the_model_for_small_work_and_what_is_done_the_other(
    house: House, server: ModelServer, mode: str, model: str
) -> None:
    server.script([Answer(text="Nothing new.")])
    async with house.gateway(**settings(server)) as (gateway, channel):
        await channel.ask("/help")  # the person is let in
        wall = Wall(gateway)
        await plan(gateway, mode=mode)
        await wall.comes(NOON + HOUR)
    assert asked(server) == [model]


async def test_other_parts_ask_for_it_by_the_meter(house: House, server: ModelServer) -> None:
    async with house.gateway(**settings(server)) as (gateway, _):
        assert gateway.meter.helper(None).name == gateway.meter.helper("main").name == "helper"
    async with house.gateway(model="offline") as (gateway, _):
        assert gateway.meter.helper(None).name == "offline"


@pytest.mark.parametrize(("level", "budget"), [("medium", 8_192), (None, 2_048)])
async def test_a_personality_says_how_much_is_thought_and_else_its_model(
    house: House, server: ModelServer, level: str | None, budget: int
) -> None:
    (house.home / "personalities" / "assistant").mkdir(parents=True, mode=0o700)
    line = "" if level is None else f"thinking: {level}\n"
    (house.home / "personalities" / "assistant" / "personality.yaml").write_text(f"name: A\n{line}")
    async with house.gateway(**thinking(server)) as (_, channel):
        await channel.ask("hello")
    assert server.requests[0].body["thinking"] == {"type": "enabled", "budget_tokens": budget}


async def test_killed_within_the_use_of_a_tool_the_turn_goes_on_with_its_thoughts(
    house: House, server: ModelServer
) -> None:
    """What the provider demands back is kept with the steps; a new process has it, too."""
    server.script([Answer(reasoning="The clock must tell.", calls=(NOW,)), Hang()])
    async with house.gateway(**thinking(server), shutdown_s=0) as (_, channel):
        message = await channel.say("what time is it?")
        await asyncio.wait_for(server.request(1), 60)
    server.script([Answer(text="Noon.")])
    async with house.gateway(**thinking(server)) as (_, channel):
        assert await channel.answers_to(message) == ["Noon."]
    last = server.requests[-1]
    assert AnthropicFormat().problem(last.body, last.headers) is None
    assert last.body["thinking"]["type"] == "enabled"
    [step] = [said for said in last.body["messages"] if said["role"] == "assistant"]
    assert step["content"][0] == {"type": "thinking", "thinking": "The clock must tell.", "signature": "c2lnbmVk"}


async def used(gateway: Gateway) -> None:
    await settled(gateway)
    await gateway.store.engine.write(lambda _connection: None)  # behind all bills


async def test_usage_says_how_much_came_from_the_cache(house: House, server: ModelServer) -> None:
    server.script([Answer(text="Hi", input_tokens=200, cached_tokens=150)])
    async with house.gateway(**settings(server)) as (gateway, channel):
        await channel.ask("hello")
        await used(gateway)
        text = await channel.ask("/usage")
    assert text.count("1 turns, 1 model calls, 200 tokens in (75% from the cache), 5 out") == 2


async def test_without_a_cache_nothing_is_said_of_one(house: House, server: ModelServer) -> None:
    server.script([Answer(text="Hi", input_tokens=200)])
    async with house.gateway(**settings(server)) as (gateway, channel):
        await channel.ask("hello")
        await used(gateway)
        assert "cache" not in await channel.ask("/usage")
