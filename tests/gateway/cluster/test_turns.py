"""Turns of several workers on one database: each conversation in its order, and no message without an answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from gateway.agent.model import ChatMessage, Model, ModelEvent, ModelReply, ModelRequest, ModelUsage, TextDelta
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import ModelUnavailable
from gateway.messages import ConversationRef, InboundMessage
from gateway.pipeline.queues import InboxRow
from tests.conformance.stores import said
from tests.gateway.cluster.test_gateways import SECRET, config
from tests.scripted_model import Hang

PATIENCE_S = 60.0


class Worker:
    """A model that answers what was asked, and hangs or fails where it is told to; it knows what it was asked."""

    name = "echo"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hangs: dict[str, Hang] = {}
        self.is_away = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        text = request.messages[-1].text
        self.asked.append(text)
        if self.is_away:
            raise ModelUnavailable("away")
        yield TextDelta(text=f"to {text}")
        if text in self.hangs:
            self.hangs[text].started.set()
            await self.hangs[text].released.wait()
        usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1)
        yield ModelReply(message=ChatMessage(role="assistant", text=f"to {text}"), usage=usage)


class Two:
    """Two workers, and what each of their models was asked."""

    def __init__(self, gateways: Sequence[Gateway], models: Sequence[Worker]) -> None:
        self.gateways = gateways
        self.models = models

    async def say(self, at: int, text: str, conversation: str, **changes: object) -> InboundMessage:
        """Write through one of the workers."""
        where = ConversationRef(channel="web", conversation=conversation)
        message = said(f"{conversation} {text}", where, text=text, **changes)
        assert isinstance(await self.gateways[at].inbox.accept(message), int)
        return message

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what is seen in this process."""
        while not is_so():
            await asyncio.sleep(0.01)

    async def answers(self, conversation: str, count: int) -> list[str]:
        """What was answered there, once there are so many answers."""
        where = ConversationRef(channel="web", conversation=conversation)
        while True:
            entries = await self.gateways[0].store.log.read(where)
            found = [entry.text for entry in entries if entry.direction == "out"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def serving(home: Path, model: Model) -> AsyncIterator[Gateway]:
    stop = asyncio.Event()
    settings = load_config(home=home, environment={"ROOT": SECRET}).config
    async with Gateway(home, settings, is_served=False, model=lambda _name: model) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        try:
            await gateway.is_serving.wait()
            yield gateway
        finally:
            stop.set()
            await running


@pytest.fixture
async def two(postgres_url: str, tmp_path: Path) -> AsyncIterator[Two]:
    models = [Worker(), Worker()]
    more = "limits: {lease_s: 5, running_turns: 1}\nshutdown_s: 2\nsession_scope: user\n"
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(config(tmp_path / "north", postgres_url, "north", more), models[0]) as north,
        serving(config(tmp_path / "south", postgres_url, "south", more), models[1]) as south,
    ):
        yield Two([north, south], models)


async def test_a_channel_whose_people_read_the_log_is_every_workers_and_served_by_each_commit(
    postgres_url: str, tmp_path: Path
) -> None:
    async with asyncio.timeout(PATIENCE_S), contextlib.AsyncExitStack() as stack:
        gateways = []
        for name in ("north", "south"):
            home = config(tmp_path / name, postgres_url, name)
            text = (home / "config.yaml").read_text().replace("access: open", "access: open, shows_log: true")
            (home / "config.yaml").write_text(text)
            gateways.append(await stack.enter_async_context(serving(home, Worker())))
        two = Two(gateways, [])
        await two.until(lambda: all(gateway.channels.status("web").state == "up" for gateway in gateways))
        for at, gateway in enumerate(gateways):
            await gateways[1 - at].dispatcher.drain(0.0)
            await two.say(at, "hello", f"{at}")
            assert await two.answers(f"{at}", 1) == ["to hello"]
            rows = "SELECT state, epoch FROM outbox WHERE conversation = ?"
            assert [tuple(row) for row in await gateway.store.engine.rows(rows, (f"{at}",))] == [("sent", 0)]
            gateways[1 - at].dispatcher._is_draining = False


async def test_each_conversation_keeps_its_order_over_two_workers_and_both_work(two: Two) -> None:
    for number in range(5):
        for conversation in "abcd":
            await two.say(number % 2, f"{number}", conversation, sender=sender(conversation))
    for conversation in "abcd":
        assert await two.answers(conversation, 5) == [f"to {number}" for number in range(5)]
    assert all(model.asked for model in two.models)
    assert sum(len(model.asked) for model in two.models) == 20


async def test_what_one_has_no_place_for_the_other_takes_and_a_stop_reaches_it(two: Two) -> None:
    hangs = {"slow": Hang(), "slower": Hang()}
    for model in two.models:
        model.hangs = hangs
    await two.say(0, "slow", "a", sender=sender("a"))
    await hangs["slow"].started.wait()
    busy = 0 if two.gateways[0].dispatcher.running else 1
    await two.say(busy, "hello", "b", sender=sender("b"))
    assert await two.answers("b", 1) == ["to hello"]
    assert two.models[1 - busy].asked == ["hello"]
    await two.say(1 - busy, "/stop", "a", sender=sender("a"))
    assert await two.answers("a", 2) == ["to slow", "Stopped."]
    # What a draining worker does not end is another's at once.
    await two.say(busy, "slower", "a", sender=sender("a"))
    await hangs["slower"].started.wait()
    holder = 0 if two.gateways[0].dispatcher.running else 1
    hangs["slower"].started.clear()
    await two.gateways[holder].dispatcher.drain(0.0)
    await hangs["slower"].started.wait()
    assert two.gateways[1 - holder].dispatcher.running == 1
    hangs["slower"].released.set()
    assert (await two.answers("a", 3))[-1] == "to slower"


async def test_a_killed_workers_conversation_is_answered_when_its_lease_ends_and_a_living_ones_is_left(
    two: Two,
) -> None:
    for gateway in two.gateways:
        await gateway.dispatcher.drain(0.0)
    await two.say(0, "first", "a", sender=sender("a"))
    await two.say(1, "second", "a", sender=sender("a"))
    [row] = await claim(two.gateways[0], "a worker that is killed", 1.0)
    assert row.message.text == "first"
    for gateway in two.gateways:
        gateway.dispatcher._is_draining = False
    assert await two.answers("a", 2) == ["to first", "to second"]
    assert [await gateway.dispatcher.recover() for gateway in two.gateways] == [0, 0]
    hang = Hang()
    two.models[0].hangs = two.models[1].hangs = {"third": hang}
    await two.say(0, "third", "a", sender=sender("a"))
    await hang.started.wait()
    assert [await gateway.dispatcher.recover() for gateway in two.gateways] == [0, 0], "who holds it lives"
    assert [await gateway.meter.recover() for gateway in two.gateways] == [0, 0]
    hang.released.set()
    assert await two.answers("a", 3) == ["to first", "to second", "to third"]


async def test_a_session_of_two_conversations_has_one_turn_at_a_time_over_both_workers(two: Two) -> None:
    """One person writes in two direct chats, which share a session."""
    hang = Hang()
    for model in two.models:
        model.hangs = {"one": hang}
    await two.say(0, "one", "a")
    await hang.started.wait()
    await two.say(1, "two", "b")
    lanes = "SELECT waiting_since FROM lanes WHERE conversation = 'b' AND due_at > waiting_since"
    while not await two.gateways[0].store.engine.rows(lanes):
        await asyncio.sleep(0.01)  # it was given back for a moment
    assert [text for model in two.models for text in model.asked] == ["one"]
    hang.released.set()
    assert await two.answers("a", 1) == ["to one"]
    assert await two.answers("b", 1) == ["to two"]
    heard = [text for model in two.models for text in model.asked]
    assert sorted(heard) == ["one", "two"]


async def test_what_is_parked_by_one_is_answered_as_soon_as_the_others_model_answers(two: Two) -> None:
    for model in two.models:
        model.is_away = True
    for conversation in "ab":
        await two.say(0, "hello", conversation, sender=sender(conversation))
        [told] = await two.answers(conversation, 1)
        assert "cannot reach my model" in told
    await two.gateways[0].store.engine.write(
        lambda connection: connection.execute("UPDATE lanes SET due_at = due_at + 3600000").rowcount, alone=()
    )
    for model in two.models:
        model.is_away = False
    await two.say(1, "hi", "c", sender=sender("c"))
    for conversation in "ab":
        assert (await two.answers(conversation, 2))[1] == "to hello"


def sender(user: str) -> object:
    """Somebody else for each conversation."""
    return said("x").sender.__class__(channel="web", user=user, display_name=user, is_verified=True)


async def claim(gateway: Gateway, worker: str, lease_s: float) -> Sequence[InboxRow]:
    """As a worker does that then is never heard of again."""
    most = {"": 4, "local": 4}
    return (await gateway.store.lanes.claim(worker, lease_s=lease_s, limit=1, turns_of_one=most)).rows
