"""What a reader receives of an answer that grows: each piece once, whatever becomes of the text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from gateway.messages import ConversationRef, OutboundMessage
from gateway.pipeline.local_channel import LocalChannel
from gateway.protocols import LogEntry
from gateway.sdk.models.chat import Preview
from gateway.services.stream import MAX_PASSING, ConversationStream, Event

PLACE = ConversationRef(channel="local", conversation="c")


@dataclass
class Log:
    """A log that is empty."""

    reads: list[str] = field(default_factory=list)

    async def read(self, conversation: ConversationRef, **asked: object) -> Sequence[LogEntry]:
        self.reads.append(f"{conversation.conversation} {asked}")
        return []

    async def place_before(self, _conversation: ConversationRef, *, newest: int) -> int:  # noqa: ARG002
        return 0


def answer(text: str, message_id: str = "m") -> OutboundMessage:
    return OutboundMessage(id=message_id, conversation=PLACE, text=text)


async def following(stream: ConversationStream, talk: LocalChannel) -> AsyncIterator[Event]:
    async with aclosing(stream.events(talk)) as events:  # type: ignore[type-var]
        async for event in events:
            if event is not None:
                yield event


@pytest.mark.parametrize(
    "texts",
    [
        ["He", "Hello", "Hello, wor", "Hello, world"],
        ["Looking it up", "It is 5", "It is 5 o'clock", ""],
        ["日本", "日本語", "日本語 👨‍👩‍👧 x", "日本人"],
        ["a", "", "b"],
    ],
)
async def test_what_is_shown_is_the_text_and_only_what_is_new_is_sent(texts: list[str]) -> None:
    talk, stream = LocalChannel(), ConversationStream(Log(), PLACE, after=0)
    shown, sent = "", 0
    async with asyncio.timeout(60), aclosing(following(stream, talk)) as events:
        assert (await anext(events)).name == "live"
        for text in texts:
            await talk.preview(answer(text))
            event = (await anext(events)).data
            assert isinstance(event, Preview)
            shown, sent = event.shown(shown), sent + len(event.delta)
            assert shown == text
    if all(after.startswith(before) for before, after in pairwise(texts)):
        assert sent == len(texts[-1])


async def test_a_long_answer_is_sent_about_once() -> None:
    """Not once for each of its words, which grows with the square."""
    words = [f"word{number} " for number in range(2_000)]
    talk, stream = LocalChannel(), ConversationStream(Log(), PLACE, after=0)
    sent = 0
    async with asyncio.timeout(60), aclosing(following(stream, talk)) as events:
        await anext(events)
        for count in range(1, len(words) + 1):
            await talk.preview(answer("".join(words[:count])))
            event = (await anext(events)).data
            assert isinstance(event, Preview)
            sent += len(event.delta)
    assert sent == len("".join(words))


async def test_what_was_shown_of_many_answers_takes_bounded_memory() -> None:
    talk, stream = LocalChannel(), ConversationStream(Log(), PLACE, after=0)
    async with asyncio.timeout(60), aclosing(following(stream, talk)) as events:
        await anext(events)
        for number in range(3 * MAX_PASSING):
            await talk.preview(answer("x", f"m{number}"))
            await anext(events)
    assert len(stream._shown) <= MAX_PASSING
