"""What lives as long as the process forgets a conversation once nothing of it is left to do."""

from __future__ import annotations

import asyncio

import pytest

from gateway.app.gateway import Gateway
from gateway.pipeline import attempts as attempts_module
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_found_store import Broken
from tests.gateway.way.test_parking import Switch

PEOPLE = 30
FIXED = {"outbox._sending", "dispatcher._turns_of_one"}  # of a size of their own


def remembered(gateway: Gateway) -> dict[str, int]:
    """How much each part knows of conversations, where it knows anything."""
    sizes = {}
    parts = {
        "dispatcher": gateway.dispatcher,
        "attempts": gateway.dispatcher._attempts,
        "outbox": gateway.outbox,
        "parking": gateway.parking,
    }
    parts |= {"sends": gateway.outbox._queue, "runner": gateway.turns}
    for name, part in parts.items():
        for attribute, value in vars(part).items():
            if isinstance(value, dict | set | list) or attribute == "_session_locks":
                sizes[f"{name}.{attribute}"] = len(value)
    return {name: size for name, size in sizes.items() if size and name not in FIXED}


async def test_nothing_is_kept_of_conversations_that_are_over_however_they_ended(house: House) -> None:
    model = Switch()
    async with house.gateway(model) as (gateway, channel):
        await channel.connected()
        for number in range(PEOPLE):
            who = {"conversation": f"c{number}", "user": f"{number}"}
            waiting = await channel.say("hello", **who)
            await channel.answers_to(waiting)
            if number % 3 == 0:
                await channel.say("/stop", **who)
            elif number % 3 == 1:
                await channel.say("/retry", **who)
        await settled(gateway)
        assert remembered(gateway)
        model.is_on = True
        await channel.ask("hello", conversation="last")
        await channel.until(lambda: sum(one.text == "here" for one in channel.sent) >= PEOPLE * 2 // 3 + 1)
        for number in range(PEOPLE):
            assert await channel.ask("and now?", conversation=f"c{number}", user=f"{number}") == "here"
        await settled(gateway)
        assert remembered(gateway) == {}


async def test_a_conversation_that_was_woken_in_vain_on_a_broken_disk_is_forgotten(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts_module, "AFTER_FAULT_S", 0.001)
    model = Switch()
    model.is_on = True
    async with house.gateway(model) as (gateway, channel):
        await channel.connected()
        broken = Broken(gateway.store.engine._writer, "COMMIT")
        gateway.store.engine._writer = broken  # type: ignore[assignment]
        gateway.dispatcher.look()
        async with asyncio.timeout(60):
            while not remembered(gateway):
                await asyncio.sleep(0)
        assert remembered(gateway) == {"attempts._machine_failures": 1}
        broken.failing.clear()
        assert await channel.ask("hello") == "here"
        await settled(gateway)
        assert remembered(gateway) == {}
