"""Limits: one person's flood delays nobody else, a full queue is said once, and a turn comes to an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.domain.sessions import LOCAL
from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.pipeline.inbox import COMMANDS_BEYOND
from gateway.pipeline.queues import Refused
from gateway.tools.spec import ToolCall
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel

FLOOD = 2_000


class Clerk:
    """A model that answers at once, and keeps the order in which it was asked."""

    name = "clerk"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.asked.append(request.messages[-1].text)
        usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1)
        yield ModelReply(message=ChatMessage(role="assistant", text="here"), usage=usage)


async def flood(channel: FakeChannel, conversations: int) -> None:
    """All these messages of one person, all accepted."""
    for begin in range(0, FLOOD, 500):
        numbers = range(begin, begin + 500)
        messages = [channel.message(f"flood {at}", conversation=f"f{at % conversations}", user="f") for at in numbers]
        await asyncio.gather(*(channel.deliver(message) for message in messages))


@pytest.mark.parametrize("conversations", [1, FLOOD])
async def test_two_thousand_messages_of_one_person_delay_another_by_one_turn_at_most(
    house: House, conversations: int
) -> None:
    """Row 12, counted in turns; with one worker, where it would be worst. `benchmarks.flood` has ten thousand."""
    model = Clerk()
    limits = {"queued_messages_per_user": FLOOD, "running_turns": 1, "history_tokens": 500}
    async with house.gateway(model, limits=limits, shutdown_s=0) as (gateway, channel):
        await flood(channel, conversations)
        for number in range(5):
            begun = len(model.asked)
            other = await channel.say(f"other {number}", conversation=f"o{number}", user=f"o{number}")
            assert await channel.answers_to(other) == ["here"]
            before = model.asked[begun : model.asked.index(other.text)]
            assert sum(text.startswith("flood") for text in before) <= 1  # a summary is asked for beside the turns
        assert (await gateway.store.deliveries.counts("inbox"))[0] > 0  # the flood is not over


async def test_after_a_restart_a_flood_in_many_conversations_is_still_one_persons(house: House) -> None:
    limits = {"running_turns": 1}
    async with house.gateway(ScriptedModel([Hang()]), limits=limits, shutdown_s=0) as (_, channel):
        for number in range(50):
            await channel.say(f"flood {number}", conversation=f"f{number}", user="f")
        other = await channel.say("other", conversation="o", user="o")
    model = Clerk()
    async with house.gateway(model, limits=limits) as (_, channel):
        assert await channel.answers_to(other) == ["here"]
        assert model.asked.index("other") <= 1


async def test_one_person_has_no_more_turns_at_once_than_is_allowed(house: House) -> None:
    hangs = [Hang() for _ in range(5)]
    model = ScriptedModel(*([hang, "done"] for hang in hangs))
    async with house.gateway(model, limits={"running_turns_per_user": 2}) as (gateway, channel):
        for number in range(4):
            await channel.say(str(number), conversation=str(number), user="busy")
        await asyncio.wait_for(hangs[0].started.wait(), 60)
        await asyncio.wait_for(hangs[1].started.wait(), 60)
        await channel.say("hello", conversation="other", user="other")
        await asyncio.wait_for(hangs[2].started.wait(), 60)
        assert gateway.dispatcher.running == 3
        assert model.requests[-1].messages[-1].text == "hello"
        for hang in hangs:
            hang.released.set()
        await channel.until(lambda: len(channel.sent) == 5)


def said_by_program(number: int) -> InboundMessage:
    """A message of one key, in a session of its own."""
    return InboundMessage(
        id=str(number),
        event_id=str(number),
        conversation=ConversationRef(channel=LOCAL, conversation=str(number)),
        sender=Sender(channel=LOCAL, user="key-1", display_name="program", is_verified=True),
        text=str(number),
        sent_at=datetime.now(UTC),
    )


async def test_a_program_may_have_more_turns_and_messages_at_once_than_a_person(house: House) -> None:
    hangs = [Hang() for _ in range(5)]
    model = ScriptedModel(*([hang, "done"] for hang in hangs), "the last")
    limits = {"running_turns_per_user": 1, "queued_messages_per_user": 1}
    limits |= {"running_turns_per_program": 4, "queued_messages_per_program": 5}
    async with house.gateway(model, limits=limits) as (gateway, channel):
        for number in range(5):
            assert isinstance(await gateway.inbox.accept(said_by_program(number)), int)
        assert isinstance(await gateway.inbox.accept(said_by_program(5)), Refused)
        async with asyncio.timeout(60):
            for hang in hangs[:4]:
                await hang.started.wait()
            await channel.say("hello", conversation="other", user="other")
            await hangs[4].started.wait()
        assert model.requests[-1].messages[-1].text == "hello"
        assert gateway.dispatcher.running == 5
        for hang in hangs:
            hang.released.set()
        await settled(gateway)


async def test_a_full_queue_is_said_once_and_stop_still_works(house: House) -> None:
    hang = Hang()
    model = ScriptedModel([hang, "never"], "two", "after")
    async with house.gateway(model, limits={"queued_messages_per_user": 2}) as (gateway, channel):
        running = await channel.say("one")
        await asyncio.wait_for(hang.started.wait(), 60)
        waiting = await channel.say("two")
        refused = [await channel.say(f"too much {number}") for number in range(3)]
        assert "2 messages of yours wait for me already" in (await channel.answers_to(refused[0]))[0]
        stop = await channel.say("/stop")
        assert await channel.answers_to(waiting) == ["two"]
        assert await channel.answers_to(stop) == ["Stopped."]
        assert await channel.answers_to(running, 0) == []
        await settled(gateway)
        assert not [one for one in channel.sent if one.reply_to in {message.id for message in refused[1:]}]
        assert await channel.ask("after") == "after"
        rows = await gateway.store.deliveries.rows("inbox", chosen="all")
        assert sum((row.error or "").startswith("refused") for row in rows) == 3


async def test_commands_have_an_end_too(house: House) -> None:
    hang = Hang()
    async with house.gateway(ScriptedModel([hang, "x"]), limits={"queued_messages_per_user": 1}) as (gateway, channel):
        await channel.say("one")
        await asyncio.wait_for(hang.started.wait(), 60)
        for _ in range(COMMANDS_BEYOND + 5):
            await channel.say("/help")
        rows = await gateway.store.deliveries.rows("inbox")
        assert len(rows) == 1 + COMMANDS_BEYOND
        hang.released.set()


async def test_who_is_not_let_in_is_not_told_of_full_queues(house: House) -> None:
    hang = Hang()
    fake = {"access": "allowlist", "allow": ["1"]}
    limits = {"queued_messages_per_user": 1, "running_turns": 1}
    async with house.gateway(ScriptedModel([hang, "x"]), fake=fake, limits=limits) as (gateway, channel):
        await channel.say("one")
        await asyncio.wait_for(hang.started.wait(), 60)
        for number in range(5):
            await channel.say(f"let me in {number}", conversation="s", user="stranger")
        hang.released.set()
        await settled(gateway)
        assert sum(one.conversation.conversation == "s" for one in channel.sent) == 1  # that it is not known


async def test_a_model_that_always_calls_a_tool_comes_to_an_end(house: House) -> None:
    """Row 27: the steps of a turn are bounded."""

    class Restless(Clerk):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            self.asked.append(request.messages[-1].text)
            calls = (ToolCall(id="c", name="current_time", arguments="{}"),)
            usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1)
            yield ModelReply(message=ChatMessage(role="assistant", text="", tool_calls=calls), usage=usage)

    model = Restless()
    async with house.gateway(model, limits={"steps_per_turn": 5}) as (_, channel):
        assert "more steps than one answer is allowed" in await channel.ask("what time is it?")
        assert len(model.asked) == 5


async def test_a_gateway_where_nothing_is_said_asks_no_model_and_writes_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 13, on a clock that runs an hour ahead: whatever would wake up in that time does."""
    model = Clerk()
    async with house.gateway(model) as (gateway, channel):
        assert await channel.ask("hello") == "here"
        await settled(gateway)
        reads: list[object] = []
        writes: list[object] = []
        database = gateway.store.engine
        read, write = database.read, database.write

        async def counted_read(work):
            reads.append(work)
            return await read(work)

        async def counted_write(work, *, is_durable=True):
            writes.append(work)
            return await write(work, is_durable=is_durable)

        monkeypatch.setattr(database, "read", counted_read)
        monkeypatch.setattr(database, "write", counted_write)
        loop = asyncio.get_running_loop()
        time, ahead_s = loop.time, 0.0
        monkeypatch.setattr(loop, "time", lambda: time() + ahead_s)
        for _ in range(3600):
            ahead_s += 1.0
            for _ in range(3):
                await asyncio.sleep(0)
        assert len(model.asked) == 1
        assert not writes
        assert len(reads) <= 3600
