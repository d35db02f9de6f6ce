"""Every entry of the log reaches the page once and in order, however pushes, reads and reconnects fall together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from adapters.web.adapter import WebAdapter
from adapters.web.stream import MAX_PREVIEWS, PAGE_ENTRIES, EventStream
from gateway.errors import StoreUnavailable
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import LogEntry
from tests.adapters.web.open_page import MAIN, OpenPage, post
from tests.adapters.web.scripted_gateway import ScriptedGateway
from tests.conformance.adapters import soon
from tests.conformance.conversation_log import FakeLog


class HesitantLog(FakeLog):
    """Lets others run a random while before and after it looks, as a reader thread does."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    async def read(
        self, conversation: ConversationRef, *, after: int = 0, limit: int = 200, newest: bool = False
    ) -> Sequence[LogEntry]:
        await self.hesitate()
        found = await super().read(conversation, after=after, limit=limit, newest=newest)
        await self.hesitate()
        return found

    async def hesitate(self) -> None:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)


@pytest.fixture
async def gateway(tmp_path: Path):
    gateway = ScriptedGateway(tmp_path / "web")
    await gateway.start()
    yield gateway
    await gateway.stop()


def answer(number: int, text: str | None = None) -> OutboundMessage:
    return OutboundMessage(id=f"out-{number}", conversation=MAIN, text=f"answer {number}" if text is None else text)


@pytest.mark.parametrize("seed", range(60))
async def test_nothing_is_lost_or_repeated_when_a_page_comes_and_goes_during_sends(tmp_path: Path, seed: int) -> None:
    gateway = ScriptedGateway(tmp_path / "web", log=(log := HesitantLog(seed)))
    await gateway.start()
    chance = random.Random(seed)
    total = 40

    async def talk() -> None:
        for number in range(total):
            log.add_out(answer(number))
            await log.hesitate()
            await gateway.adapter.send(answer(number))
            if chance.random() < 0.3:
                await gateway.adapter.send(answer(number))  # an uncertain send is repeated
            await log.hesitate()

    talking = asyncio.create_task(talk())
    received: list[tuple[int, str]] = []
    after: int | None = 0
    while not talking.done() or len(received) < total:
        page = await OpenPage(gateway.adapter, after=after).open(until="")
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        if talking.done():
            await page.until(lambda: len(received) + len(page.messages()) >= total)  # noqa: B023
        await page.leave()
        received += page.messages()
        after = page.cursor
    await talking
    assert [text for _, text in received] == [f"answer {number}" for number in range(total)]
    assert [cursor for cursor, _ in received] == list(range(1, total + 1))
    await gateway.stop()


async def test_a_page_that_stays_open_sees_everything_once_though_it_reads_slowly(gateway: ScriptedGateway) -> None:
    page = await OpenPage(gateway.adapter).open()
    page.may_read.clear()
    total = 3 * PAGE_ENTRIES
    for number in range(total):
        gateway.log.add_out(answer(number))
        await gateway.adapter.send(answer(number))
    assert gateway.log.reads < 10, "pushes to a slow page are gathered"
    page.may_read.set()
    await page.until(lambda: len(page.messages()) >= total)
    assert [text for _, text in page.messages()] == [f"answer {number}" for number in range(total)]
    await page.leave()


async def test_what_is_committed_but_not_sent_yet_is_shown_once(gateway: ScriptedGateway) -> None:
    gateway.log.add_out(answer(1), state="ready")
    page = await OpenPage(gateway.adapter).open()
    await gateway.adapter.send(answer(1))
    gateway.log.add_out(answer(2))
    await gateway.adapter.send(answer(2))
    await page.until(lambda: len(page.messages()) >= 2)
    assert [text for _, text in page.messages()] == ["answer 1", "answer 2"]
    await page.leave()


async def test_what_was_dropped_is_not_shown_and_holds_nothing_up(gateway: ScriptedGateway) -> None:
    gateway.log.add_out(answer(1), state="dropped")
    gateway.log.add_out(answer(2), state="sent")
    page = await OpenPage(gateway.adapter, after=0).open()
    assert page.messages() == [(2, "answer 2")]
    await page.leave()


async def test_a_fresh_page_begins_with_the_newest_and_says_whether_that_is_all(gateway: ScriptedGateway) -> None:
    for number in range(10):
        gateway.log.add_out(answer(number))
    for last, count, is_whole in ((3, 3, False), (10, 10, False), (11, 10, True)):
        page = await OpenPage(gateway.adapter, query=f"conversation=main&last={last}").open()
        assert [cursor for cursor, _ in page.messages()] == list(range(11 - count, 11))
        assert page.events[-1] == ("live", None, {"is_whole": is_whole})
        await page.leave()


async def test_a_cursor_beyond_the_log_means_that_a_backup_was_put_back(gateway: ScriptedGateway) -> None:
    gateway.log.add_out(answer(1))
    page = await OpenPage(gateway.adapter, after=99).open()
    assert [name for name, _, _ in page.events] == ["reset", "message", "live"]
    await page.leave()


@pytest.mark.parametrize("cursor", [b"abc", b"-1", b"1e3", b"9" * 40, "٣".encode(), b""])
async def test_a_cursor_that_is_none_begins_anew(gateway: ScriptedGateway, cursor: bytes) -> None:
    gateway.log.add_out(answer(1))
    page = OpenPage(gateway.adapter)
    page._after = cursor.decode("latin-1")  # type: ignore[assignment]
    await page.open()
    assert len(page.messages()) == 1
    await page.leave()


async def test_conversations_do_not_see_each_other(gateway: ScriptedGateway) -> None:
    other = ConversationRef(channel="web", conversation="other")
    page = await OpenPage(gateway.adapter).open()
    await gateway.adapter.preview(OutboundMessage(id="x", conversation=other, text="secret"))
    await gateway.say(other, "secret")
    await gateway.say(MAIN, "mine")
    await page.until(lambda: len(page.messages()) >= 1)
    assert "secret" not in str(page.events)
    await page.leave()


async def test_what_is_written_in_one_tab_is_seen_in_the_other(gateway: ScriptedGateway) -> None:
    pages = [await OpenPage(gateway.adapter).open() for _ in range(2)]
    response = await post(gateway.adapter, "hello")
    for page in pages:
        data = await page.first(lambda event: event[0] == "message")
        assert (data["author"], data["text"], data["id"]) == ("person", "hello", response.json()["id"])
        await page.leave()


async def test_of_many_previews_the_latest_is_shown_and_none_after_the_answer(gateway: ScriptedGateway) -> None:
    page = await OpenPage(gateway.adapter).open()
    page.may_read.clear()
    for end in range(1, 500):
        await gateway.adapter.preview(answer(1, "x" * end))
    await gateway.adapter.show_typing(MAIN)
    page.may_read.set()
    await page.first(lambda event: event[0] == "preview" and event[2]["html"] == f"<p>{'x' * 499}</p>\n")
    assert len([event for event in page.events if event[0] == "preview"]) < 5
    await gateway.adapter.preview(answer(1, "more"))
    gateway.log.add_out(answer(1))
    await gateway.adapter.send(answer(1))
    await page.until(lambda: len(page.messages()) == 1)
    await gateway.adapter.preview(answer(2, "next"))
    await page.first(lambda event: event[0] == "preview" and event[2]["id"] == "out-2")
    names = [name for name, _, _ in page.events]
    assert names[-2:] == ["message", "preview"], "nothing more of the first"
    assert names.count("typing") == 1
    await page.leave()


async def test_previews_take_bounded_memory() -> None:
    stream = EventStream(FakeLog(), MAIN, after=0)
    for number in range(100):
        stream.show_preview(answer(number))
    assert len(stream._previews) == MAX_PREVIEWS


async def test_a_quiet_stream_gives_signs_of_life() -> None:
    stream = EventStream(FakeLog(), MAIN, after=None, heartbeat_s=0.001)
    frames = stream.frames()
    seen = [await soon(anext(frames)) for _ in range(5)]
    assert [frame.startswith(b"event: live") for frame in seen] == [False, True, False, False, False]
    assert seen[-1].startswith(b":")
    await frames.aclose()


async def test_a_log_that_cannot_be_read_ends_the_stream_and_the_page_goes_on_later(gateway: ScriptedGateway) -> None:
    page = await OpenPage(gateway.adapter).open()
    gateway.log.error = StoreUnavailable("the disk is broken")
    await gateway.adapter.send(answer(1))
    await page.ended()
    gateway.log.error = None
    gateway.log.add_out(answer(1))
    again = await OpenPage(gateway.adapter, after=0).open()
    assert len(again.messages()) == 1
    await again.leave()


async def test_the_end_of_the_channel_ends_its_streams(gateway: ScriptedGateway) -> None:
    pages = [await OpenPage(gateway.adapter).open() for _ in range(3)]
    await gateway.stop()
    for page in pages:
        await page.ended()
    assert gateway.adapter._audience._streams == {}


async def test_a_page_that_reads_nothing_does_not_hold_up_the_end(gateway: ScriptedGateway) -> None:
    page = await OpenPage(gateway.adapter).open()
    page.may_read.clear()
    await gateway.say(MAIN, "hello")
    await asyncio.sleep(0)
    leaving = asyncio.create_task(page.leave())
    await soon(leaving)


def test_the_channel_says_what_it_can(tmp_path: Path) -> None:
    adapter: WebAdapter = ScriptedGateway(tmp_path).adapter
    assert (adapter.http_path, adapter.http_access, adapter.operator_account) == ("/", "operator", "operator")
    assert adapter.capabilities.preview_interval_s == 0.05
