"""Health tells the truth: each thing that goes wrong is seen in it, and seen no more when it is over."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from gateway.app.gateway import Gateway
from gateway.errors import (
    AdapterAuthFailed,
    AdapterNotReady,
    FileError,
    ModelUnavailable,
    PermanentSendError,
    StoreUnavailable,
)
from gateway.memory import sync as memory_sync
from gateway.pipeline import health as health_module
from gateway.pipeline import parking
from gateway.protocols import MemoryScope, MemoryUpdate, SyncReport
from gateway.sdk.models.system import Health
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_found_store import Broken
from tests.scripted_model import Hang, ScriptedModel, call

REMEMBER = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')
TWO = {"channels": {"one": {"kind": "tests.fake_channel"}, "two": {"kind": "tests.fake_channel"}}}


async def until(gateway: Gateway, is_so: Any) -> Health:
    """The first picture of which it is so."""
    async with asyncio.timeout(60):
        while not is_so(health := await gateway.health()):
            await asyncio.sleep(0.01)
    return health


def of(health: Health, channel: str) -> Any:
    (found,) = [one for one in health.channels if one.name == channel]
    return found


async def test_a_gateway_that_is_well_says_so_and_when_its_channel_was_last_of_use(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        await channel.connected()
        before = await until(gateway, lambda health: health.is_ready)
        assert of(before, "fake").last_exchange_at is None
        await channel.ask("hi")
        await settled(gateway)
        health = await gateway.health()
        assert (health.status, health.is_ready, health.problems, health.queues) == ("ok", True, (), ())
        seen = of(health, "fake")
        assert (seen.state, seen.connections, seen.inbox_lag_s, seen.outbox_lag_s) == ("up", 1, 0.0, 0.0)
        assert seen.since <= seen.last_exchange_at
        (model,) = health.models
        assert (model.name, model.state) == ("scripted", "up")
        assert health.disk_free_bytes == pytest.approx(shutil.disk_usage(house.home).free, rel=0.2)
        assert health.pid == os.getpid()


async def test_a_channel_that_is_down_degrades_and_all_of_them_down_is_failing(house: House) -> None:
    async with house.gateway(ScriptedModel(), **TWO) as (gateway, one):
        two = gateway.adapters[1]
        await one.connected()
        await two.connected()
        assert (await until(gateway, lambda health: health.is_ready)).status == "ok"
        one.connect_failures += [AdapterNotReady("no line")] * 100_000
        await one.lose_connection()
        health = await until(gateway, lambda health: of(health, "one").state == "down")
        assert (health.status, health.is_ready) == ("degraded", True)
        await until(gateway, lambda health: health.problems == ("one: no line",))
        two.connect_failures += [AdapterAuthFailed("the key is wrong")]
        await two.lose_connection()
        health = await until(gateway, lambda health: of(health, "two").state == "auth_failed")
        assert health.status == "failing"
        one.connect_failures.clear()
        health = await until(gateway, lambda health: of(health, "one").state == "up")
        assert health.status == "degraded"
        assert of(health, "one").connections == 2


async def test_the_age_of_what_waits_is_told_by_channel(house: House) -> None:
    hang = Hang()
    async with house.gateway(ScriptedModel([hang, "there"]), **TWO) as (gateway, one):
        await one.say("hello")
        await asyncio.wait_for(hang.started.wait(), 60)
        health = await until(gateway, lambda health: of(health, "one").inbox_lag_s > 0.02)
        assert of(health, "two").inbox_lag_s == 0
        assert health.turns_running == 1
        assert [(queue.queue, queue.channel, queue.state, queue.messages) for queue in health.queues] == [
            ("inbox", "one", "running", 1)
        ]
        hang.released.set()
        await settled(gateway)
        assert of(await gateway.health(), "one").inbox_lag_s == 0


async def test_dead_letters_are_counted_and_count_for_no_lag(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        channel.failures.append(PermanentSendError("the person has left"))
        await channel.say("hi")
        await settled(gateway)
        health = await gateway.health()
        assert [(queue.queue, queue.state, queue.messages) for queue in health.queues] == [("outbox", "dead", 1)]
        assert of(health, "fake").outbox_lag_s == 0


async def test_a_channel_whose_answers_are_all_given_up_is_not_well_until_one_is_delivered(house: House) -> None:
    async with house.gateway(ScriptedModel("one", "two", "three")) as (gateway, channel):
        channel.failures += [PermanentSendError("it is not allowed")] * 2
        for number in range(2):
            await channel.say(f"hi {number}")
            await settled(gateway)
        health = await gateway.health()
        assert (health.status, of(health, "fake").state) == ("degraded", "up")
        (problem,) = health.problems
        assert problem.startswith("fake: 2 answers could not be delivered since 20")
        assert problem.endswith("it is not allowed (see `ethos deliveries list outbox`)")
        assert of(health, "fake").error == problem.removeprefix("fake: ")
        await channel.ask("hello?")
        await settled(gateway)
        health = await gateway.health()
        assert (health.status, health.problems, of(health, "fake").error) == ("ok", (), None)


async def test_what_an_adapter_says_does_not_work_is_told_while_its_channel_is_up(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (gateway, channel):
        await channel.connected()
        channel.problems = ["it may send no files: allow it"]
        health = await until(gateway, lambda health: health.is_ready)
        assert (health.status, health.problems) == ("degraded", ("fake: it may send no files: allow it",))


async def test_a_model_that_is_away_is_told_once_in_the_log_and_as_long_as_it_lasts_in_health(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "FIRST_RETRY_S", 60.0)
    away = [ModelUnavailable("the line is dead")]
    model = ScriptedModel("first", away, away, "here again")
    with capture_logs() as logs:
        async with house.gateway(model) as (gateway, channel):
            await channel.ask("hello")
            message = await channel.say("are you there?")
            for tries in (2, 3):
                await gateway.dispatcher.retry_now(message.conversation)
                await channel.until(lambda: len(channel.sent) == 2)  # it is told once that it has to wait
                await settled(gateway)
                health = await gateway.health()
                assert (len(model.requests), health.status, health.conversations_parked) == (tries, "degraded", 1)
                assert "the model scripted has not answered since" in health.problems[0]
                assert health.models[0].last_answer_at is not None
            await gateway.dispatcher.retry_now(message.conversation)
            assert (await channel.answers_to(message, amount=2))[1] == "here again"
            await settled(gateway)
            assert (await gateway.health()).status == "ok"
    told = [(line["event"], line["log_level"]) for line in logs if line["event"] in ("model_down", "model_up")]
    assert told == [("model_down", "error"), ("model_up", "info")]


async def test_a_disk_that_takes_nothing_is_failing_and_not_ready_and_is_told_once(house: House) -> None:
    """Row 8 of the promises, as far as it is about saying so."""
    with capture_logs() as logs:
        async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
            await channel.connected()
            await until(gateway, lambda health: health.is_ready)
            broken = Broken(gateway.store.engine._writer, "COMMIT")
            gateway.store.engine._writer = broken  # type: ignore[assignment]
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await channel.say("hi")
            health = await gateway.health()
            assert (health.status, health.is_ready) == ("failing", False)
            assert "disk is full" in str(health.store_problem)
            broken.failing.clear()
            health = await gateway.health()
            assert (health.status, health.is_ready, health.store_problem) == ("ok", True, None)
            assert await channel.ask("hi") == "hello"
    assert [line["event"] for line in logs if line["event"].startswith("store_")] == ["store_down", "store_back"]


async def test_little_room_on_the_disk_is_told_before_it_is_full(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house.gateway(ScriptedModel()) as (gateway, channel):
        await channel.connected()
        monkeypatch.setattr(health_module, "LITTLE_DISK_BYTES", 1 << 62)
        health = await until(gateway, lambda health: health.is_ready)
        assert health.status == "degraded"
        assert "MiB are free" in health.problems[0]
        monkeypatch.setattr(shutil, "disk_usage", _refuse)
        health = await gateway.health()
        assert (health.status, health.disk_free_bytes) == ("ok", None)


async def test_what_does_not_work_on_a_channel_that_is_up_is_told(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (gateway, channel):
        await channel.connected()
        channel.problems = ["nobody is heard; set `x`"]  # type: ignore[attr-defined]
        health = await until(gateway, lambda health: health.is_ready)
        assert (health.status, health.problems) == ("degraded", (f"{channel.name}: nobody is heard; set `x`",))
        assert [(one.state, one.error) for one in health.channels] == [("up", "nobody is heard; set `x`")]
        channel.problems = []  # type: ignore[attr-defined]
        assert (await gateway.health()).status == "ok"


def _refuse(_path: Path) -> None:
    raise OSError("no such device")


async def test_memory_that_cannot_be_written_is_told_until_it_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_sync, "RETRY_S", 0.01)
    async with house.gateway(ScriptedModel([REMEMBER], "Noted.")) as (gateway, channel):
        whole = gateway.memory_provider.sync

        async def fail(_scope: MemoryScope, _updates: list[MemoryUpdate]) -> SyncReport:
            raise FileError("the file is locked")

        monkeypatch.setattr(gateway.memory_provider, "sync", fail)
        await channel.ask("I like tea")
        health = await until(gateway, lambda health: health.memory_late)
        assert (health.status, health.memory_late, health.memory_journal) == ("degraded", 1, 1)
        monkeypatch.setattr(gateway.memory_provider, "sync", whole)
        health = await until(gateway, lambda health: not health.memory_late)
        assert (health.status, health.memory_journal) == ("ok", 0)


async def test_a_broken_identity_map_is_failing(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        await channel.ask("hi")
        (house.home / "users" / "identity-map.json").write_text("{,")
        health = await gateway.health()
        assert health.status == "failing"
        assert "identity-map.json:1:2" in health.problems[0]


async def test_until_every_channel_was_tried_it_is_starting_and_not_ready(house: House) -> None:
    async with house.gateway(ScriptedModel(), **TWO) as (gateway, one):
        await one.connected()
        await until(gateway, lambda health: health.is_ready)
        gateway.supervisor.all_tried.clear()
        health = await gateway.health()
        assert (health.status, health.is_ready) == ("starting", False)
        gateway.supervisor.all_tried.set()
        assert (await gateway.health()).is_ready


# ---- over HTTP ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def client_of(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    assert gateway.web is not None
    async with httpx.AsyncClient(base_url=gateway.web.url, trust_env=False) as client:
        yield client


async def test_a_stranger_gets_one_word_and_the_operator_everything(house: House) -> None:
    """Row 24 of the promises."""
    async with house.served(ScriptedModel()) as gateway, client_of(gateway) as client:
        await until(gateway, lambda health: health.is_ready)
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/health/ready")).json() == {"is_ready": True}
        assert (await client.get("/health/live")).json() == {"status": "ok"}
        token = (house.home / "web-token").read_text().strip()
        told = (await client.get("/health", headers={"authorization": f"Bearer {token}"})).json()
        assert set(told) == set(Health.model_fields)
        assert told["channels"][0]["state"] == "up"


async def test_a_gateway_that_takes_nothing_is_live_and_not_ready(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway, client_of(gateway) as client:
        await until(gateway, lambda health: health.is_ready)
        gateway.supervisor.all_tried.clear()
        answers = {path: (await client.get(path)).status_code for path in ("/health/live", "/health/ready", "/health")}
        assert answers == {"/health/live": 200, "/health/ready": 503, "/health": 503}


async def test_a_load_balancer_does_not_turn_away_from_a_gateway_with_one_channel_down(house: House) -> None:
    async with house.served(ScriptedModel(), **TWO) as gateway, client_of(gateway) as client:
        one: Any = gateway.adapters[0]
        await one.connected()
        one.connect_failures += [AdapterAuthFailed("the key is wrong: CANARY")]
        await one.lose_connection()
        await until(gateway, lambda health: of(health, "one").state == "auth_failed")
        answer = await client.get("/health")
        assert (answer.status_code, answer.json()) == (200, {"status": "degraded"})


async def test_a_disk_that_hangs_is_told_in_good_time_and_asked_once_however_many_ask(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives no error, and no answer: whoever watches the gateway must not wait for it too."""
    monkeypatch.setattr(health_module, "PATIENCE_S", 0.05)
    hanging, may_answer = threading.Event(), threading.Event()

    def hangs(_home: Path) -> None:
        assert not hanging.is_set(), "asked twice"
        hanging.set()
        may_answer.wait(20)

    async with house.gateway(ScriptedModel()) as (gateway, channel):
        await channel.connected()
        with monkeypatch.context() as patching:
            patching.setattr(health_module, "_free_bytes", hangs)
            try:
                for health in [await gateway.health(), *await asyncio.gather(gateway.health(), gateway.health())]:
                    assert (health.status, health.is_ready) == ("failing", False)
                    assert "have not answered for 0.05 s" in str(health.store_problem)
                    assert of(health, "fake").state == "up"
            finally:
                may_answer.set()
                hanging.clear()
            await until(gateway, lambda health: health.store_problem is None)


async def test_no_secret_of_the_configuration_stands_in_an_error_that_is_shown_or_kept(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 26: a library may quote the address that it called, with the key in it."""
    secret = "sk-canary-of-a-key"
    keyed = {"dear": {"provider": "openai", "model": "m", "api_key": secret}}
    model = ScriptedModel([ModelUnavailable(f"GET https://x/?key={secret} failed")], "fine", "fine")
    settings = {"models": keyed, "telemetry": {"metrics": True}}
    monkeypatch.setattr(parking, "FIRST_RETRY_S", 60.0)
    async with house.gateway(model, **settings) as (gateway, channel):
        assert await channel.ask("hi")  # it waits
        health = await until(gateway, lambda health: health.status == "degraded")
        assert "key=***" in (health.models[0].error or "")
        [parked] = await gateway.store.deliveries.rows("inbox")
        assert "key=***" in (parked.error or "")
        channel.failures.append(PermanentSendError(f"refused for {secret}"))
        await channel.say("hello", conversation="c2")
        await settled(gateway)
        [dead] = await gateway.store.deliveries.rows("outbox", chosen="dead")
        assert dead.error == "refused for ***"
        channel.connect_failures += [AdapterNotReady(f"no line to {secret}")] * 100_000
        await channel.lose_connection()
        health = await until(gateway, lambda health: "no line" in str(of(health, "fake").error))
        assert of(health, "fake").error == "no line to ***"
        shown = f"{await gateway._health_json()} {await gateway._metrics_page()}"
        assert "***" in shown
        assert secret not in shown
