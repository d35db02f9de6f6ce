"""What one process tells the others goes together, goes once, and is dropped where it cannot go."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from gateway.cluster.news import KINDS, MAX_BYTES, NoOthers, SharedNews

PATIENCE_S = 10.0


class Bus:
    """Carries texts within this process, to all who run; as the real one does, also to the sender."""

    is_heard = True
    gaps = 0

    def __init__(self) -> None:
        self.sent: list[Sequence[str]] = []
        self._hearing: list[Callable[[str], None]] = []

    async def send(self, texts: Sequence[str]) -> None:
        self.sent.append(texts)
        for text in texts:
            for heard in self._hearing:
                heard(text)

    async def run(self, heard: Callable[[str], None]) -> None:
        self._hearing.append(heard)
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def running(*news: SharedNews) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one.run()) for one in news]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def heard_by(news: SharedNews, *kinds: Any) -> asyncio.Queue[dict[str, Any]]:
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    for kind in kinds:
        news.on(kind, heard.put_nowait)
    return heard


async def test_the_others_hear_it_and_the_own_process_does_not() -> None:
    bus = Bus()
    one, two = SharedNews(bus, "a"), SharedNews(bus, "b")
    heard, own = heard_by(two, "replies"), heard_by(one, "replies")
    async with running(one, two):
        one.tell("log", conversation="c")
        one.tell("replies", channel="chat")
        assert await heard.get() == {"news": "replies", "channel": "chat"}
    assert own.empty()


async def test_what_comes_within_a_moment_goes_in_one_text_and_the_same_thing_once() -> None:
    bus = Bus()
    one, two = SharedNews(bus, "a"), SharedNews(bus, "b")
    heard = heard_by(two, *KINDS)
    async with running(one, two):
        for number in range(20):
            one.tell("work")
            one.tell("replies", channel=f"chat{number % 2}")
        assert [await heard.get() for _ in range(3)] == [
            {"news": "work"},
            {"news": "replies", "channel": "chat0"},
            {"news": "replies", "channel": "chat1"},
        ]
    assert [len(texts) for texts in bus.sent] == [1]


async def test_no_text_is_longer_than_the_server_takes_and_what_is_longer_alone_is_dropped() -> None:
    bus = Bus()
    one, two = SharedNews(bus, "a"), SharedNews(bus, "b")
    heard = heard_by(two, "preview", "work")
    texts = [f"{number} " + "ü🙂" * 300 for number in range(40)]
    async with running(one, two):
        one.tell("preview", text="ü" * MAX_BYTES)
        for text in texts:
            one.tell("preview", text=text)
        one.tell("work")
        assert [(await heard.get()).get("text") for _ in range(41)] == [*texts, None]
    [sent] = bus.sent
    assert len(sent) > 1
    assert all(len(text.encode()) <= MAX_BYTES for text in sent)


@pytest.mark.parametrize(
    "text",
    ["", "no json", "[]", "3", '{"from": "b"}', '{"from": "b", "told": [{}]}', '{"from": "b", "told": 3}',
     json.dumps({"from": "b", "told": [{"news": "from a newer worker"}]})],
)  # fmt: skip
async def test_what_another_program_says_on_the_same_channel_is_passed_over(text: str) -> None:
    bus = Bus()
    one = SharedNews(bus, "a")
    heard = heard_by(one, *KINDS)
    async with running(one):
        await bus.send([text])
        await bus.send(['{"from": "b", "told": [{"news": "work"}]}'])
        assert await heard.get() == {"news": "work"}


async def test_a_fault_in_what_is_done_does_not_keep_the_rest_from_being_done() -> None:
    bus = Bus()
    one, two = SharedNews(bus, "a"), SharedNews(bus, "b")

    def fail(told: dict[str, Any]) -> None:
        raise KeyError(told["news"])

    two.on("work", fail)
    heard = heard_by(two, "work", "reload")
    async with running(one, two):
        one.tell("work")
        one.tell("reload")
        assert [(await heard.get())["news"] for _ in range(2)] == ["work", "reload"]


async def test_the_last_thing_that_is_told_goes_out_at_the_end() -> None:
    bus = Bus()
    one = SharedNews(bus, "a")
    one.tell("released", lease="channel:x")
    await one.flush()
    await one.flush()
    assert len(bus.sent) == 1


def test_the_only_worker_tells_nobody_and_misses_nothing() -> None:
    news = NoOthers()
    news.on("work", lambda _told: pytest.fail("nobody tells"))
    news.tell("work")
    assert news.is_heard
