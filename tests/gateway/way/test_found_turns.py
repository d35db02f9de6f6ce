"""Turns in awkward moments: a message whose writer hung up, a stop that comes early, a turn that ends the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from gateway.app.gateway import Gateway
from gateway.errors import ModelUnavailable, StoreUnavailable
from gateway.messages import Attachment
from gateway.pipeline import attachments as attachments_module
from gateway.pipeline import attempts as attempts_module
from gateway.pipeline.commit import TurnCommit
from gateway.store.claims import SqlLanes
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "AFTER_FAULT_S", 0.01)


class Held:
    """Holds a call of a method back until it is released; the first time only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, is_after: bool = False) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()
        method: Callable[..., Awaitable[object]] = getattr(owner, name)

        async def held(*args: object, **keywords: object) -> object:
            if self.reached.is_set():
                return await method(*args, **keywords)
            if is_after:
                result = await method(*args, **keywords)
                await self._hold()
                return result
            await self._hold()
            return await method(*args, **keywords)

        monkeypatch.setattr(owner, name, held)

    async def _hold(self) -> None:
        self.reached.set()
        await self.released.wait()


async def test_a_message_whose_accept_is_given_up_during_the_commit_is_answered_all_the_same(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        await channel.connected()
        message = channel.message("hi")
        accepting = asyncio.create_task(gateway.inbox.accept(message))
        await asyncio.sleep(0)  # the commit is on its way
        accepting.cancel()  # the platform's connection broke
        await asyncio.wait([accepting])
        assert await channel.answers_to(message) == ["hello"]


async def test_a_stop_that_comes_while_the_turn_gets_ready_stops_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(ScriptedModel("the whole story", "next")) as (gateway, channel):
        held = Held(monkeypatch, gateway.memory, "prefetch")
        message = await channel.say("tell me")
        await asyncio.wait_for(held.reached.wait(), 60)
        stop = await channel.say("/stop")
        held.released.set()
        assert await channel.answers_to(stop) == ["Stopped."]
        assert await channel.answers_to(message, 0) == []


async def test_a_stop_reaches_a_message_that_still_waits_for_its_turn(house: House) -> None:
    hang = Hang()
    async with house.gateway(ScriptedModel([hang, "slow"], "too late"), limits={"running_turns": 1}) as (_, channel):
        await channel.say("slow", conversation="other")
        await asyncio.wait_for(hang.started.wait(), 60)
        message = await channel.say("tell me")
        stop = await channel.say("/stop")
        hang.released.set()
        assert await channel.answers_to(stop) == ["Stopped."]
        assert await channel.answers_to(message, 0) == []


class FailsOnce:
    """Lets the first commit of each turn fail, as a disk does that is full for a moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gateway: Gateway) -> None:
        self.failed: set[str] = set()
        commit_turn = gateway.store.turns.commit_turn

        async def commit(commit: TurnCommit) -> bool:
            if commit.turn_id not in self.failed:
                self.failed.add(commit.turn_id)
                raise StoreUnavailable("the disk is full")
            return await commit_turn(commit)

        monkeypatch.setattr(gateway.store.turns, "commit_turn", commit)


async def test_a_stop_is_not_forgotten_when_a_commit_fails(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the message that was stopped nor by the `/stop` itself; each is committed at the second try."""
    hang = Hang()
    model = ScriptedModel([hang, "the whole story"], "once more")
    async with house.gateway(model) as (gateway, channel):
        fails = FailsOnce(monkeypatch, gateway)
        message = await channel.say("tell me")
        await asyncio.wait_for(hang.started.wait(), 60)
        stop = await channel.say("/stop")
        assert await channel.answers_to(stop) == ["Stopped."]
        assert await channel.answers_to(message, 0) == []
        assert len(fails.failed) == 2
        assert len(model.requests) == 1, "what was stopped is not asked again"
        await settled(gateway)
        assert not gateway.dispatcher._stops


async def test_a_stop_of_what_still_waits_is_not_forgotten_when_a_commit_fails(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = Hang()
    model = ScriptedModel([hang, "slow"], "too late")
    async with house.gateway(model, limits={"running_turns": 1}) as (gateway, channel):
        FailsOnce(monkeypatch, gateway)
        await channel.say("slow", conversation="other")
        await asyncio.wait_for(hang.started.wait(), 60)
        message = await channel.say("tell me")
        stop = await channel.say("/stop")
        hang.released.set()
        assert await channel.answers_to(stop) == ["Stopped."]
        assert await channel.answers_to(message, 0) == []


async def test_two_stops_with_nothing_to_stop_say_so_both(house: House) -> None:
    hang = Hang()
    async with house.gateway(ScriptedModel([hang, "slow"]), limits={"running_turns": 1}) as (_, channel):
        await channel.say("slow", conversation="other")
        await asyncio.wait_for(hang.started.wait(), 60)
        stops = [await channel.say("/stop") for _ in range(2)]
        hang.released.set()
        for stop in stops:
            assert await channel.answers_to(stop) == ["Nothing is running."]


@pytest.mark.parametrize("is_dropped_by_operator", [True, False])
async def test_a_stop_behind_a_parked_message_that_is_gone_has_no_effect(
    house: House, *, is_dropped_by_operator: bool
) -> None:
    model = ScriptedModel([ModelUnavailable("down", retry_after_s=3600)], "fine")
    async with house.gateway(model) as (gateway, channel):
        await channel.answers_to(await channel.say("first"))
        if is_dropped_by_operator:
            [row] = await gateway.store.deliveries.rows("inbox")
            await gateway.store.deliveries.drop("inbox", row.id)
            assert await channel.ask("/stop") == "Nothing is running."
        else:
            assert await channel.ask("/stop") == "Stopped."
        assert await channel.ask("second") == "fine"


async def test_stop_and_retry_act_on_a_parked_message_after_a_restart_too(house: House) -> None:
    down = [ModelUnavailable("down", retry_after_s=3600)]
    async with house.gateway(ScriptedModel(down, down)) as (_, channel):
        first, second = await channel.say("one", conversation="a"), await channel.say("two", conversation="b")
        await channel.answers_to(first)
        await channel.answers_to(second)
    async with house.gateway(ScriptedModel("at last")) as (_, channel):
        await channel.connected()
        stop = replace(channel.message("/stop", conversation="a"), id="stop", event_id="stop")
        retry = replace(channel.message("/retry", conversation="b"), id="retry", event_id="retry")
        await channel.deliver(stop)
        await channel.deliver(retry)
        assert await channel.answers_to(stop) == ["Stopped."]
        assert await channel.answers_to(first, 0) == []
        assert await channel.answers_to(second) == ["at last"]
        assert await channel.answers_to(retry) == ["I tried the message that was waiting."]


@pytest.mark.parametrize("is_stranger", [True, False])
async def test_who_is_not_let_in_stops_nobodys_answer(house: House, *, is_stranger: bool) -> None:
    hang = Hang()
    fake = {"access": "allowlist", "allow": ["1", "3"]}
    async with house.gateway(ScriptedModel([hang, "the whole answer"]), fake=fake) as (gateway, channel):
        asked = channel.message("tell us", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(asked)
        await asyncio.wait_for(hang.started.wait(), 60)
        stop = channel.message(
            "/stop", conversation="group", is_direct=False, user="2" if is_stranger else "3", mentions_bot=is_stranger
        )
        await channel.deliver(stop)
        hang.released.set()
        assert await channel.answers_to(asked) == ["the whole answer"]
        await settled(gateway)
        assert len(channel.sent) == 1


async def test_events_of_two_conversations_with_one_id_are_not_taken_for_each_other(house: House) -> None:
    """An event id is unique in its channel only."""
    hang = Hang()
    two = {name: {"kind": "tests.fake_channel"} for name in ("fake", "other")}
    async with house.gateway(ScriptedModel([hang]), channels=two, limits={"running_turns": 1}) as (gateway, channel):
        other = gateway.adapters[1]
        assert isinstance(other, FakeChannel)
        await channel.say("tell me")
        await asyncio.wait_for(hang.started.wait(), 60)
        stop = channel.message("/stop", event_id="42")
        elsewhere = other.message("/stop", event_id="42")
        await other.deliver(elsewhere)
        await channel.deliver(stop)
        assert await other.answers_to(elsewhere) == ["Nothing is running."]
        assert await channel.answers_to(stop) == ["Stopped."]


async def test_retry_after_a_turn_that_took_too_long_asks_the_same_again(house: House) -> None:
    model = ScriptedModel("four", [Hang()], "six")
    async with house.gateway(model, limits={"turn_timeout_s": 2.0}) as (_, channel):
        await channel.ask("what is two and two?")
        assert "I gave up" in await channel.ask("what is three and three?")
        assert await channel.ask("/retry") == "six"
        assert model.requests[-1].messages[-1].text == "what is three and three?"


async def test_what_was_said_before_the_time_was_over_is_kept(house: House) -> None:
    async with house.gateway(ScriptedModel(["half of it", Hang()]), limits={"turn_timeout_s": 1.0}) as (
        gateway,
        channel,
    ):
        answer = await channel.ask("tell me")
        assert answer.startswith("half of it\n\n")
        assert "I gave up" in answer
        [session] = await gateway.store.sessions.list_sessions()
        stored = await gateway.store.sessions.messages(session.id)
        assert [one.text for one in stored] == ["tell me", "half of it"]


async def test_retry_in_a_group_repeats_ones_own_question_and_nobody_elses(house: House) -> None:
    model = ScriptedModel("ada", "bob", "ada again")
    async with house.gateway(model) as (_, channel):

        async def ask(text: str, user: str) -> str:
            message = channel.message(text, user=user, conversation="group", is_direct=False, mentions_bot=True)
            await channel.deliver(message)
            return (await channel.answers_to(message))[0]

        await ask("my name is Ada", "1")
        await ask("my name is Bob", "2")
        assert await ask("/retry", "1") == "ada again"
        assert model.requests[-1].messages[-1].text == "my name is Ada"
        assert await ask("/retry", "3") == "There is nothing to answer again in this session."


async def test_a_message_that_ends_the_process_again_and_again_becomes_a_dead_letter(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = SqlLanes.claim

    async def killed_eight_times(self, *args, **keywords):
        claimed = await claim(self, *args, **keywords)
        return replace(claimed, rows=[replace(row, lone_deaths=8) for row in claimed.rows])

    monkeypatch.setattr(SqlLanes, "claim", killed_eight_times)
    model = ScriptedModel()
    async with house.gateway(model) as (gateway, channel):
        assert (await channel.ask("kill")).startswith("Something went wrong here")
        [dead] = await gateway.store.deliveries.rows("inbox", chosen="dead")
        assert dead.error is not None
        assert "process ended" in dead.error
        assert not model.requests


async def test_a_cancellation_that_leaks_out_of_a_model_is_a_failure_that_is_tried_again(house: House) -> None:
    async with house.gateway(ScriptedModel([asyncio.CancelledError()], "hello")) as (_, channel):
        assert await channel.ask("hi") == "hello"


async def test_a_fault_while_a_poison_message_is_buried_does_not_hold_up_its_conversation_for_ever(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([RuntimeError("boom")], [RuntimeError("boom")], "fine")
    async with house.gateway(model, delivery={"max_attempts": 1}) as (gateway, channel):
        turns = gateway.turns
        dead_letter, faults = turns.dead_letter, [RuntimeError("a fault of ours")]

        async def failing(row, reason):
            if faults:
                raise faults.pop()
            await dead_letter(row, reason)

        monkeypatch.setattr(turns, "dead_letter", failing)
        poison, good = await channel.say("poison"), await channel.say("good")
        assert (await channel.answers_to(poison))[0].startswith("Something went wrong")
        assert len(await channel.answers_to(good)) == 1


async def test_no_turn_begins_once_the_gateway_is_stopping(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel([Hang()])
    async with house.gateway(model, shutdown_s=0) as (gateway, channel):
        await channel.connected()
        claim = SqlLanes.claim
        claimed, released = asyncio.Event(), asyncio.Event()

        async def slow(self, *args, **keywords):
            row = await claim(self, *args, **keywords)
            claimed.set()
            await released.wait()
            return row

        monkeypatch.setattr(SqlLanes, "claim", slow)
        message = await channel.say("hello")
        await asyncio.wait_for(claimed.wait(), 60)
        draining = asyncio.create_task(gateway.dispatcher.drain(0))
        for _ in range(10):  # until its time is over
            await asyncio.sleep(0)
        released.set()
        await asyncio.wait_for(draining, 60)
        assert not model.requests
        monkeypatch.setattr(SqlLanes, "claim", claim)
    async with house.gateway(ScriptedModel("here")) as (_, channel):
        assert await channel.answers_to(message) == ["here"]


async def test_a_file_that_never_comes_does_not_hold_up_the_answer(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(_self: FakeChannel, _file: Attachment, _max_bytes: int) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(FakeChannel, "fetch", fetch, raising=False)
    monkeypatch.setattr(attachments_module, "FETCH_TIMEOUT_S", 0.01, raising=False)
    model = ScriptedModel("I cannot see it")
    async with house.gateway(model) as (_, channel):
        file = Attachment(media_type="text/plain", filename="a.txt", size_bytes=3, ref="1")
        message = channel.message("read this", attachments=(file,))
        await channel.deliver(message)
        assert await channel.answers_to(message) == ["I cannot see it"]
        assert "could not be fetched" in model.requests[0].messages[-1].text
