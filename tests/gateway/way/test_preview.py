"""What is shown while an answer is written: typing as long as it takes, and a beginning that says something."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import replace

import pytest

from gateway.messages import ConversationRef, OutboundMessage
from gateway.pipeline import preview
from gateway.pipeline.preview import Preview
from tests.fake_channel import Config, FakeChannel, FakeChannelWithPreviews

WHERE = ConversationRef(channel="fake", conversation="ada")
ANSWER = OutboundMessage(id="t_1.reply", conversation=WHERE, text="")


class Typing(FakeChannelWithPreviews):
    """It can show typing, for a moment."""

    def __init__(self, *, has_previews: bool = True) -> None:
        super().__init__("fake", Config(has_previews=has_previews))
        self.capabilities = replace(self.capabilities, typing_s=0.01, first_preview_chars=20)
        self.typed: asyncio.Queue[ConversationRef] = asyncio.Queue()

    async def show_typing(self, conversation: ConversationRef) -> None:
        self.typed.put_nowait(conversation)
        raise OSError("the line is dead")


class Written:
    """An answer that grows."""

    def __init__(self, channel: FakeChannel) -> None:
        self.text = ""
        self.preview = Preview(channel, ANSWER, self, self)  # type: ignore[arg-type]

    @property
    def shown(self) -> str:
        return self.text

    async def caught_up(self, conversation: ConversationRef) -> None:
        assert conversation == WHERE

    def write(self, text: str) -> None:
        self.text = text
        self.preview.grow()


@pytest.mark.parametrize("has_previews", [False, True])
async def test_typing_is_shown_again_and_again_until_the_turn_ends(*, has_previews: bool) -> None:
    channel = Typing(has_previews=has_previews)
    async with asyncio.timeout(60), Written(channel).preview:
        for _ in range(3):
            assert await channel.typed.get() == WHERE
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("text", ["Yes. It is", "# Title\n", "a text of twenty chars", "好的。再"])
async def test_a_preview_begins_with_a_sentence_or_some_words(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "FIRST_PREVIEW_S", 60.0)
    channel = Typing()
    written = Written(channel)
    async with asyncio.timeout(60), written.preview:
        written.write(text[0])
        for _ in range(3):
            await channel.typed.get()
        assert channel.previews == []
        written.write(text)
        await channel.until(lambda: bool(channel.previews))
    assert [shown.text for shown in channel.previews] == [text]


async def test_a_single_word_is_shown_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "FIRST_PREVIEW_S", 0.01)
    channel = Typing()
    written = Written(channel)
    async with asyncio.timeout(60), written.preview:
        written.write("Well")
        await channel.until(lambda: bool(channel.previews))
    assert [shown.text for shown in channel.previews] == ["Well"]


async def test_a_turn_leaves_no_cycle_for_the_collector() -> None:
    """Else each turn leaves dozens of objects, and the event loop stands still while they are searched for."""
    channel = Typing()
    gc.collect()
    gc.disable()
    try:
        shown = Preview(channel, ANSWER, Silent(), Silent())  # type: ignore[arg-type]
        async with asyncio.timeout(60), shown:
            await channel.typed.get()
        left = weakref.ref(shown)
        del shown
        await asyncio.sleep(0)
        assert left() is None
    finally:
        gc.enable()


class Silent:
    """An answer that does not grow, after which nothing is on its way."""

    text = ""

    async def caught_up(self, _conversation: ConversationRef) -> None:
        """At once."""
