"""`/metrics`: what happened is counted, how things stand is told, and every metric stands in the page for operators."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.app.gateway import Gateway
from gateway.errors import ModelUnavailable, PermanentSendError, TransientSendError
from gateway.ops.telemetry.metrics import Metrics
from gateway.pipeline import parking
from gateway.sdk.models.system import QueueHealth, ServerHealth
from gateway.store.stores import SqlFacts
from tests.gateway.way.conftest import House, settled
from tests.model_server import Answer, ModelServer
from tests.scripted_model import ScriptedModel, call

PAGE = Path(__file__).parents[3] / "docs" / "health.md"
REMEMBER = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')
MEASURED = {"telemetry": {"metrics": True}}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "home")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "FIRST_RETRY_S", 0.001)


async def read(gateway: Gateway) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, in the order of their names."""
    page, media_type = await gateway._metrics_page()
    assert media_type.startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


async def test_what_is_taken_from_turns_is_counted(house: House) -> None:
    traces = {"memory": {"traces": {"enabled": True}}}
    async with house.gateway(**traces, **MEASURED) as (gateway, channel):
        await channel.ask("My dog is called Rex.")
        await channel.ask("My dog is called Rex.")
        await settled(gateway)
        assert gateway.traces.memory is not None
        async with asyncio.timeout(60):
            await gateway.traces.memory.idle()
        seen = await read(gateway)
    assert seen["ethos_ingest_turns_total", "done"] == 2
    assert seen["ethos_ingest_facts_total", "stored"] == 1
    assert seen["ethos_ingest_facts_total", "duplicate"] == 1
    assert seen["ethos_model_call_seconds_count", "offline", "ok", "facts"] == 2


async def test_a_conversation_is_counted_from_accept_to_receipt(house: House) -> None:
    model = ScriptedModel([REMEMBER], "Noted.", [ModelUnavailable("away")], "Here.")
    async with house.gateway(model, **MEASURED) as (gateway, channel):
        await channel.ask("I like tea")
        repeated = channel.message("twice")
        channel.failures.append(TransientSendError("busy"))
        await channel.deliver(repeated)
        await channel.deliver(repeated)
        await channel.answers_to(repeated)
        await settled(gateway)
        seen = await read(gateway)
    assert seen["ethos_messages_accepted_total", "fake"] == 2
    assert seen["ethos_messages_repeated_total", "fake"] == 1
    assert seen["ethos_turn_seconds_count", "done"] == 2
    assert seen["ethos_turn_seconds_count", "parked"] == 1
    assert seen["ethos_inbox_wait_seconds_count",] == 2
    assert seen["ethos_model_call_seconds_count", "scripted", "ok", "answer"] == 3
    assert seen["ethos_model_call_seconds_count", "scripted", "unavailable", "answer"] == 1
    assert seen["ethos_model_tokens_total", "input", "scripted"] > 0
    assert seen["ethos_tool_calls_total", "done", "update_memory"] == 1
    assert seen["ethos_memory_updates_total", "applied"] == 1
    assert seen["ethos_sends_total", "fake", "retry"] == 1
    assert seen["ethos_sends_total", "fake", "sent"] == 3  # two answers, and the word that one has to wait
    assert seen["ethos_store_commit_seconds_count", "yes"] >= 8
    assert seen["ethos_store_group_size_count",] == (
        seen["ethos_store_commit_seconds_count", "yes"] + seen["ethos_store_commit_seconds_count", "no"]
    )
    assert seen["ethos_channel_up", "fake", "fake"] == 1
    assert seen["ethos_channel_changes_total", "fake", "up"] == 1
    assert seen["ethos_model_up", "scripted"] == 1
    assert seen["ethos_store_writable",] == 1
    assert seen["process_resident_memory_bytes",] > 1e6


async def test_what_waits_for_a_yes_servers_and_the_sandbox_are_told(house: House) -> None:
    async with house.gateway(ScriptedModel(), **MEASURED) as (gateway, _):
        servers = (ServerHealth(name="one", state="up"), ServerHealth(name="two", state="resting"))
        found = {"approvals_waiting": 3, "servers": servers, "sandbox_tier": "bubblewrap"}
        health = (await gateway.health()).model_copy(update=found)
        metrics = gateway._metrics
        assert isinstance(metrics, Metrics)
        page, _ = metrics.page(health)
    lines = page.decode().splitlines()
    assert "ethos_approvals_waiting 3.0" in lines
    assert 'ethos_server_up{server="one"} 1.0' in lines
    assert 'ethos_server_up{server="two"} 0.0' in lines
    assert 'ethos_sandbox{tier="bubblewrap"} 1.0' in lines


async def test_what_passed_the_cache_of_a_provider_is_counted_as_parts_of_the_input(house: House) -> None:
    async with ModelServer() as server:
        server.script([Answer(text="Hi", input_tokens=200, cached_tokens=150, written_tokens=20)])
        models = {"main": {"provider": "openai", "model": "large", "base_url": server.openai_url}}
        async with house.gateway(model="main", models=models, **MEASURED) as (gateway, channel):
            await channel.ask("hello")
            await settled(gateway)
            seen = await read(gateway)
    tokens = {part: seen["ethos_model_tokens_total", part, "main"] for part in ("input", "cached", "written")}
    assert tokens == {"input": 200, "cached": 150, "written": 20}


async def test_budgets_are_told_by_their_kind_and_those_who_have_least_left(house: House) -> None:
    """Row 27: an operator sees a budget run out before people do."""
    budgets = {"user": {"turns": 2}, "personality": {"tokens": 1_000_000}, "personalities": {}}
    async with house.gateway(ScriptedModel("one", "two", "three"), budgets=budgets, **MEASURED) as (gateway, channel):
        before = await read(gateway)
        await channel.ask("hello", user="1", conversation="c1")
        for _ in range(3):
            await channel.ask("hello", user="2", conversation="c2")
        await settled(gateway)
        seen = await read(gateway)
    assert (before["ethos_budget_used", "user", "turns"], before["ethos_budget_limit", "user", "turns"]) == (0, 2)
    assert seen["ethos_budget_used", "user", "turns"] == 2
    assert seen["ethos_budget_limit", "user", "turns"] == 2
    assert seen["ethos_budget_reserved", "user", "turns"] == 0
    assert 0 < seen["ethos_budget_used", "personality", "tokens"] < 1_000_000
    assert ("ethos_budget_used", "gateway", "turns") not in seen
    assert seen["ethos_budget_refusals_total", "user", "turns"] >= 1


async def test_what_waits_and_what_was_given_up_is_told_with_its_age(house: House) -> None:
    async with house.gateway(ScriptedModel("one"), **MEASURED) as (gateway, channel):
        channel.failures.append(PermanentSendError("the person has left"))
        await channel.say("hello")
        await settled(gateway)
        seen = await read(gateway)
    assert seen["ethos_dead_letters_made_total", "outbox"] == 1
    assert seen["ethos_sends_total", "fake", "dead"] == 1
    assert seen["ethos_queue_messages", "fake", "outbox", "dead"] == 1
    assert 0 <= seen["ethos_queue_oldest_seconds", "fake", "outbox", "dead"] < 60


async def test_a_made_up_tool_gets_no_label_of_its_own(house: House) -> None:
    async with house.gateway(ScriptedModel([call("made_up_by_the_model")], "done"), **MEASURED) as (gateway, channel):
        await channel.ask("hello")
        seen = await read(gateway)
    assert seen["ethos_tool_calls_total", "refused", "unknown"] == 1
    assert not [key for key in seen if "made_up_by_the_model" in key]


async def test_no_person_and_no_conversation_is_in_the_page(house: House) -> None:
    async with house.gateway(ScriptedModel("fine"), **MEASURED) as (gateway, channel):
        await channel.ask("my secret text", user="person-kestrel", conversation="place-kestrel")
        page, _ = await gateway._metrics_page()
    assert b"kestrel" not in page
    assert b"secret" not in page


async def test_nothing_is_counted_after_the_end(house: House) -> None:
    """Two gateways one after the other in one process do not count for each other."""
    async with house.gateway(ScriptedModel("one"), **MEASURED) as (first, channel):
        await channel.ask("hello")
    async with house.gateway(ScriptedModel("two"), **MEASURED) as (second, channel):
        await channel.deliver(channel.message("hello", id="another", event_id="another"))
        assert (await read(second))["ethos_messages_accepted_total", "fake"] == 1
    assert first._metrics is not None
    assert first._metrics.registry.get_sample_value("ethos_messages_accepted_total", {"channel": "fake"}) == 1


# ---- the page for operators -----------------------------------------------------------------------------------------


async def test_every_metric_stands_in_the_docs_with_its_labels_and_every_one_there_exists(house: House) -> None:
    async with house.gateway(ScriptedModel("one"), **MEASURED) as (gateway, channel):
        channel.failures.append(PermanentSendError("gone"))
        await channel.say("hello")
        await settled(gateway)
        metrics, health = gateway._metrics, await gateway.health()
        assert isinstance(metrics, Metrics)
        metrics.page(health)
        known = {}
        for family in metrics.registry.collect():
            if family.name.startswith("ethos"):
                name = {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(family.type, family.name)
                known[name] = family.type if family.type != "info" else "gauge"
    rows = re.findall(r"^\| `(ethos_\w+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == known
    assert len(rows) == len(known)


# ---- over HTTP ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(house: House, **settings: object) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient, dict[str, str]]]:
    """A gateway with its web server, a client of it, and the headers of the operator."""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(house.served(ScriptedModel("one"), **settings))
        assert gateway.web is not None
        token = (house.home / "web-token").read_text().strip()
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=gateway.web.url, trust_env=False))
        yield gateway, client, {"authorization": f"Bearer {token}"}


async def test_only_the_operator_reads_the_metrics(house: House) -> None:
    """Row 24 of the promises."""
    async with served(house, **MEASURED) as (_, client, operator):
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"authorization": "Bearer wrong"})).status_code == 401
        answer = await client.get("/metrics", headers=operator)
        assert answer.status_code == 200
        assert 'ethos_http_requests_total{method="GET",status="401"} 2.0' in answer.text
        by_address = await client.get("/metrics", headers={**operator, "host": "10.1.2.3:8420"})
        assert by_address.status_code == 200, "as those who collect them name a pod"


async def test_without_the_switch_there_is_no_page(house: House) -> None:
    async with served(house) as (_, client, operator):
        assert (await client.get("/metrics", headers=operator)).status_code == 404


async def test_many_who_ask_at_once_cost_one_look(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = SqlFacts.backlog

    async def counted(facts: SqlFacts) -> Sequence[QueueHealth]:
        nonlocal looks
        looks += 1
        return await look(facts)

    monkeypatch.setattr(SqlFacts, "backlog", counted)
    async with served(house) as (gateway, client, operator):
        before = looks
        seen = await asyncio.gather(*(gateway.health() for _ in range(50)))
        assert looks == before + 1
        assert (await client.get("/health", headers=operator)).json()["pid"] == seen[0].pid
