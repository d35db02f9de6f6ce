"""How answers go out: once, whole, in order, in the right place, whatever happens on the line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.rate_limit import RateLimit
from gateway.errors import PermanentSendError, TransientSendError, UncertainSendError
from gateway.messages import Attachment, ConversationRef, OutboundMessage
from gateway.testing.adapters import soon
from tests.adapters.telegram.fake_telegram import GROUP, FakeTelegram, Fault, flood, refusal
from tests.adapters.telegram.harness import adapter_of, client_of, direct, group
from tests.conformance.notes import FakeNotes

DROPPED_BEFORE = Fault()
DROPPED_AFTER = Fault(is_done=True)
FAILED_AFTER = Fault(502, b"<html>502</html>", is_done=True)
_numbers = count(1)


def message(text: str, conversation: ConversationRef | None = None, **fields: object) -> OutboundMessage:
    return OutboundMessage(id=f"t_{next(_numbers)}.reply", conversation=conversation or direct(), text=text, **fields)  # type: ignore[arg-type]


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


@pytest.fixture
async def restarted(telegram: FakeTelegram, notes: FakeNotes) -> AsyncIterator[TelegramAdapter]:
    """Another process, later: it has the notes only."""
    adapter = adapter_of(telegram, notes)
    await adapter.connect()
    yield adapter
    await adapter.close()


def long_text(pieces: int) -> str:
    return "\n\n".join(f"piece {number} " + "word " * 700 for number in range(pieces))


def beginnings(telegram: FakeTelegram, chat: int = 42) -> list[str]:
    return [" ".join(text.split()[:2]) for text in telegram.texts(chat)]


# ---- once -----------------------------------------------------------------------------------------------------------


async def test_the_placeholder_of_a_text_is_stored_before_the_text_is_shown(
    telegram: FakeTelegram, adapter: TelegramAdapter, notes: FakeNotes
) -> None:
    telegram.faults["editMessageText"].append(Fault(is_hanging=True))
    sending = asyncio.create_task(adapter.send(message("The answer is **42**.")))
    await telegram.until(lambda: bool(telegram.called("editMessageText")))
    assert telegram.texts() == ["The answer is…"]
    (noted,) = [text for key, text in notes.texts.items() if key.startswith("out/")]
    assert str(telegram.bot_messages()[0].number) in noted
    sending.cancel()
    await asyncio.wait([sending])


@pytest.mark.parametrize("fault", [DROPPED_BEFORE, DROPPED_AFTER, FAILED_AFTER], ids=["before", "after", "5xx"])
async def test_a_line_that_breaks_while_the_text_goes_in_never_doubles_it(
    telegram: FakeTelegram, adapter: TelegramAdapter, fault: Fault
) -> None:
    telegram.faults["editMessageText"].append(fault)
    sent = message("hello")
    with pytest.raises(UncertainSendError):
        await adapter.send(sent)
    receipt = await adapter.send(sent)
    assert telegram.texts() == ["hello"]
    assert receipt.message_ids == (f"42:{telegram.bot_messages()[0].number}",)


@pytest.mark.parametrize("fault", [DROPPED_AFTER, FAILED_AFTER], ids=["dropped", "5xx"])
async def test_a_line_that_breaks_at_the_first_words_leaves_these_at_worst(
    telegram: FakeTelegram, adapter: TelegramAdapter, fault: Fault
) -> None:
    telegram.faults["sendMessage"].append(fault)
    sent = message("hello there")
    with pytest.raises(UncertainSendError):
        await adapter.send(sent)
    await adapter.send(sent)
    assert telegram.texts() == ["hello…", "hello there"]


async def test_a_process_that_dies_after_the_first_words_goes_on_in_the_next_one(
    telegram: FakeTelegram, adapter: TelegramAdapter, restarted: TelegramAdapter
) -> None:
    telegram.faults["editMessageText"].append(Fault(is_hanging=True))
    sent = message("hello")
    sending = asyncio.create_task(adapter.send(sent))
    await telegram.until(lambda: bool(telegram.called("editMessageText")))
    sending.cancel()
    await asyncio.wait([sending])
    await restarted.send(sent)
    assert telegram.texts() == ["hello"]


async def test_a_process_that_dies_after_it_was_all_sent_sends_nothing_again(
    telegram: FakeTelegram, adapter: TelegramAdapter, restarted: TelegramAdapter
) -> None:
    sent = message(long_text(3))
    first = await adapter.send(sent)
    calls = len(telegram.calls)
    assert await restarted.send(sent) == first
    assert len(telegram.calls) == calls
    assert beginnings(telegram) == ["piece 0", "piece 1", "piece 2"]


async def test_a_second_try_goes_on_with_the_piece_that_is_missing(
    telegram: FakeTelegram, adapter: TelegramAdapter, restarted: TelegramAdapter
) -> None:
    sent = message(long_text(3))
    telegram.faults["editMessageText"] += [Fault(200, b'{"ok": true, "result": true}', is_done=True)] * 2
    telegram.faults["editMessageText"].append(flood(1))
    with pytest.raises(TransientSendError):
        await adapter.send(sent)
    assert len(telegram.texts()) == 3
    receipt = await restarted.send(sent)
    assert beginnings(telegram) == ["piece 0", "piece 1", "piece 2"]
    assert len(receipt.message_ids) == 3
    assert [len(shown.history) for shown in telegram.bot_messages()] == [2, 2, 2]


async def test_notes_of_what_was_sent_do_not_heap_up(
    telegram: FakeTelegram, adapter: TelegramAdapter, notes: FakeNotes
) -> None:
    for number in range(20):
        await adapter.send(message(f"{number}"))
        await adapter.send(message(f"{number}", group()))
    telegram.blocked.add(42)
    with pytest.raises(PermanentSendError):
        await adapter.send(message("not to be had"))
    assert len([key for key in notes.texts if key.startswith("out/")]) == 2


async def test_notes_of_an_earlier_process_go_with_the_next_message(
    telegram: FakeTelegram, adapter: TelegramAdapter, notes: FakeNotes
) -> None:
    await adapter.send(message("before"))
    later = adapter_of(telegram, notes)
    await later.connect()
    await later.send(message("after"))
    await later.close()
    assert len([key for key in notes.texts if key.startswith("out/")]) == 1


async def test_a_message_of_which_a_part_is_shown_keeps_its_note_behind_later_ones(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    dead = message(long_text(2))
    telegram.faults["editMessageText"] += [
        Fault(200, b'{"ok": true, "result": true}', is_done=True), refusal(400, "Bad Request: who knows"),
    ]  # fmt: skip
    with pytest.raises(PermanentSendError):
        await adapter.send(dead)
    await adapter.send(message("later"))
    await adapter.send(dead)  # an operator tries it again
    assert beginnings(telegram) == ["piece 0", "piece 1", "later"]


async def test_what_was_taken_away_meanwhile_is_shown_anew(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    telegram.faults["editMessageText"].append(DROPPED_BEFORE)
    sent = message("hello")
    with pytest.raises(UncertainSendError):
        await adapter.send(sent)
    telegram.bot_messages().clear()
    await adapter.send(sent)
    assert telegram.texts() == ["hello"]


async def test_a_chat_in_which_every_message_is_deleted_at_once_ends_in_the_dead_letters(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    telegram.faults["editMessageText"] += [refusal(400, "Bad Request: message to edit not found")] * 9
    with pytest.raises(PermanentSendError):
        await adapter.send(message("hello"))


# ---- what errors mean -----------------------------------------------------------------------------------------------


async def test_a_pause_holds_up_its_own_chat_only(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    telegram.faults["sendMessage"].append(flood(30))
    with pytest.raises(TransientSendError) as first:
        await adapter.send(message("hello"))
    assert first.value.retry_after_s == 30
    await adapter.send(message("hello", group()))
    calls = len(telegram.calls)
    with pytest.raises(TransientSendError) as second:
        await adapter.send(message("again"))
    assert 15 < (second.value.retry_after_s or 0) <= 30
    assert len(telegram.calls) == calls, "Telegram was asked during the pause"
    assert telegram.texts(GROUP["id"]) == ["hello"]


async def test_a_server_that_is_down_has_certainly_not_taken_it(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    await telegram.stop()
    with pytest.raises(TransientSendError):
        await adapter.send(message("hello"))


async def test_no_answer_in_time_is_uncertain(telegram: FakeTelegram) -> None:
    adapter = adapter_of(telegram, client=client_of(telegram, request_timeout_s=0.2))
    await adapter.connect()
    telegram.faults["sendMessage"].append(Fault(is_hanging=True))
    with pytest.raises(UncertainSendError):
        await soon(adapter.send(message("hello")))
    await adapter.close()


@pytest.mark.parametrize("body", [b"[]", b'{"ok": true}', b'{"ok": true, "result": {}}', b"hello"])
async def test_an_answer_that_cannot_be_read_is_uncertain(
    telegram: FakeTelegram, adapter: TelegramAdapter, body: bytes
) -> None:
    telegram.faults["sendMessage"].append(Fault(200, body, is_done=True))
    with pytest.raises(UncertainSendError):
        await adapter.send(message("hello"))


async def test_who_has_blocked_the_bot_is_not_tried_again(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    telegram.blocked.add(42)
    with pytest.raises(PermanentSendError, match="blocked"):
        await adapter.send(message("hello"))


@pytest.mark.parametrize("place", ["nowhere", "", "@ada"])
async def test_a_conversation_that_is_no_chat_is_refused(adapter: TelegramAdapter, place: str) -> None:
    with pytest.raises(PermanentSendError):
        await adapter.send(message("hello", ConversationRef(channel="phone", conversation=place)))


async def test_before_it_is_connected_nothing_is_lost(telegram: FakeTelegram) -> None:
    with pytest.raises(TransientSendError):
        await adapter_of(telegram).send(message("hello"))


async def test_an_empty_message_is_refused(adapter: TelegramAdapter) -> None:
    with pytest.raises(PermanentSendError):
        await adapter.send(message(" \n"))


# ---- how it looks ---------------------------------------------------------------------------------------------------


async def test_markdown_that_is_refused_is_shown_plain(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    telegram.faults["editMessageText"].append(refusal(400, "Bad Request: can't parse entities: unsupported"))
    await adapter.send(message("**bold** move"))
    (shown,) = telegram.bot_messages()
    assert (shown.text, shown.entities) == ("bold move", [])


async def test_markdown_is_shown_and_no_page_is_fetched_for_it(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    await adapter.send(message("**bold** [word](https://a.example)"))
    (shown,) = telegram.bot_messages()
    assert [(entity["type"], entity["offset"], entity["length"]) for entity in shown.entities] == [
        ("bold", 0, 4), ("text_link", 5, 4),
    ]  # fmt: skip
    assert all(asked["link_preview_options"] == {"is_disabled": True} for asked in telegram.called("editMessageText"))


async def test_nobody_in_a_group_is_called_by_what_the_model_wrote(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    await adapter.send(message("@everyone @ada_l [x](tg://user?id=42)", group()))
    (shown,) = telegram.bot_messages(GROUP["id"])
    assert {entity["type"] for entity in shown.entities} == {"code"}


async def test_in_a_group_the_question_is_replied_to_and_in_a_private_chat_it_is_plain(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    await adapter.send(message(long_text(2), group(), reply_to=f"{GROUP['id']}:77"))
    await adapter.send(message("hello", reply_to="42:78"))
    assert [shown.reply_to for shown in telegram.bot_messages(GROUP["id"])] == [77, None]
    assert telegram.bot_messages()[0].reply_to is None
    assert telegram.called("sendMessage")[0]["reply_parameters"]["allow_sending_without_reply"] is True


async def test_an_answer_goes_into_the_topic_of_its_question(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    await adapter.send(message("hello", direct(GROUP["id"], thread="5")))
    assert telegram.bot_messages(GROUP["id"])[0].thread == 5


# ---- files ----------------------------------------------------------------------------------------------------------


async def test_files_follow_the_text_once_also_when_the_line_breaks(
    telegram: FakeTelegram, adapter: TelegramAdapter, tmp_path: Path
) -> None:
    path = tmp_path / "plot.csv"
    path.write_bytes(b"1;2\n" * 1000)
    file = Attachment(media_type="text/csv", filename="plöt.csv", size_bytes=4000, ref=str(path))
    telegram.faults["editMessageMedia"].append(DROPPED_AFTER)
    sent = message("here", attachments=(file,))
    with pytest.raises(UncertainSendError):
        await adapter.send(sent)
    receipt = await adapter.send(sent)
    text, document = telegram.bot_messages()
    assert (text.text, document.file) == ("here", ("plöt.csv", path.read_bytes()))
    assert len(receipt.message_ids) == 2


def voice_note(tmp_path: Path) -> OutboundMessage:
    path = tmp_path / "voice.ogg"
    path.write_bytes(b"OggS" + bytes(24) + b"OpusHead" + bytes(40))
    file = Attachment(
        media_type="audio/ogg", filename="voice.ogg", size_bytes=76, ref=str(path), is_voice=True, duration_s=3.6
    )
    return replace(message("", attachments=(file,)), id="t_1.voice")


async def test_a_voice_note_is_a_voice_message_of_telegram_with_its_length_and_no_text(
    telegram: FakeTelegram, adapter: TelegramAdapter, tmp_path: Path
) -> None:
    sent = voice_note(tmp_path)
    assert adapter.capabilities.voice == "message"
    receipt = await adapter.send(sent)
    assert await adapter.send(sent) == receipt
    (shown,) = telegram.bot_messages()
    assert (shown.is_voice, shown.text, shown.file) == (
        True,
        "",
        ("voice.ogg", Path(sent.attachments[0].ref).read_bytes()),
    )
    (asked,) = telegram.called("sendVoice")
    assert (asked["duration"], "caption" in asked) == ("4", False)


async def test_a_voice_note_of_which_nobody_knows_is_not_sent_twice(
    telegram: FakeTelegram, adapter: TelegramAdapter, restarted: TelegramAdapter, tmp_path: Path
) -> None:
    telegram.faults["sendVoice"].append(DROPPED_AFTER)
    with pytest.raises(UncertainSendError):
        await adapter.send(voice_note(tmp_path))
    for each in (adapter, restarted):
        with pytest.raises(PermanentSendError, match="not sent twice"):
            await each.send(voice_note(tmp_path))
    assert len(telegram.bot_messages()) == 1


async def test_a_voice_note_that_did_not_arrive_is_sent_again(
    telegram: FakeTelegram, adapter: TelegramAdapter, restarted: TelegramAdapter, tmp_path: Path
) -> None:
    telegram.faults["sendVoice"].append(flood(1))
    with pytest.raises(TransientSendError):
        await adapter.send(voice_note(tmp_path))
    await restarted.send(voice_note(tmp_path))
    assert [shown.is_voice for shown in telegram.bot_messages()] == [True]


async def test_who_takes_no_voice_messages_gets_the_note_as_a_file(
    telegram: FakeTelegram, adapter: TelegramAdapter, tmp_path: Path
) -> None:
    """A setting of people there: td answers VOICE_MESSAGES_FORBIDDEN."""
    telegram.faults["sendVoice"].append(refusal(400, "Bad Request: VOICE_MESSAGES_FORBIDDEN"))
    await adapter.send(voice_note(tmp_path))
    (shown,) = telegram.bot_messages()
    assert (shown.is_voice, shown.file is not None and shown.file[0]) == (False, "voice.ogg")


async def test_long_code_arrives_as_a_file_in_its_place(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    code = "\n".join(f"print({number})" for number in range(500))
    await adapter.send(message(f"before\n\n```python\n{code}\n```\n\nafter"))
    first, file, last = telegram.bot_messages()
    assert [first.text, last.text] == ["before\n\n(see code-1.py)", "after"]
    assert file.file is not None
    assert (file.file[0], file.file[1].decode().strip()) == ("code-1.py", code)


async def test_without_a_file_that_is_gone_the_answer_is_sent_and_says_so(
    telegram: FakeTelegram, adapter: TelegramAdapter, tmp_path: Path
) -> None:
    file = Attachment(media_type="x/y", filename="gone.bin", size_bytes=1, ref=str(tmp_path / "gone.bin"))
    await adapter.send(message("here", attachments=(file,)))
    assert telegram.texts() == ["here", "(The file gone.bin is not there any more.)"]


async def test_a_file_that_is_refused_holds_up_nothing_and_is_told(
    telegram: FakeTelegram, adapter: TelegramAdapter, restarted: TelegramAdapter, tmp_path: Path
) -> None:
    path = tmp_path / "plot.csv"
    path.write_bytes(b"1;2\n")
    file = Attachment(media_type="text/csv", filename="plot.csv", size_bytes=4, ref=str(path))
    code = "\n".join(f"print({number})" for number in range(500))
    sent = message(f"before\n\n```python\n{code}\n```\n\nafter", attachments=(file, file))
    telegram.faults["editMessageMedia"] += [refusal(400, "Bad Request: file must be non-empty")] * 2
    telegram.faults["editMessageMedia"].append(DROPPED_AFTER)
    with pytest.raises(UncertainSendError):
        await adapter.send(sent)
    await restarted.send(sent)
    texts = telegram.texts()
    assert texts[:2] == ["before\n\n(see code-1.py)", "(Telegram did not take the file code-1.py.)"]
    assert "\n".join(texts[2:4]) == code
    assert texts[4:6] == ["after", "(Telegram did not take the file plot.csv.)"]
    assert [shown.file for shown in telegram.bot_messages() if shown.file] == [("plot.csv", b"1;2\n")]


async def test_a_file_above_what_telegram_takes_is_refused_before_it_is_read(
    telegram: FakeTelegram, adapter: TelegramAdapter, tmp_path: Path
) -> None:
    path = tmp_path / "film.mkv"
    with path.open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)  # a hole: it takes no room
    large = Attachment(media_type="x/y", filename="film.mkv", size_bytes=1, ref=str(path))
    await adapter.send(message("here", attachments=(large,)))
    assert telegram.texts() == ["here", "(The file film.mkv is larger than the 50 MB that Telegram takes.)"]


async def test_a_file_that_a_person_sent_is_fetched_within_limits(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    telegram.files = {"f1": b"x" * 1000, "f2": b"x" * (21 * 1024 * 1024)}
    file = Attachment(media_type="text/plain", filename="a", size_bytes=0, ref="f1")
    assert await adapter.fetch(file, 1000) == b"x" * 1000
    for ref, limit in (("f1", 999), ("f2", 30_000_000), ("unknown", 10)):
        with pytest.raises(PermanentSendError):
            await adapter.fetch(replace(file, ref=ref), limit)
    telegram.faults["getFile"].append(DROPPED_AFTER)
    with pytest.raises(TransientSendError):
        await adapter.fetch(file, 1000)


# ---- groups that are upgraded ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sendMessage", "editMessageText"])
async def test_an_answer_follows_its_group_to_the_new_id_and_that_is_remembered(
    telegram: FakeTelegram, adapter: TelegramAdapter, restarted: TelegramAdapter, method: str
) -> None:
    telegram.chats[-55] = []
    if method == "sendMessage":
        telegram.migrated[-55] = GROUP["id"]
    else:
        moved = refusal(400, "Bad Request: group chat was upgraded", migrate_to_chat_id=GROUP["id"])
        telegram.faults[method].append(moved)
    receipt = await adapter.send(message("hello", direct(-55), reply_to="-55:7"))
    assert telegram.texts(GROUP["id"]) == ["hello"]
    assert receipt.message_ids[0].startswith(f"{GROUP['id']}:")
    await restarted._migrations.load()
    await restarted.send(message("later", direct(-55)))
    assert telegram.texts(GROUP["id"]) == ["hello", "later"]


# ---- the rate limit -------------------------------------------------------------------------------------------------


async def test_a_chat_gets_a_burst_and_then_a_steady_pace() -> None:
    limit = RateLimit(chat_s=3600, group_s=3600, overall_s=0, burst=3)
    async with asyncio.timeout(60):
        for _ in range(3):
            await limit.wait(42)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await limit.wait(42)


async def test_over_all_chats_there_is_a_pace_too() -> None:
    limit = RateLimit(chat_s=0, group_s=0, overall_s=3600, burst=3)
    for chat in (1, 2, 3):
        await limit.wait(chat)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await limit.wait(4)


async def test_one_chats_pace_is_not_anothers() -> None:
    limit = RateLimit(chat_s=3600, group_s=3600, overall_s=0, burst=1)
    async with asyncio.timeout(60):
        for chat in (1, 2, 3, -1, -2):
            await limit.wait(chat)


async def test_a_pause_ends_by_itself() -> None:
    limit = RateLimit(chat_s=0, group_s=0, overall_s=0)
    limit.pause(42, TransientSendError("slow down", retry_after_s=0.05))
    with pytest.raises(TransientSendError):
        await limit.wait(42)
    limit.pause(42, TransientSendError("slow down", retry_after_s=-1.0))
    await limit.wait(42)
