"""A channel is connected by the worker that holds it, and by no other; what its last holder left is taken up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cluster.channels import LeasedChannels, OneWorker
from gateway.cluster.leases import Leases
from gateway.cluster.news import NoOthers
from gateway.domain.channels import Channels
from gateway.errors import AdapterAuthFailed, AdapterNotReady, ClaimLost
from gateway.messages import OutboundMessage, Receipt
from gateway.pipeline.outbox import REPEAT_NOTE, Outbox
from gateway.pipeline.queues import DeliveryPolicy
from gateway.pipeline.supervisor import Supervisor
from gateway.protocols import Accept, ReceivesAnywhere
from gateway.store.leases import SqlLeases
from gateway.store.notes import SqlNotes
from gateway.store.stores import Stores, open_store
from tests.conformance.stores import HERE, House, answer, turn
from tests.fake_channel import Config, FakeChannel

LEASE_S = 0.9
PATIENCE_S = 20.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Stores]:
    opened = open_store(tmp_path / "ethos.db")
    yield opened
    await opened.close()


class Accepted(list[Any]):
    async def accept(self, message: Any) -> int:
        self.append(message)
        return len(self)


class Channel(FakeChannel):
    """Its platform may take for ever, and it also receives by HTTP."""

    http_path, http_access, http_app = "/hooks/web", "public", None
    is_slow = False

    def __init__(self) -> None:
        super().__init__("web", Config())
        self.sending = asyncio.Event()
        self.is_receiving = asyncio.Event()

    async def send(self, message: OutboundMessage) -> Receipt:
        if self.is_slow:
            self.sending.set()
            await asyncio.Event().wait()
        return await super().send(message)

    async def receive(self, accept: Accept) -> None:
        self._accept = accept
        self.is_receiving.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_receiving.clear()
            self._accept = None


class OneOfMany:
    """A worker with a channel, over a store that it shares with others."""

    def __init__(self, store: Stores, name: str, channel: Channel, **changes: Any) -> None:
        self.channel = channel
        self.leases = Leases(SqlLeases(store.engine), name, lease_s=LEASE_S)
        self.holding = LeasedChannels(self.leases, SqlLeases(store.engine), NoOthers(), **changes)
        self.channels = Channels()
        self.channels.add([channel])
        self.outbox = Outbox(store.outbox, self.channels, DeliveryPolicy())
        self.accepted = Accepted()
        self.supervisor = Supervisor(self.channels, self.accepted, self.outbox, self.holding)  # type: ignore[arg-type]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> str:
        return self.channels.status(self.channel.name).state

    async def reaches(self, state: str) -> None:
        while self.state != state:
            await asyncio.sleep(0.01)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(part.run()) for part in (self.leases, self.outbox, self.supervisor)]

    async def end(self) -> None:
        """As a worker that is stopped in order."""
        await self.supervisor.stop_receiving()
        await self.kill()

    async def kill(self) -> None:
        """Nothing is given back."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@contextlib.asynccontextmanager
async def two(store: Stores) -> AsyncIterator[tuple[OneOfMany, OneOfMany]]:
    """The first has the channel."""
    one, other = (OneOfMany(store, name, Channel()) for name in "ab")
    try:
        async with asyncio.timeout(PATIENCE_S):
            one.start()
            await one.reaches("up")
            other.start()
            await other.reaches("elsewhere")
            yield one, other
    finally:
        await one.kill()
        await other.kill()


async def test_one_of_two_connects_and_the_other_when_that_ends(store: Stores) -> None:
    async with two(store) as (one, other):
        assert (one.channel.connects, other.channel.connects) == (1, 0)
        assert other.channels.if_up("web") is None
        await asyncio.wait_for(other.supervisor.all_tried.wait(), 1)
        await one.end()
        assert one.state == "elsewhere"
        await other.reaches("up")
        assert other.channels.epoch("web") == 2


async def test_a_holder_that_loses_its_lease_stops_first_and_waits_until_it_is_free_again(store: Stores) -> None:
    async with two(store) as (one, other):
        one.leases.lose("channel:web", pause_s=0.5)
        await one.reaches("elsewhere")
        assert one.channels.if_up("web") is None
        await other.reaches("up")
        await other.end()
        await one.reaches("up")
        assert (one.channel.connects, one.channels.epoch("web")) == (2, 3)


async def test_what_an_operator_releases_goes_to_another_worker(store: Stores) -> None:
    async with two(store) as (one, other):
        assert await one.holding.release("web")
        await other.reaches("up")
        assert one.state == "elsewhere"
        assert not await one.holding.release("unknown")


async def test_nothing_is_accepted_or_sent_by_one_that_was_paused_for_too_long(store: Stores) -> None:
    """No timer has run yet when it wakes up: it asks its own clock."""
    async with two(store) as (one, _other):
        held = one.leases.held["channel:web"]
        held.until_s = 0
        assert one.channels.if_up("web") is None
        with pytest.raises(AdapterNotReady):
            await one.supervisor._accept_from("web", held)(one.channel.message("hi"))
        assert one.accepted == []


async def test_a_reply_that_was_being_sent_by_the_last_holder_is_uncertain_for_the_next(store: Stores) -> None:
    async with two(store) as (one, other):
        one.channel.is_slow = True
        await turn(store, replies=(answer("r1"),))
        await one.outbox.look("web")
        await one.channel.sending.wait()
        await one.kill()
        await other.reaches("up")
        while not other.channel.sent:
            await other.outbox.next_send.wait()
        assert [message.text for message in other.channel.sent] == [REPEAT_NOTE + "text of r1"]


async def test_a_reply_that_was_claimed_before_a_pause_is_left_to_the_next_holder(store: Stores) -> None:
    """The process may stand still between the claim and the send, for longer than its lease lasts."""
    async with two(store) as (one, other):

        async def pause(_message: OutboundMessage) -> None:
            one.leases.lose("channel:web", pause_s=PATIENCE_S)

        one.outbox.settle = pause
        await turn(store, replies=(answer("r1"),))
        await one.outbox.look("web")
        await other.reaches("up")
        while not other.channel.sent:
            await other.outbox.next_send.wait()
        assert one.channel.sent == []
        assert [message.text for message in other.channel.sent] == ["text of r1"], "it was certainly not sent"


async def test_a_reply_is_claimed_and_put_back_only_under_the_epoch_of_the_holder(house: House) -> None:
    store = house.store
    await turn(store, replies=(answer("r1"),))
    leases = SqlLeases(store.engine)
    assert await leases.take("channel:web", worker="a", lease_s=60) == 1
    row = await store.outbox.claim_reply(HERE, is_durable=True, epoch=1)
    assert row
    assert row.epoch == 1
    await leases.give_back("channel:web", 1, worker="a")
    assert await leases.take("channel:web", worker="b", lease_s=60) == 2
    with pytest.raises(ClaimLost):
        await store.outbox.claim_reply(HERE, is_durable=True, epoch=1)
    assert await store.outbox.recover_replies("web", 1) == 0, "its own"
    assert await store.outbox.recover_replies("other", 2) == 0
    assert await store.outbox.recover_replies("web", 2) == 1
    second = await store.outbox.claim_reply(HERE, is_durable=True, epoch=2)
    assert second
    assert second.is_uncertain
    await store.outbox.record_retry(row, after_s=0, error="late", is_uncertain=False)
    again = await store.outbox.claim_reply(HERE, is_durable=True, epoch=2)
    assert again, "who holds the channel asks again where the answer to its claim was lost"
    assert again.is_uncertain, "the late word of the former holder has changed nothing"


async def test_a_note_of_a_channel_is_written_under_the_epoch_of_its_holder_only(store: Stores) -> None:
    leases = SqlLeases(store.engine)
    await leases.take("channel:web", worker="a", lease_s=60)
    old, new = SqlNotes(store.engine, "web", lambda: 1), SqlNotes(store.engine, "web", lambda: 2)
    await old.put("cursor", "1")
    await leases.give_back("channel:web", 1, worker="a")
    await leases.take("channel:web", worker="b", lease_s=60)
    await new.put("cursor", "2")
    for late in (old.put("cursor", "1"), old.remove("cursor")):
        with pytest.raises(ClaimLost):
            await late
    assert await new.get("cursor") == "2"


async def test_replies_to_a_channel_of_another_worker_are_told_to_its_holder(store: Stores) -> None:
    async with two(store) as (one, other):
        told: asyncio.Queue[str] = asyncio.Queue()
        other.outbox.tell_holder = told.put_nowait
        await turn(store, replies=(answer("r1"),))
        other.outbox.wake(HERE)
        assert await told.get() == "web"
        await one.outbox.look("web")
        while not one.channel.sent:
            await one.outbox.next_send.wait()
        assert [message.id for message in one.channel.sent] == ["r1"]


async def test_a_refused_key_is_not_tried_by_the_same_worker_again_until_another_had_the_channel(
    store: Stores,
) -> None:
    async with two(store) as (one, other):
        other.channel.connect_failures = [AdapterAuthFailed("refused")]
        await one.end()
        await other.reaches("auth_failed")
        assert other.channel.connects == 1
        assert "channel:web" in other.leases.held


async def test_what_comes_by_http_is_accepted_by_every_worker(store: Stores) -> None:
    async with two(store) as (one, other):
        assert isinstance(other.channel, ReceivesAnywhere)
        await other.channel.is_receiving.wait()
        await other.channel.deliver(other.channel.message("over HTTP"))
        await one.channel.deliver(one.channel.message("hi"))
        assert [len(each.accepted) for each in (one, other)] == [1, 1]
        assert not one.channel.is_receiving.is_set()
        await one.end()
        await other.reaches("up")
        assert not other.channel.is_receiving.is_set(), "it is connected now"


async def test_a_worker_holds_only_the_channels_that_it_may(store: Stores) -> None:
    one = OneOfMany(store, "a", Channel(), channels=["other"])
    one.start()
    await one.reaches("elsewhere")
    await asyncio.sleep(0.3)
    assert not one.leases.held
    await one.kill()


async def test_the_only_worker_holds_every_channel_for_ever() -> None:
    hold = await OneWorker().take("web")
    assert (hold.epoch, hold.is_good) == (0, True)
    await OneWorker().give_back("web", hold)
    assert not await OneWorker().release("web")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(hold.lost(), 0.01)
