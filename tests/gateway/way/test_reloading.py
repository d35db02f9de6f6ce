"""A changed configuration is taken over while the gateway runs, or not at all (reliability, row 16)."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from ethos import AsyncEthos
from gateway.app import reload as reloading_module
from gateway.app.gateway import Gateway
from gateway.config.file import Loaded
from gateway.errors import AdapterError, IdentityMapBroken, PermanentSendError
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel

FAKE = {"kind": "tests.fake_channel"}


def write(house: House, **settings: Any) -> None:
    """The configuration that the house begins with, and these."""
    usual = {"channels": {"fake": FAKE}, "delivery": {"first_retry_s": 0.001, "longest_retry_s": 0.01}, "shutdown_s": 5}
    (house.home / "config.yaml").write_text(json.dumps({**usual, **settings}))  # which is YAML, too


def channel(gateway: Gateway, name: str = "fake") -> FakeChannel:
    [adapter] = [one for one in gateway.adapters if one.name == name]
    assert isinstance(adapter, FakeChannel)
    return adapter


async def test_people_who_are_let_in_or_shut_out_are_so_from_the_next_message_on(house: House) -> None:
    async with house.gateway(fake={"access": "allowlist", "allow": ["2"]}) as (gateway, fake):
        assert "I do not know you yet" in await fake.ask("Hello", user="1")
        write(house, channels={"fake": {**FAKE, "access": "allowlist", "allow": ["1"]}})
        done = await gateway.reloading.reload()
        assert done.at_once == ("channels.fake",)
        assert done.problems == ()
        assert "I do not know you yet" not in await fake.ask("Hello", user="1")
        assert "I do not know you yet" in await fake.ask("Hello", user="2")
        assert channel(gateway) is fake, "for that, nobody is connected anew"
        assert fake.connects == 1


async def test_limits_personality_and_delivery_are_taken_over(house: House) -> None:
    async with house.gateway() as (gateway, fake):
        (house.home / "personalities" / "pirate").mkdir()
        (house.home / "personalities" / "pirate" / "SOUL.md").write_text("Arr.")
        write(
            house,
            personality="pirate",
            limits={"max_message_chars": 10, "history_tokens": 900},
            delivery={"max_attempts": 3, "first_retry_s": 0.001, "longest_retry_s": 0.01},
        )
        done = await gateway.reloading.reload()
        assert done.at_restart == ()
        assert {"personality", "limits.max_message_chars", "delivery.max_attempts"} <= set(done.at_once)
        assert "at most 10" in await fake.ask("This is longer than that")
        assert gateway.outbox.policy.max_attempts == 3
        assert gateway.history.budget_tokens == 900
        await fake.ask("Hello", conversation="new")
        session = await gateway.store.sessions.list_sessions(limit=1)
        assert session[0].personality_id == "pirate"


async def test_what_needs_a_restart_is_named_until_then_and_stays_as_it_is(house: House) -> None:
    async with house.gateway() as (gateway, _):
        await gateway.supervisor.all_tried.wait()
        write(house, web={"port": 9999}, limits={"running_turns": 3})
        done = await gateway.reloading.reload()
        assert set(done.at_restart) == {"web.port", "limits.running_turns"}
        assert gateway.config.web.port == 8420
        again = await gateway.reloading.reload()
        assert set(again.at_restart) == {"web.port", "limits.running_turns"}
        [line] = (await gateway.health()).problems
        assert line == "waiting for a restart: web.port, limits.running_turns"
        assert (await gateway.health()).status == "ok"
        write(house)
        assert (await gateway.reloading.reload()).at_restart == ()
        assert (await gateway.health()).problems == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("channels: [\n", "config.yaml:"),
        ("limits: {max_message_chars: many}\nmodel: nobody\n", "config.yaml:1:"),
        ("channels: {fake: {kind: nothing.of_this_kind}}\n", "there is no package"),
    ],
)
async def test_row_16_on_any_error_the_last_good_configuration_serves_and_all_errors_are_told(
    house: House, text: str, problem: str
) -> None:
    async with house.gateway() as (gateway, fake):
        before = gateway.config
        (house.home / "config.yaml").write_text(text)
        await gateway.supervisor.all_tried.wait()
        with structlog.testing.capture_logs() as logged:
            done = await gateway.reloading.reload()
        assert [line["problem"] for line in logged if line["event"] == "config_not_taken_over"] == [*done.problems]
        assert problem in done.problems[0]
        assert len(done.problems) == text.count("\n") or len(done.problems) == 1
        assert gateway.config is before
        health = await gateway.health()
        assert health.status == "ok", "a restart would only make it worse"
        assert all("the last good one serves" in line for line in health.problems)
        assert problem in health.problems[0]
        assert await fake.ask("Hello")
        write(house)
        assert (await gateway.reloading.reload()).problems == ()
        assert (await gateway.health()).problems == ()


async def test_a_channel_that_is_added_is_connected_and_one_that_goes_is_closed_and_the_others_are_not_touched(
    house: House,
) -> None:
    async with house.gateway(channels={"fake": {**FAKE}, "old": {**FAKE}}) as (gateway, fake):
        old = channel(gateway, "old")
        await old.connected()
        write(house, channels={"fake": FAKE, "new": FAKE})
        done = await gateway.reloading.reload()
        assert set(done.at_once) == {"channels.old", "channels.new"}
        assert [status.name for status in gateway.channels.statuses] == ["fake", "new"]
        assert await channel(gateway, "new").ask("Hello")
        assert old.is_closed
        assert (fake.connects, fake.is_closed) == (1, False)


async def test_a_channel_whose_own_settings_changed_is_connected_anew_and_its_replies_are_sent_through_it(
    house: House,
) -> None:
    async with house.gateway() as (gateway, fake):
        await fake.connected()
        fake.connect_failures.append(AdapterError("down"))
        await fake.lose_connection()
        write(house, channels={"fake": {**FAKE, "has_previews": True}})
        await gateway.reloading.reload()
        new = channel(gateway)
        assert new is not fake
        assert fake.is_closed
        assert await new.ask("Hello")


async def test_a_turn_that_runs_ends_with_what_it_began_with(house: House) -> None:
    """Its model is asked again after the reload; the next turn asks the other."""
    async with house.gateway() as (gateway, fake):
        silence = Hang()
        old, new = ScriptedModel([silence, "from the old one"]), ScriptedModel("from the new one")
        gateway._model = lambda _name: old
        asked = await fake.say("Hello")
        async with asyncio.timeout(60):
            await silence.started.wait()
        gateway._model = lambda _name: new
        write(house, limits={"steps_per_turn": 1})
        await gateway.reloading.reload()
        silence.released.set()
        assert await fake.answers_to(asked) == ["from the old one"]
        assert await fake.ask("And now?") == "from the new one"


async def test_models_that_were_taken_out_are_closed_once_no_turn_uses_them(house: House) -> None:
    async with house.gateway() as (gateway, fake):
        retired = gateway.models.current
        write(
            house,
            model="other",
            models={"other": {"provider": "openai", "model": "x", "base_url": "http://127.0.0.1:9/v1"}},
        )
        done = await gateway.reloading.reload()
        assert {"model", "models.other"} <= set(done.at_once)
        assert gateway.models.current is not retired
        assert gateway.models.current.get(None).name == "other"
        async with asyncio.timeout(60):
            while gateway.reloading._closing:
                await asyncio.sleep(0)
        write(house)
        await gateway.reloading.reload()
        assert await fake.ask("Hello")


async def test_a_model_that_was_taken_out_while_it_was_down_is_no_trouble_any_more(house: House) -> None:
    down = {"provider": "openai", "model": "x", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0}
    async with house.gateway(model="other", models={"other": down}) as (gateway, fake):
        message = await fake.say("Hello")
        await fake.answers_to(message)
        await settled(gateway)
        assert (await gateway.health()).models[0].state == "down"
        write(house)
        await gateway.reloading.reload()
        assert "other" not in [model.name for model in (await gateway.health()).models]


async def test_many_reloads_at_once_while_people_talk_lose_and_double_nothing(house: House) -> None:
    async with house.gateway() as (gateway, fake):

        async def reload_often() -> None:
            for number in range(12):
                write(house, channels={"fake": {**FAKE, "has_previews": bool(number % 2)}})
                await gateway.reloading.reload()
                seen.append(channel(gateway))

        sent: list[Any] = []
        seen: list[FakeChannel] = [fake]
        reloading = asyncio.create_task(reload_often())
        number = 0
        while not reloading.done() or number < 8:
            current = channel(gateway)
            message = current.message(
                f"Hello {number}", conversation=f"c{number % 7}", id=f"m{number}", event_id=f"e{number}"
            )
            if current._accept is not None:
                await current._accept(message)
                sent.append(message.id)
                number += 1
            await asyncio.sleep(0)
        await reloading
        await settled(gateway)
        await channel(gateway).connected()
        await settled(gateway)
        answered = [one.reply_to for each in dict.fromkeys(seen) for one in each.sent]
        assert sorted(answered, key=str) == sorted(sent)


async def test_an_operators_command_is_told_to_the_running_gateway_at_once(house: House, tmp_path: Path) -> None:
    """A dead letter that is tried again does not wait for the next message of its conversation."""
    async with house.gateway() as (gateway, fake):
        await fake.connected()
        fake.failures.append(PermanentSendError("no"))
        message = await fake.say("Hello")
        await fake.until(lambda: fake.attempts == 1)
        await settled(gateway)
        [dead] = await gateway.store.deliveries.rows("outbox", chosen="dead")
        async with AsyncEthos(home=house.home) as client:
            assert (await client.deliveries.retry("outbox", dead.id)).conversation == "c1"
        assert len(await fake.answers_to(message)) == 1


async def test_a_fault_of_an_adapter_is_a_problem_of_the_reload_and_not_its_silent_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a reload that a signal began, and the service manager would wait for its end for ever."""

    def breaks(_name: str, _config: object) -> FakeChannel:
        raise AttributeError("a fault of the adapter")

    async with house.gateway() as (gateway, fake):
        await fake.connected()
        write(house, channels={"fake": FAKE, "second": FAKE})
        monkeypatch.setattr(gateway, "adapter", breaks)
        done = await gateway.reloading.reload()
        assert done.problems == ("a fault of the adapter",)
        assert "a fault of the adapter (not taken over since" in gateway.reloading.problems[0]
        assert list(gateway.config.channels) == ["fake"]
        assert await fake.ask("Hello")


async def test_what_was_taken_over_is_not_called_refused_because_of_a_broken_identity_map(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_identities: object) -> None:
        raise IdentityMapBroken(house.home / "users" / "identity-map.json", "line 3")

    async with house.gateway() as (gateway, fake):
        await fake.connected()
        write(house, channels={"fake": FAKE, "second": FAKE})
        monkeypatch.setattr(gateway.operators, "join", broken)
        done = await gateway.reloading.reload()
        assert (done.problems, done.at_once) == ((), ("channels.second",))
        assert "your accounts on the channels could not be joined" in done.warnings[-1]
        await channel(gateway, "second").connected()


async def test_a_reload_that_is_under_way_at_the_end_comes_to_its_own_and_none_begins_behind_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel that it connects is closed with the others, and nobody works with a closed store."""
    reading, released = threading.Event(), threading.Event()
    load = reloading_module.load_config

    def slow(**options: Any) -> Loaded:
        reading.set()
        assert released.wait(20)
        return load(**options)

    monkeypatch.setattr(reloading_module, "load_config", slow)
    async with house.gateway() as (gateway, fake):
        await fake.connected()
        write(house, channels={"fake": FAKE, "second": FAKE})
        client = AsyncEthos(home=house.home)
        asking = asyncio.create_task(client.system.reload())
        assert await asyncio.to_thread(reading.wait, 20)
        asyncio.get_running_loop().call_later(0.1, released.set)
    assert (await asking).at_once == ("channels.second",)
    await client.close()
    assert [channel(gateway, name).is_closed for name in ("fake", "second")] == [True, True]
    late = await gateway.reloading.reload()
    assert late.problems == ("the gateway is ending; its next start reads the configuration",)


async def test_a_reload_that_does_not_end_does_not_hold_up_the_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway() as (gateway, fake):
        await fake.connected()
        begun = asyncio.Event()

        async def hangs(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(gateway.supervisor, "exchange", hangs)
        write(house, shutdown_s=1)
        reloading = asyncio.create_task(gateway.reloading.reload())
        await asyncio.wait_for(begun.wait(), 60)
    await asyncio.wait([reloading], timeout=60)
    assert reloading.cancelled()
