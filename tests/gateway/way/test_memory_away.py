"""A gateway whose memory lies in a real Redis that hangs, is away, comes back: answered, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.memory import availability as availability_module
from gateway.memory import sync as sync_module
from gateway.memory.webdav import memory as webdav_memory
from gateway.pipeline.replies import UNREAD
from gateway.protocols import EditableMemory, HistoricMemory, MemoryScope
from gateway.sdk.models.chat import ChatMessage, SendMessage
from gateway.services.caller import operator
from tests.fake_channel import FakeChannel
from tests.gateway.privacy.conftest import user_ids
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_health import client_of, until
from tests.gateway.way.test_memory_review import personality
from tests.hanging_memory import measure
from tests.scripted_model import ScriptedModel, call
from tests.servers import redis, webdav

pytestmark = pytest.mark.slow

OPERATOR = operator("test")
LINE = f"_{UNREAD}_"
LINE_NOTED = f"_{UNREAD} What I am to remember now is kept, and written as soon as the memory is back._"


@pytest.fixture
def server() -> Iterator[redis.RedisServer]:
    if redis.MISSING:
        pytest.skip(redis.MISSING)
    with redis.redis_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_module, "RETRY_S", 0.05)
    monkeypatch.setattr(availability_module, "FIRST_PROBE_S", 0.05)
    monkeypatch.setattr(availability_module, "LONGEST_PROBE_S", 0.1)


def memory_in(server: redis.RedisServer, **settings: Any) -> dict[str, Any]:
    prefix = settings.setdefault("prefix", f"t{uuid4().hex[:8]}")
    return {"provider": {"kind": "redis", "url": server.url, "prefix": prefix}, "timeout_s": 0.3}


def remember(text: str) -> Any:
    return call("update_memory", f'{{"action": "add", "store": "memory", "content": "{text}"}}')


async def answer(gateway: Gateway, text: str) -> str:
    """What the terminal and the web page show as the answer."""
    sent = await gateway.chat.send(OPERATOR, SendMessage(conversation="main", text=text))
    await settled(gateway)
    (event,), _ = await gateway.chat.recent(OPERATOR, sent.session, limit=1)
    assert isinstance(event.data, ChatMessage)
    return event.data.text


async def text_in(gateway: Gateway) -> str:
    memory: Any = gateway.memory_provider
    assert isinstance(memory, EditableMemory)
    at = MemoryScope(personality_id="assistant", user_id=None, session_id=None, turn_id="look")
    return (await memory.read(at, "memory")).content


async def none_waits(gateway: Gateway) -> None:
    async with asyncio.timeout(60):
        while gateway.memory.late or not gateway.memory.availability.is_up:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def stopped(server: redis.RedisServer) -> AsyncIterator[None]:
    """The server hangs meanwhile."""
    server.process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send(signal.SIGCONT)


async def test_a_memory_that_hangs_adds_its_time_once_and_then_nothing(server: redis.RedisServer) -> None:
    cost = await measure(server, turns=50, timeout_s=0.3)
    assert 0.3 <= cost.first_s < 1.3
    assert sum(cost.later_s) < 0.3  # all of them together


async def test_a_conversation_goes_on_without_a_memory_that_is_away_and_all_of_it_is_remembered_once(
    house: House, server: redis.RedisServer
) -> None:
    """Away in the middle of a conversation, over a restart of the gateway, and back."""
    memory = memory_in(server)
    model = ScriptedModel([remember("One.")], "Noted one.", [remember("Two.")], "Noted two.", "Hello.")
    async with house.served(model, channels={}, memory=memory) as gateway:
        assert await answer(gateway, "Remember one") == "Noted one."
        server.process.stop(signal.SIGTERM)
        assert await answer(gateway, "Remember two") == f"Noted two.\n\n{LINE_NOTED}"
        assert await answer(gateway, "Hi") == f"Hello.\n\n{LINE}"
        health = await until(gateway, lambda health: health.memory.state == "down")
        assert (health.memory.kind, health.memory.late_turns, health.status) == ("redis", 1, "degraded")
    model = ScriptedModel([remember("Three.")], "Noted three.", "All three.")
    began_s = time.monotonic()
    async with house.served(model, channels={}, memory=memory) as gateway:
        await asyncio.wait_for(gateway.is_serving.wait(), 60)
        assert time.monotonic() - began_s < 30
        assert await answer(gateway, "Remember three") == f"Noted three.\n\n{LINE_NOTED}"
        assert (await gateway.health()).memory.late_turns == 2
        server.process.start()
        await none_waits(gateway)
        assert await text_in(gateway) == "One.\n\nTwo.\n\nThree.\n"
        assert await answer(gateway, "What do you know?") == "All three."
        assert "Two.\n\nThree." in model.requests[-1].system
        health = await gateway.health()
        assert (health.memory.state, health.memory.late_turns, health.status) == ("up", 0, "ok")
        history: Any = gateway.memory_provider
        assert isinstance(history, HistoricMemory)
        changes = await history.log(MemoryScope(personality_id="assistant", user_id=None, session_id=None, turn_id="l"))
        assert [one.content for one in changes] == ["Three.", "Two.", "One."]


async def test_the_line_is_not_in_what_the_model_reads_later_and_the_model_is_told(
    house: House, server: redis.RedisServer
) -> None:
    model = ScriptedModel("Hello.", "Hello again.")
    async with house.gateway(model, memory=memory_in(server)) as (gateway, channel):
        async with stopped(server):
            assert await channel.ask("Hi") == f"Hello.\n\n{LINE}"
            assert "It cannot be read just now" in model.requests[-1].system
        await none_waits(gateway)
        assert await channel.ask("Hi again") == "Hello again."
        said = "\n".join(one.text for one in model.requests[-1].messages)
        assert "Hello." in said
        assert UNREAD not in said
        assert "It cannot be read just now" not in model.requests[-1].system


async def test_nothing_is_put_in_the_place_of_what_could_not_be_read(house: House, server: redis.RedisServer) -> None:
    replace = call("update_memory", '{"action": "replace", "store": "memory", "content": "Nothing else."}')
    model = ScriptedModel([remember("Kept.")], "Noted.", [replace], "I could not.")
    async with house.gateway(model, memory=memory_in(server)) as (gateway, channel):
        await channel.ask("Remember")
        await settled(gateway)
        async with stopped(server):
            assert (await channel.ask("Replace it all")).startswith("I could not.")
            assert "cannot be read now" in model.requests[-1].messages[-1].text
        await none_waits(gateway)
        assert await text_in(gateway) == "Kept.\n"


async def test_what_is_approved_while_it_is_away_is_applied_when_it_is_back(
    house: House, server: redis.RedisServer
) -> None:
    personality(house, "memory_writes: review\n")
    noted = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')
    async with house.gateway(ScriptedModel([noted], "Noted."), memory=memory_in(server)) as (gateway, channel):
        assert "proposal 1" in await channel.ask("I like tea")
        server.process.stop(signal.SIGTERM)
        assert "**1**, USER.md of assistant" in await channel.ask("/memory proposals")
        told = await channel.ask("/memory approve 1")
        assert told == "Proposal 1 is approved, and comes into my memory as soon as that can be written."
        server.process.start()
        await none_waits(gateway)
        assert "Likes tea." in await channel.ask("/memory")


@asynccontextmanager
async def operator_of(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    token = (gateway.home / "web-token").read_text().strip()
    async with client_of(gateway) as client:
        client.headers["authorization"] = f"Bearer {token}"
        yield client


async def test_who_asks_for_the_memory_is_told_that_it_is_away(house: House, server: redis.RedisServer) -> None:
    async with house.served(memory=memory_in(server)) as gateway, operator_of(gateway) as client:
        channel: Any = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        await channel.connected()
        async with stopped(server):
            assert (await channel.ask("/memory")).startswith("That did not work: the memory cannot be used just now")
            found = await client.get("/api/v1/memory?store=memory&personality=assistant")
            assert (found.status_code, found.json()["type"].rpartition(":")[2]) == (503, "memory-unavailable")
            assert int(found.headers["retry-after"]) > 0
            for page in ("/dashboard/memory", "/dashboard/memory/edit?store=memory&personality=assistant"):
                shown = await client.get(page)
                assert "the memory has not answered" in shown.text, page
            assert "Away" in (await client.get("/dashboard/channels")).text


async def test_only_those_who_run_the_gateway_are_told_where_the_memory_is(
    house: House, server: redis.RedisServer
) -> None:
    """Not a person in a chat, and not the holder of a person's key."""
    address, for_people = server.url.partition("://")[2], "the memory cannot be used just now; try again later"
    async with house.served(ScriptedModel("Hello.", "Hello."), memory=memory_in(server)) as gateway:
        channel: Any = gateway.adapters[0]
        await channel.ask("Hi")
        (person,) = (await user_ids(gateway)).values()
        made = await (await gateway.load_services()).keys.create(OPERATOR, "hers", ("memory:read",), person)
        server.process.stop(signal.SIGTERM)
        await channel.ask("Hi again")
        await until(gateway, lambda health: health.memory.state == "down")
        assert await channel.ask("/memory") == f"That did not work: {for_people}"
        async with operator_of(gateway) as client:
            asked = f"/api/v1/memory?store=user&user={person}"
            assert address in (await client.get(asked)).json()["detail"]
            client.headers["authorization"] = f"Bearer {made.key}"
            found = (await client.get(asked)).json()
            assert (found["status"], found["detail"]) == (503, for_people)


async def test_metrics_say_whether_the_memory_is_there(house: House, server: redis.RedisServer) -> None:
    model = ScriptedModel("Hello.", "Hello.")
    settings = {"memory": memory_in(server), "telemetry": {"metrics": True}}
    async with house.served(model, **settings) as gateway, operator_of(gateway) as client:
        channel: Any = gateway.adapters[0]
        await channel.ask("Hi")
        assert "ethos_memory_up 1.0" in (await client.get("/metrics")).text
        server.process.stop(signal.SIGTERM)
        await channel.ask("Hi")
        metrics = (await client.get("/metrics")).text
        assert "ethos_memory_up 0.0" in metrics
        assert 'ethos_memory_prefetch_seconds_count{outcome="read"} 1.0' in metrics
        assert 'ethos_memory_prefetch_seconds_count{outcome="unread"} 1.0' in metrics


@pytest.mark.parametrize("house_is", ["hangs", "away"])
async def test_it_starts_without_its_memory(house: House, server: redis.RedisServer, house_is: str) -> None:
    if house_is == "hangs":
        server.process.send(signal.SIGSTOP)
    else:
        server.process.stop(signal.SIGTERM)
    async with house.gateway(ScriptedModel("Hello."), memory=memory_in(server)) as (_, channel):
        assert await channel.ask("Hi") == f"Hello.\n\n{LINE}"


async def test_a_webdav_server_that_is_away_takes_no_memory_from_a_turn_and_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webdav_memory, "_FIRST_WAIT_S", 0.05)
    with webdav.wsgidav() as server:
        model = ScriptedModel([remember("Kept.")], "Noted.", "Kept it is.")
        memory = {"provider": {"kind": "webdav", "url": server.url}}
        async with house.gateway(model, memory=memory) as (gateway, channel):
            await channel.ask("Remember")
            await settled(gateway)
            server.process.stop(signal.SIGTERM)
            assert await channel.ask("What?") == "Kept it is."
            assert "Kept." in model.requests[-1].system
            health = await until(gateway, lambda health: health.memory.error)
            assert (health.memory.state, health.status, health.memory.late_turns) == ("up", "degraded", 0)
            server.process.start()
            health = await until(gateway, lambda health: not health.memory.error)
            assert health.status == "ok"
