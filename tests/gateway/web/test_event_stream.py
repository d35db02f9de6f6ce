"""Each message of the log reaches a page once and in order, however pushes, reads and reconnects fall together."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.errors import StoreUnavailable
from gateway.messages import Action, ConversationRef, InboundMessage, OutboundMessage, Sender
from gateway.pipeline.local_channel import CHANNEL, LocalChannel
from gateway.protocols import LogEntry
from gateway.sdk.models.chat import ChatMessage
from gateway.services.stream import PAGE_ENTRIES, ConversationStream
from gateway.testing.adapters import soon
from gateway.web.api.events import EventStreamResponse
from gateway.web.dashboard.lines import rendered
from tests.conformance.conversation_log import FakeLog

MAIN = ConversationRef(channel=CHANNEL, conversation="main")
Told = tuple[str, int | None, dict[str, Any]]


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


class OpenPage:
    """One event stream of the chat page, as a browser reads it.

    Attributes:
        events: (name, place, data), as they came.
        may_read: cleared, the page takes nothing, as one behind a slow line.
    """

    def __init__(self, log: FakeLog, channel: LocalChannel, *, after: int | None = 0, last: int | None = None) -> None:
        self._after = after
        self._stream = ConversationStream(log, MAIN, after=after, last=last)
        self._channel = channel
        self._leaving = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._buffer = b""
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.events: list[Told] = []

    async def open(self, *, until: str = "live") -> OpenPage:
        response = EventStreamResponse(rendered(self._stream.events(self._channel), article))
        self._task = asyncio.create_task(response({"type": "http"}, self._receive, self._send))
        if until:
            await self.until(lambda: any(name == until for name, _, _ in self.events))
        return self

    async def until(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(is_so)

        await soon(wait())

    def messages(self) -> list[tuple[int, str]]:
        return [(place or 0, data["html"]) for name, place, data in self.events if name == "message"]

    @property
    def place(self) -> int | None:
        """Of the last message, as a browser keeps it."""
        return next((place for _, place, _ in reversed(self.events) if place is not None), self._after)

    async def ended(self) -> None:
        assert self._task is not None
        await soon(asyncio.shield(self._task))

    async def leave(self) -> None:
        self._leaving.set()
        await self.ended()

    async def _receive(self) -> dict[str, Any]:
        await self._leaving.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self.may_read.wait()
        async with self._changed:
            if message["type"] == "http.response.body":
                self._buffer += message["body"]
                *blocks, self._buffer = self._buffer.split(b"\n\n")
                self.events += [told for block in blocks if (told := _told(block.decode("ascii")))]
            self._changed.notify_all()


def _told(block: str) -> Told | None:
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    place = int(fields["id"]) if "id" in fields else None
    return (fields["event"], place, json.loads(fields["data"])) if "event" in fields else None


async def article(said: ChatMessage) -> str:
    return f"{said.text}{' has failed' if said.has_failed else ''}{[choice.text for choice in said.choices] or ''}"


def answer(number: int, text: str | None = None, **more: Any) -> OutboundMessage:
    said = f"answer {number}" if text is None else text
    return OutboundMessage(id=f"out-{number}", conversation=MAIN, text=said, **more)


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def channel() -> LocalChannel:
    return LocalChannel()


@pytest.mark.parametrize("seed", range(60))
async def test_nothing_is_lost_or_repeated_when_a_page_comes_and_goes_during_sends(
    channel: LocalChannel, seed: int
) -> None:
    log, chance, total = HesitantLog(seed), random.Random(seed), 40

    async def talk() -> None:
        for number in range(total):
            log.add_out(answer(number))
            await log.hesitate()
            await channel.send(answer(number))
            if chance.random() < 0.3:
                await channel.send(answer(number))  # an uncertain send is repeated
            await log.hesitate()

    talking = asyncio.create_task(talk())
    received: list[tuple[int, str]] = []
    after: int | None = 0
    while not talking.done() or len(received) < total:
        page = await OpenPage(log, channel, after=after).open(until="")
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        if talking.done():
            await page.until(lambda: len(received) + len(page.messages()) >= total)  # noqa: B023
        await page.leave()
        received += page.messages()
        after = page.place
    await talking
    assert received == [(number + 1, f"answer {number}") for number in range(total)]


async def test_a_page_that_reads_slowly_sees_everything_once_and_costs_no_memory(
    log: FakeLog, channel: LocalChannel
) -> None:
    page = await OpenPage(log, channel).open()
    page.may_read.clear()
    total = 3 * PAGE_ENTRIES
    for number in range(total):
        log.add_out(answer(number))
        await channel.send(answer(number))
    assert log.reads < 10, "pushes to a slow page are gathered"
    page.may_read.set()
    await page.until(lambda: len(page.messages()) >= total)
    assert [text for _, text in page.messages()] == [f"answer {number}" for number in range(total)]
    await page.leave()


async def test_what_is_committed_but_not_sent_yet_is_shown_once(log: FakeLog, channel: LocalChannel) -> None:
    log.add_out(answer(1), state="ready")
    page = await OpenPage(log, channel).open()
    await channel.send(answer(1))
    log.add_out(answer(2))
    await channel.send(answer(2))
    await page.until(lambda: len(page.messages()) >= 2)
    assert [text for _, text in page.messages()] == ["answer 1", "answer 2"]
    await page.leave()


async def test_what_was_dropped_is_not_shown_and_what_was_given_up_says_so(log: FakeLog, channel: LocalChannel) -> None:
    log.add_out(answer(1), state="dropped")
    log.add_out(answer(2), state="dead")
    page = await OpenPage(log, channel).open()
    assert page.messages() == [(2, "answer 2 has failed")]
    await page.leave()


async def test_the_choices_of_an_answer_say_what_pressing_them_posts(log: FakeLog, channel: LocalChannel) -> None:
    log.add_out(answer(1, "Sure?", actions=(Action(id="confirm abc", label="<b>Yes"),)))
    page = await OpenPage(log, channel).open()
    assert page.messages() == [(1, "Sure?['/confirm abc']")]
    await page.leave()


async def test_after_a_place_beyond_the_log_the_page_begins_again_with_the_newest(
    log: FakeLog, channel: LocalChannel
) -> None:
    """A backup was put back."""
    for number in range(10):
        log.add_out(answer(number))
    page = await OpenPage(log, channel, after=99, last=3).open()
    assert [name for name, _, _ in page.events] == ["reset", "message", "message", "message", "live"]
    await page.leave()


async def test_conversations_do_not_see_each_other(log: FakeLog, channel: LocalChannel) -> None:
    other = ConversationRef(channel=CHANNEL, conversation="other")
    page = await OpenPage(log, channel).open()
    await channel.preview(OutboundMessage(id="x", conversation=other, text="secret"))
    log.add_out(OutboundMessage(id="y", conversation=other, text="secret"))
    channel.told(other)
    log.add_out(answer(1))
    await channel.send(answer(1))
    await page.until(lambda: len(page.messages()) >= 1)
    assert "secret" not in str(page.events)
    await page.leave()


async def test_what_is_written_in_one_tab_is_seen_in_the_other(log: FakeLog, channel: LocalChannel) -> None:
    pages = [await OpenPage(log, channel).open() for _ in range(2)]
    said = InboundMessage(
        id="m1", event_id="m1", conversation=MAIN, text="hello", sent_at=datetime.now(UTC),
        sender=Sender(channel=CHANNEL, user="operator", display_name="Operator", is_verified=True),
    )  # fmt: skip
    log.add_in(said)
    channel.told(MAIN)
    for page in pages:
        await page.until(lambda: len(page.messages()) == 1)  # noqa: B023
        assert page.events[-1] == ("message", 1, {"id": "m1", "author": "person", "html": "hello"})
        await page.leave()


async def test_of_many_previews_the_latest_is_shown_and_none_after_the_answer(
    log: FakeLog, channel: LocalChannel
) -> None:
    page = await OpenPage(log, channel).open()
    page.may_read.clear()
    for end in range(1, 500):
        await channel.preview(answer(1, "x" * end))
    await channel.show_typing(MAIN)
    page.may_read.set()
    html = f"<p>{'x' * 499}</p>\n"
    await page.until(lambda: ("preview", None, {"id": "out-1", "html": html}) in page.events)
    assert len([name for name, _, _ in page.events if name == "preview"]) < 5
    await channel.preview(answer(1, "more"))
    log.add_out(answer(1))
    await channel.send(answer(1))
    await page.until(lambda: len(page.messages()) == 1)
    await channel.preview(answer(2, "next"))
    await page.until(lambda: page.events[-1][2].get("id") == "out-2")
    assert [name for name, _, _ in page.events][-2:] == ["message", "preview"], "nothing more of the first"
    await channel.preview(answer(2, ""))
    await page.until(lambda: page.events[-1] == ("preview", None, {"id": "out-2", "html": ""}))
    await page.leave()


async def test_a_log_that_cannot_be_read_ends_the_stream_and_the_page_goes_on_later(
    log: FakeLog, channel: LocalChannel
) -> None:
    page = await OpenPage(log, channel).open()
    log.error = StoreUnavailable("the disk is broken")
    await channel.send(answer(1))
    await page.ended()
    log.error = None
    log.add_out(answer(1))
    again = await OpenPage(log, channel).open()
    assert len(again.messages()) == 1
    await again.leave()


async def test_the_end_of_the_gateway_ends_its_streams(log: FakeLog, channel: LocalChannel) -> None:
    pages = [await OpenPage(log, channel).open() for _ in range(3)]
    await channel.close()
    for page in pages:
        await page.ended()
    assert channel._watchers == {}


async def test_a_page_that_reads_nothing_does_not_hold_up_the_end(log: FakeLog, channel: LocalChannel) -> None:
    page = await OpenPage(log, channel).open()
    page.may_read.clear()
    log.add_out(answer(1))
    await channel.send(answer(1))
    await asyncio.sleep(0)
    await page.leave()


async def test_an_event_is_one_block_of_ascii_whatever_is_in_it(log: FakeLog, channel: LocalChannel) -> None:
    text = "line\n\nid: 7\r\nevent: x\u2028\u0085\x00\ud800 漢字"
    log.add_out(answer(1, text))
    page = await OpenPage(log, channel).open()
    assert page.messages() == [(1, text)]
    await page.leave()


async def test_a_quiet_stream_gives_signs_of_life(log: FakeLog, channel: LocalChannel) -> None:
    stream = ConversationStream(log, MAIN, after=0, heartbeat_s=0.001)
    frames = rendered(stream.events(channel), article)
    seen = [await soon(anext(frames)) for _ in range(4)]
    assert [b"event: live" in seen[0], *seen[1:]] == [True, *[b": still here\n\n"] * 3]
    await frames.aclose()  # type: ignore[attr-defined]
