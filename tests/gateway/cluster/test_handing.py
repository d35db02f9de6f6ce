"""What only the worker that has a channel can accept is handed to it, and acknowledged once that has accepted it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.app.cluster import Alone
from gateway.app.handing import Handing
from gateway.cluster.news import MAX_BYTES, SharedNews
from gateway.domain.channels import Channels
from gateway.errors import AdapterNotReady
from gateway.protocols import Accept, TakesHandedOver
from gateway.store.blobs import SqlBlobs
from gateway.store.stores import Stores, open_store
from tests.fake_channel import Config, FakeChannel
from tests.gateway.cluster.test_news import PATIENCE_S, Bus, heard_by, running


class Held:
    epoch, is_good = 3, True

    async def lost(self) -> None:
        await asyncio.Event().wait()


class Channel(FakeChannel):
    """Keeps what is handed to it, and says next what it is told to."""

    http_path, http_access, http_app = "/hooks/web", "public", None

    def __init__(self) -> None:
        super().__init__("web", Config())
        self.handed: list[Mapping[str, Any]] = []
        self.answers: list[bool | Exception] = []

    async def receive(self, accept: Accept) -> None:
        """Not asked."""

    async def take_handed(self, call: Mapping[str, Any]) -> bool:
        self.handed.append(call)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class OneOfMany:
    """A worker; the one that is told so has the channel."""

    def __init__(self, store: Stores, bus: Bus, name: str, *, is_holder: bool) -> None:
        self.channel = Channel()
        self.channels = Channels()
        self.channels.add([self.channel])
        status = self.channels.status("web")
        status.state, status.hold = ("up", Held()) if is_holder else ("elsewhere", None)
        self.news = SharedNews(bus, name)
        self.handing = Handing(self.channels, SqlBlobs(store.engine), self.news, self.do, wait_s=PATIENCE_S)
        self.doing: list[asyncio.Task[Any]] = []

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        self.doing.append(asyncio.create_task(work))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Stores]:
    opened = open_store(tmp_path / "ethos.db")
    yield opened
    await opened.close()


@pytest.mark.parametrize("text", ["short", "ü🙂" * MAX_BYTES])
async def test_a_call_of_any_length_is_taken_by_the_one_that_has_the_channel_and_kept_nowhere(
    store: Stores, text: str
) -> None:
    bus = Bus()
    workers = [OneOfMany(store, bus, name, is_holder=name == "b") for name in "abc"]
    one, holder, other = workers
    assert isinstance(holder.channel, TakesHandedOver)
    async with running(*(worker.news for worker in workers)):
        for worker in (one, other):
            holder.channel.answers = [True]
            await worker.handing.hand_over("web", {"text": text, "number": 7})
    assert holder.channel.handed == [{"text": text, "number": 7}] * 2
    assert not one.channel.handed + other.channel.handed
    assert await store.engine.rows("SELECT id FROM blobs") == []


async def test_what_is_not_certainly_accepted_is_not_acknowledged(store: Stores) -> None:
    bus = Bus()
    one, holder = OneOfMany(store, bus, "a", is_holder=False), OneOfMany(store, bus, "b", is_holder=True)

    async def is_refused(why: str) -> None:
        with pytest.raises(AdapterNotReady, match=why):
            await one.handing.hand_over("web", {})

    async with running(one.news, holder.news):
        holder.channel.answers = [False, AdapterNotReady("busy")]
        await is_refused("could not take it")
        await is_refused("could not take it")
        told = heard_by(one.news, "taken")
        one.news.tell("handed", channel="web", id="of one that has given up")
        assert not (await told.get())["is_taken"]
        holder.channels.status("web").state = "down"
        await is_refused("could not take it")
        holder.channels.status("web").hold = None
        one.handing._wait_s = 0.05
        await is_refused("has answered")
        assert len(holder.channel.handed) == 2
        bus.is_heard = False
        began = len(bus.sent)
        await is_refused("hears no news")
        assert len(bus.sent) == began
    with contextlib.suppress(AdapterNotReady):
        await asyncio.gather(*holder.doing)
    assert await store.engine.rows("SELECT id FROM blobs") == []


async def test_the_only_worker_has_nobody_to_hand_anything_to() -> None:
    with pytest.raises(AdapterNotReady, match="no other worker"):
        await Alone().handing_over("web")({})
