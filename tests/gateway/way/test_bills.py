"""What an answer did cost is part of its turn's commit, and counted once however the turn ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.agent.budgets import Denied, Granted
from gateway.app.gateway import Gateway
from gateway.errors import ModelUnavailable, StoreUnavailable
from gateway.pipeline.commit import TurnCommit
from gateway.store.engine import statement
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel, call

REMEMBER = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')
LIMITED = {"user": {"tokens": 100_000}}


class Held:
    """Commits of turns that wait until the test lets them go on."""

    def __init__(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        self._commit = gateway.store.turns.commit_turn
        self._asked: asyncio.Queue[TurnCommit] = asyncio.Queue()
        self.released = asyncio.Event()
        monkeypatch.setattr(gateway.store.turns, "commit_turn", self._hold)

    async def next(self) -> TurnCommit:
        """The one that waits."""
        return await asyncio.wait_for(self._asked.get(), 60)

    async def _hold(self, commit: TurnCommit) -> bool:
        await self._asked.put(commit)
        await self.released.wait()
        return await self._commit(commit)


async def counted(gateway: Gateway) -> tuple[int, int, int]:
    """Turns and calls that are counted, and calls for which something is reserved."""
    await gateway.store.engine.write(lambda _connection: None)  # behind all that the store was given
    rows = await gateway.store.usage.spent(since="2000-01-01")
    [(reserved,)] = await gateway.store.engine.rows("SELECT count(*) FROM reservations")
    return sum(row.turns for row in rows), sum(row.calls for row in rows), reserved


@pytest.mark.parametrize("budgets", [{}, LIMITED], ids=["unlimited", "limited"])
async def test_an_answer_is_counted_with_its_commit_and_a_call_before_a_tool_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch, budgets: dict[str, Any]
) -> None:
    before_tool: list[tuple[int, int, int]] = []
    async with house.gateway(ScriptedModel([REMEMBER], "noted"), budgets=budgets) as (gateway, channel):
        held, save_steps = Held(gateway, monkeypatch), gateway.store.turns.save_steps

        async def saving(*args: Any, **keywords: Any) -> bool:
            before_tool.append(await counted(gateway))
            return await save_steps(*args, **keywords)

        monkeypatch.setattr(gateway.store.turns, "save_steps", saving)
        message = await channel.say("I like tea")
        assert (await held.next()).bill is not None
        assert before_tool[0] == (1, 1, 0)
        assert await counted(gateway) == (1, 1, len(budgets))
        held.released.set()
        assert await channel.answers_to(message) == ["noted"]
        await settled(gateway)
        assert await counted(gateway) == (1, 2, 0)


async def test_a_process_that_dies_before_the_commit_has_its_call_counted_by_what_it_had_read(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no budget is cheated by killing."""
    async with house.gateway(ScriptedModel("one"), budgets=LIMITED) as (gateway, channel):
        held = Held(gateway, monkeypatch)
        message = await channel.say("hello")
        await held.next()
        assert await counted(gateway) == (0, 0, 1)
        assert await gateway.store.usage.forgive("another process") == 1
        [row] = await gateway.store.usage.spent(since="2000-01-01")
        assert (row.turns, row.input_tokens > 10, row.output_tokens) == (1, True, 0)
        held.released.set()
        await channel.answers_to(message)


async def test_a_turn_whose_claim_was_lost_has_cost_what_it_has_and_is_counted_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(ScriptedModel("one", "two"), budgets=LIMITED) as (gateway, channel):
        held = Held(gateway, monkeypatch)
        message = await channel.say("hello")
        lost = await held.next()
        await gateway.store.engine.write(statement("UPDATE lanes SET claim = 'of another'"))
        held.released.set()
        await gateway.dispatcher.idle()
        assert await counted(gateway) == (1, 1, 0)
        await gateway.store.engine.write(statement("UPDATE lanes SET claim = NULL, worker = NULL, due_at = 0"))
        gateway.dispatcher.look()
        assert await channel.answers_to(message) == ["two"]
        await settled(gateway)
        assert (await held.next()).bill != lost.bill
        assert await counted(gateway) == (1, 2, 0)


async def test_an_answer_that_could_not_be_committed_is_counted_and_so_is_the_next_try(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(ScriptedModel("one", "one"), budgets=LIMITED) as (gateway, channel):
        commit, failures = gateway.store.turns.commit_turn, [StoreUnavailable("the disk is full")]

        async def failing(turn: TurnCommit) -> bool:
            if failures:
                raise failures.pop()
            return await commit(turn)

        monkeypatch.setattr(gateway.store.turns, "commit_turn", failing)
        assert await channel.ask("hello") == "one"
        await settled(gateway)
        assert await counted(gateway) == (1, 2, 0)


async def test_the_calls_of_a_turn_that_is_parked_or_stopped_are_counted(house: House) -> None:
    hang = Hang()
    model = ScriptedModel([REMEMBER], [ModelUnavailable("down", retry_after_s=3600.0)], "noted", ["Once ", hang])
    async with house.gateway(model, budgets=LIMITED) as (gateway, channel):
        message = await channel.say("I like tea")
        await channel.answers_to(message)
        await settled(gateway)
        assert await counted(gateway) == (1, 1, 0)
        await channel.say("/retry")
        assert (await channel.answers_to(message, 2))[1] == "noted"
        await channel.say("tell me a story")
        await asyncio.wait_for(hang.started.wait(), 60)
        assert await channel.ask("/stop") == "Stopped."
        await settled(gateway)
        assert await counted(gateway) == (2, 3, 0)


async def test_another_conversation_of_the_person_waits_for_what_the_commit_gives_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel("one", "two")
    settings = {"budgets": {"user": {"tokens": 4_096}}, "schedules": {"enabled": False}}
    async with house.gateway(model, **settings) as (gateway, channel):
        held, reserve, denied = Held(gateway, monkeypatch), gateway.store.usage.reserve, asyncio.Event()

        async def telling(*args: Any, **keywords: Any) -> Granted | Denied:
            answer = await reserve(*args, **keywords)
            if isinstance(answer, Denied):
                denied.set()
            return answer

        monkeypatch.setattr(gateway.store.usage, "reserve", telling)
        first = await channel.say("hello")
        await held.next()
        second = await channel.say("hello", conversation="c2")
        await asyncio.wait_for(denied.wait(), 60)
        assert len(model.requests) == 1
        held.released.set()
        assert await channel.answers_to(first) == ["one"]
        assert await channel.answers_to(second) == ["two"]
        await settled(gateway)
        assert await counted(gateway) == (2, 2, 0)
