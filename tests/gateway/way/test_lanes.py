"""The dispatcher and its lanes: what runs alone, what another worker took, and a gateway with nothing to do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.app.gateway import Gateway
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel


async def change(gateway: Gateway, sql: str) -> None:
    """Change rows as another process would."""
    await gateway.store.engine.write(lambda connection: connection.execute(sql).close())


async def test_a_message_at_three_deaths_runs_alone_and_the_others_go_after_it(house: House) -> None:
    async with house.gateway(ScriptedModel([Hang()]), shutdown_s=0) as (gateway, channel):
        poison = await channel.say("poison", conversation="a")
        await change(gateway, "UPDATE inbox SET deaths = 3")
    hang = Hang()
    model = ScriptedModel([hang, "harmless"], "here", "here")
    async with house.gateway(model) as (gateway, channel):
        await asyncio.wait_for(hang.started.wait(), 60)
        written = [channel.message("hello", conversation=name, user=name) for name in "bc"]
        others = [replace(each, id=f"other {each.id}", event_id=f"other {each.event_id}") for each in written]
        for other in others:
            await channel.deliver(other)
        assert gateway.dispatcher.running == 1
        assert len(model.requests) == 1
        hang.released.set()
        assert await channel.answers_to(poison) == ["harmless"]
        for other in others:
            assert await channel.answers_to(other) == ["here"]


async def test_a_turn_whose_lane_another_worker_took_is_stopped_and_changes_nothing(house: House) -> None:
    hang = Hang()
    async with house.gateway(ScriptedModel([hang, "never said"]), limits={"lease_s": 5}) as (gateway, channel):
        message = await channel.say("hello")
        await asyncio.wait_for(hang.started.wait(), 60)
        await change(gateway, "UPDATE lanes SET claim = 'theirs', worker = 'another', due_at = 1 << 60")
        async with asyncio.timeout(60):
            await gateway.dispatcher.turns_ended()
        await settled(gateway)
        assert gateway.dispatcher.running == 0
        [row] = await gateway.store.deliveries.rows("inbox")
        assert (row.state, row.attempts, row.error) == ("running", 0, None)
        assert await channel.answers_to(message, 0) == []


async def test_with_nothing_to_do_the_store_is_not_asked(house: House) -> None:
    """Row 13: where there are no other workers, nothing is looked for before its time."""
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        assert await channel.ask("hi") == "hello"
        await settled(gateway)
        assert gateway.dispatcher._next_at_s is None
