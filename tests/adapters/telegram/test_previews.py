"""The answer while it is written, and what stands there in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from adapters.telegram.adapter import TelegramAdapter
from gateway.messages import OutboundMessage
from gateway.testing.adapters import soon
from tests.adapters.telegram.fake_telegram import GROUP, FakeTelegram, Fault, flood, refusal
from tests.adapters.telegram.harness import adapter_of, direct, group
from tests.conformance.notes import FakeNotes

THERE = GROUP["id"]
ANSWER = OutboundMessage(id="t_1.reply", conversation=group(), text="The answer is **42**.", reply_to=f"{THERE}:77")
PRIVATE = OutboundMessage(id="t_2.reply", conversation=direct(), text="The answer is **42**.")


def so_far(message: OutboundMessage, text: str) -> OutboundMessage:
    return replace(message, text=text)


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram()
    await telegram.start()
    yield telegram
    await telegram.stop()


@pytest.fixture
def notes() -> FakeNotes:
    return FakeNotes()


@pytest.fixture
async def adapter(telegram: FakeTelegram, notes: FakeNotes) -> AsyncIterator[TelegramAdapter]:
    adapter = adapter_of(telegram, notes)
    await adapter.connect()
    yield adapter
    await adapter.close()


async def test_in_a_group_one_message_grows_and_becomes_the_answer(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    for text, shown_text in (("The", "The"), ("The answer", "The answer"), ("The answer is **4", "The answer is **4")):
        await adapter.preview(so_far(ANSWER, text))
        await telegram.until(lambda: telegram.texts(THERE) == [shown_text])  # noqa: B023 (called at once)
    receipt = await adapter.send(ANSWER)
    (shown,) = telegram.bot_messages(THERE)
    assert shown.history[:2] == ["The", "The answer"]
    assert shown.text == "The answer is 42."
    assert shown.reply_to == 77
    assert receipt.message_ids == (f"{THERE}:{shown.number}",)


async def test_in_a_private_chat_a_draft_grows_and_one_message_follows(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    for text in ("The", "The answer"):
        await adapter.preview(so_far(PRIVATE, text))
    await adapter.send(PRIVATE)
    assert [text for _, _, text in telegram.drafts] == ["The", "The answer"]
    assert len({draft for _, draft, _ in telegram.drafts}) == 1
    assert telegram.drafts[0][1] > 0
    assert telegram.texts() == ["The answer is 42."]


async def test_a_long_preview_shows_its_end_and_the_answer_comes_whole(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    text = "\n\n".join(f"part {number} " + "word " * 700 for number in range(3))
    await adapter.preview(so_far(ANSWER, text))
    assert telegram.texts(THERE)[0].startswith("part 2")
    await adapter.send(so_far(ANSWER, text))
    assert [shown[:6] for shown in telegram.texts(THERE)] == ["part 0", "part 1", "part 2"]


async def test_edits_keep_their_distance_and_each_shows_the_newest(telegram: FakeTelegram, notes: FakeNotes) -> None:
    adapter = adapter_of(telegram, notes, edit_interval_s=0.15)
    await adapter.connect()
    started_s = asyncio.get_running_loop().time()
    for text in ("a", "b", "c", "d"):
        await adapter.preview(so_far(ANSWER, text))
    await telegram.until(lambda: telegram.texts(THERE) == ["d"])
    await adapter.preview(so_far(ANSWER, "e"))
    await telegram.until(lambda: telegram.texts(THERE) == ["e"])
    assert asyncio.get_running_loop().time() - started_s >= 0.29
    assert telegram.bot_messages(THERE)[0].history == ["a", "d", "e"]
    await adapter.close()


async def test_the_answer_does_not_wait_for_the_distance_of_edits(telegram: FakeTelegram, notes: FakeNotes) -> None:
    adapter = adapter_of(telegram, notes, edit_interval_s=60)
    await adapter.connect()
    await adapter.preview(so_far(ANSWER, "The"))
    waiting = asyncio.create_task(adapter.preview(so_far(ANSWER, "The answer")))
    await asyncio.sleep(0)
    waiting.cancel()  # as the gateway does when the answer is complete
    await asyncio.wait([waiting])
    await soon(adapter.send(ANSWER))
    assert telegram.texts(THERE) == ["The answer is 42."]
    await adapter.close()


@pytest.mark.parametrize("message", [ANSWER, PRIVATE], ids=["group", "private"])
async def test_a_preview_that_is_cancelled_on_its_way_is_waited_for_and_not_left_behind(
    telegram: FakeTelegram, adapter: TelegramAdapter, message: OutboundMessage
) -> None:
    chat = int(message.conversation.conversation)
    method = "sendMessage" if message is ANSWER else "sendMessageDraft"
    hold = telegram.holds[method] = asyncio.Event()
    showing = asyncio.create_task(adapter.preview(so_far(message, "The")))
    await telegram.until(lambda: bool(telegram.called(method)))
    showing.cancel()
    await asyncio.wait([showing])
    sending = asyncio.create_task(adapter.send(message))
    for _ in range(3):  # time enough for the answer, if it did not wait
        await adapter.show_typing(message.conversation)
    assert telegram.texts(chat) == []
    hold.set()
    await soon(sending)
    assert telegram.texts(chat) == ["The answer is 42."]


async def test_a_turn_that_is_run_again_after_a_crash_goes_on_with_its_preview(
    telegram: FakeTelegram, adapter: TelegramAdapter, notes: FakeNotes
) -> None:
    await adapter.preview(so_far(ANSWER, "The answer is thirt"))
    again = adapter_of(telegram, notes)
    await again.connect()
    await again.preview(so_far(ANSWER, "The"))
    await again.send(ANSWER)
    await again.close()
    assert telegram.texts(THERE) == ["The answer is 42."]


async def test_an_empty_preview_takes_the_message_away_and_its_note(
    telegram: FakeTelegram, adapter: TelegramAdapter, notes: FakeNotes
) -> None:
    await adapter.preview(so_far(ANSWER, "The"))
    await adapter.preview(so_far(ANSWER, ""))
    assert telegram.texts(THERE) == []
    assert not [key for key in notes.texts if key.startswith("out/")]


async def test_a_preview_that_comes_late_changes_nothing(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    await adapter.send(ANSWER)
    await adapter.preview(so_far(ANSWER, "The"))
    await adapter.preview(so_far(ANSWER, ""))
    assert telegram.texts(THERE) == ["The answer is 42."]


async def test_where_drafts_are_not_to_be_had_a_message_is_edited(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    telegram.faults["sendMessageDraft"].append(refusal(400, "Bad Request: method is not available"))
    await adapter.preview(so_far(PRIVATE, "The"))
    await adapter.preview(so_far(PRIVATE, "The answer"))
    assert telegram.texts() == ["The answer"]
    await adapter.send(PRIVATE)
    assert telegram.texts() == ["The answer is 42."]


async def test_a_text_that_is_refused_as_a_draft_does_not_end_the_drafts(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    telegram.faults["sendMessageDraft"] += [refusal(400, "Bad Request: ENTITY_BOUNDS_INVALID")] * 2
    for text in ("The", "The answer"):
        await adapter.preview(so_far(PRIVATE, text))
    assert [text for _, _, text in telegram.drafts] == ["The answer"]
    assert telegram.texts() == []


@pytest.mark.parametrize("message", [ANSWER, PRIVATE], ids=["group", "private"])
@pytest.mark.parametrize(
    "fault",
    [
        flood(60),
        Fault(),
        Fault(502, b"<html>"),
        refusal(403, "Forbidden: bot was kicked"),
        refusal(401, "Unauthorized"),
    ],
    ids=["429", "dropped", "502", "403", "401"],
)
async def test_a_preview_that_fails_is_dropped(
    telegram: FakeTelegram, adapter: TelegramAdapter, message: OutboundMessage, fault: Fault
) -> None:
    telegram.faults["sendMessage"].append(fault)
    telegram.faults["sendMessageDraft"].append(fault)
    await adapter.preview(so_far(message, "The"))


async def test_during_a_pause_there_are_no_previews(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    telegram.faults["sendMessageDraft"].append(flood(60))
    for text in ("The", "The answer", "The answer is"):
        await adapter.preview(so_far(PRIVATE, text))
    assert len(telegram.called("sendMessageDraft")) == 1


async def test_styles_that_are_refused_do_not_stop_a_preview(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    for method in ("sendMessageDraft", "sendMessage"):
        telegram.faults[method].append(refusal(400, "Bad Request: can't parse entities: unsupported"))
    await adapter.preview(so_far(PRIVATE, "**The**"))
    await adapter.preview(so_far(ANSWER, "**The**"))
    assert telegram.drafts[0][2] == "The"
    assert telegram.texts(THERE) == ["The"]


async def test_typing_is_shown_where_it_belongs_and_never_fails(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    await adapter.show_typing(direct())
    await adapter.show_typing(direct(THERE, thread="5"))
    assert telegram.typing == [42, THERE]
    assert telegram.called("sendChatAction")[1]["message_thread_id"] == "5"
    for fault in (flood(3), Fault(), refusal(403, "Forbidden: no")):
        telegram.faults["sendChatAction"].append(fault)
        await adapter.show_typing(direct())
    await adapter.show_typing(direct(-12345))
    await adapter.close()
    await adapter.show_typing(direct())
