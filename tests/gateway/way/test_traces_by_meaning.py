"""Embeddings through a whole gateway: made after turns, used by questions, and never in the way of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.errors import ConfigError
from gateway.traces.trace import Owner, Trace
from tests.embedding_server import EmbeddingServer
from tests.gateway.way.conftest import House
from tests.gateway.way.test_reloading import write
from tests.gateway.way.test_traces import PATIENCE_S, Worker, contents, fact, prompt_of, quiet, traced, viewer


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


def settings(server: EmbeddingServer, **embeddings: Any) -> dict[str, Any]:
    models = {"embedder": {"provider": "openai", "model": "minilm", "base_url": server.url}}
    chosen = {"model": "embedder", "query_timeout_s": 10, **embeddings}
    return {"models": models, "traces": {"embeddings": chosen, "consolidate": {"enabled": False}}}


async def test_a_fact_of_a_turn_is_recalled_by_what_it_means_and_paid_for(
    house: House, server: EmbeddingServer
) -> None:
    model = Worker("Noted.", "Rex.")
    model.facts = [[fact("Rex sleeps all day")]]
    async with traced(house, model, **settings(server)) as (gateway, channel):
        await channel.ask("Rex sleeps all day")
        await quiet(gateway)
        await channel.ask("how is my puppy?")
        assert "Rex sleeps all day" in prompt_of(model)
        await quiet(gateway)
        spent = await gateway.store.usage.spent(since="2000-01-01")
        ours = [row for row in spent if row.model == "embedder"]
        assert sum(row.input_tokens for row in ours) > 0
        assert any(row.user_id for row in ours), "the question is on the account of who asked"


async def test_facts_that_mean_the_same_are_kept_once(house: House, server: EmbeddingServer) -> None:
    model = Worker("Noted.", "Noted.")
    model.facts = [[fact("the dog sleeps")], [fact("my puppy sleeps")]]
    async with traced(house, model, **settings(server)) as (gateway, channel):
        await channel.ask("the dog sleeps")
        await quiet(gateway)
        await channel.ask("my puppy sleeps")
        await quiet(gateway)
        assert await contents(gateway, "sleeps") == ["the dog sleeps"]


async def test_an_endpoint_that_is_down_delays_no_answer_loses_no_fact_and_is_told(
    house: House, server: EmbeddingServer
) -> None:
    server.behaviour.is_down = True
    model = Worker("Noted.", "Rex.")
    model.facts = [[fact("Rex sleeps all day")]]
    async with traced(house, model, **settings(server)) as (gateway, channel):
        assert await channel.ask("Rex sleeps all day") == "Noted."
        await quiet(gateway)
        assert await contents(gateway, "sleeps") == ["Rex sleeps all day"]
        health = await gateway.health()
        assert any("embedder" in problem and "not answered" in problem for problem in health.problems)
        assert health.status == "degraded"


async def test_a_budget_without_room_leaves_the_words(house: House, server: EmbeddingServer) -> None:
    model = Worker("Noted.")
    async with traced(house, model, **settings(server), budgets={"gateway": {"tokens": 40}}) as (gateway, _channel):
        await gateway.meter.recover()
        assert await contents(gateway, "a question that is much longer than the little room there is " * 5) == []
        assert server.requests == []


async def test_missing_settings_are_an_error_of_the_start(house: House, server: EmbeddingServer) -> None:
    with pytest.raises(ConfigError, match="no model 'nobody'"):
        async with asyncio.timeout(PATIENCE_S), traced(house, Worker(), **settings(server, model="nobody")):
            pass


async def test_a_reload_that_exchanges_the_model_makes_all_vectors_anew_and_questions_ask_the_new_one(
    house: House, server: EmbeddingServer
) -> None:
    before = settings(server)
    async with traced(house, Worker("Noted."), **before) as (gateway, channel):
        assert gateway.trace_store is not None
        await channel.ask("Hello")
        user = (await viewer(gateway)).user_id
        fact_of = Trace(content="Rex sleeps all day", owner=Owner("user", user or ""))
        await gateway.trace_store.add(await viewer(gateway), fact_of)
        await quiet(gateway)
        assert await models_of(gateway) == ["minilm"]
        assert await contents(gateway, "puppy") == ["Rex sleeps all day"]
        with EmbeddingServer() as other:
            models = {"embedder": {"provider": "openai", "model": "another", "base_url": other.url}}
            write(house, memory={"traces": {"enabled": True, **before["traces"]}}, models=models)
            done = await gateway.reloading.reload()
            assert (done.problems, done.at_restart) == ((), ())
            await quiet(gateway)
            assert await models_of(gateway) == ["another"]
            asked = len(server.requests)
            assert await contents(gateway, "my puppy") == ["Rex sleeps all day"]
            assert other.texts == ["Rex sleeps all day", "my puppy"]
            assert len(server.requests) == asked


async def models_of(gateway: Gateway) -> list[str]:
    assert gateway.trace_store is not None
    sql = "SELECT DISTINCT embedding_model FROM traces"
    return await gateway.trace_store.database.read(lambda connection: [row[0] for row in connection.execute(sql)])
