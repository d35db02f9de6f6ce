"""What the agent says is shown once, whole, and to nobody who was not meant."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from adapters.discord.outbound import MAX_FILE_BYTES, NONCE_LIFETIME_S
from gateway.errors import PermanentSendError, StoreUnavailable, TransientSendError, UncertainSendError
from gateway.messages import Action, Attachment, ConversationRef, OutboundMessage
from gateway.testing.adapters import running, soon
from tests.adapters.discord.fake_discord import Outcome, limited
from tests.adapters.discord.harness import DiscordHarness, WatchedNotes, direct, make_adapter, outbound, room
from tests.adapters.discord.world import BOB, BOT, BOT_USER, DM, OTHER_DM, ROOM

MESSAGES = f"/channels/{DM}/messages"
TWO_PIECES = f"{'a' * 1500}\n\n{'b' * 1500}"


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def clocked(harness: DiscordHarness) -> Clock:
    clock = Clock()
    harness.adapter._outbound._clock = clock
    return clock


def posts(harness: DiscordHarness, path: str = MESSAGES) -> list[dict[str, Any]]:
    return [body for method, where, body in harness.platform.requests if method == "POST" and where == path]


# ---- what is sent ---------------------------------------------------------------------------------------------------


async def test_row_33_a_mass_mention_of_the_model_reaches_nobody(harness: DiscordHarness) -> None:
    async with running(harness):
        await soon(harness.adapter.send(outbound("@everyone @here <@4001> <@&2003> look!")))
    sent = posts(harness)[0]
    assert sent["allowed_mentions"] == {"parse": []}
    assert sent["flags"] & 4, "no preview of an address that the model wrote"
    assert not harness.platform.of_bot()[0]["mention_everyone"]


async def test_row_33_nothing_that_is_written_may_mention_anybody(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, {"type": 1, "name": "help"})
        await inbox.has(1)
        await soon(harness.adapter.send(outbound("@everyone, an answer", reply_to=payload["id"])))
        await soon(harness.adapter.preview(outbound("@everyone, a pre", id="t_2.reply")))
        await soon(harness.adapter.preview(outbound("@everyone, a preview", id="t_2.reply")))
        await soon(harness.adapter.send(outbound("@everyone, a reply", id="t_2.reply")))
    written = [body for _, _, body in harness.platform.requests if body and "content" in body]
    assert len(written) == 4
    assert [body["allowed_mentions"] for body in written] == [{"parse": []}] * 4


async def test_each_piece_has_a_nonce_of_its_own_that_is_the_same_on_every_try(harness: DiscordHarness) -> None:
    async with running(harness):
        for _ in range(2):
            await soon(harness.adapter.send(outbound(TWO_PIECES)))
            harness.notes.texts.clear()
    first, second, *again = [body["nonce"] for body in posts(harness)]
    assert first != second
    assert again == [first, second]
    assert all(len(nonce) <= 25 for nonce in (first, second))
    assert all(body["enforce_nonce"] is True for body in posts(harness))
    assert len(harness.platform.of_bot()) == 2


async def test_an_answer_in_a_server_is_shown_as_a_reply_and_one_in_a_direct_chat_is_not(
    harness: DiscordHarness,
) -> None:
    async with running(harness) as inbox:
        asked = harness.platform.say(ROOM, f"<@{BOT}> hello", mentions=[BOT_USER])
        await harness.person_says("hello")
        await inbox.has(2)
        await soon(harness.adapter.send(outbound(TWO_PIECES, where=room(), reply_to=asked["id"])))
        await soon(harness.adapter.send(outbound("hi", id="t_2.reply", reply_to=asked["id"])))
    first, second = posts(harness, f"/channels/{ROOM}/messages")
    assert str(first["message_reference"]["message_id"]) == asked["id"]
    assert first["message_reference"]["fail_if_not_exists"] is False
    assert "message_reference" not in second
    assert "message_reference" not in posts(harness)[0]


async def test_where_it_may_not_reply_it_sends_a_plain_message(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        asked = harness.platform.say(ROOM, f"<@{BOT}> hello", mentions=[BOT_USER])
        await inbox.has(1)
        refusal = {"message": "Cannot reply without permission to read message history", "code": 160002}
        harness.platform.script("POST", f"/channels/{ROOM}/messages", Outcome(400, refusal))
        await soon(harness.adapter.send(outbound("hi", where=room(), reply_to=asked["id"])))
    assert harness.platform.texts(ROOM) == ["hi"]


async def test_choices_become_buttons(harness: DiscordHarness) -> None:
    actions = (Action(id="personality engineer", label="Engineer"), Action(id="new", label="Start afresh"))
    async with running(harness):
        await soon(harness.adapter.send(outbound("Choose.", actions=actions)))
    (row,) = harness.platform.of_bot()[0]["components"]
    assert [(button["custom_id"], button["label"]) for button in row["components"]] == [
        ("personality engineer", "Engineer"),
        ("new", "Start afresh"),
    ]


async def test_typing_is_shown_and_its_failure_is_nobodys_matter(harness: DiscordHarness) -> None:
    async with running(harness):
        await soon(harness.adapter.show_typing(direct()))
        await soon(harness.adapter.show_typing(ConversationRef(channel="discord", conversation="999")))
        await soon(harness.adapter.show_typing(ConversationRef(channel="discord", conversation="no id")))
    assert harness.platform.typing == [DM]


# ---- limits and refusals --------------------------------------------------------------------------------------------


async def test_a_rate_limit_holds_up_its_own_conversation_only(harness: DiscordHarness) -> None:
    other = ConversationRef(channel="discord", conversation=OTHER_DM)
    harness.platform.script("POST", MESSAGES, limited(0.2))
    async with running(harness):
        waiting = asyncio.create_task(harness.adapter.send(outbound("later")))
        await harness.platform.until(lambda: harness.platform.count("POST", MESSAGES) == 1)
        await soon(harness.adapter.send(outbound("now", id="t_2.reply", where=other)))
        assert not waiting.done()
        await soon(waiting)
    assert harness.platform.texts(OTHER_DM) == ["now"]
    assert harness.platform.texts() == ["later"]


@pytest.mark.parametrize("has_via", [True, False], ids=["of Discord", "of its proxy"])
async def test_a_long_rate_limit_is_the_outboxs_to_wait_for(harness: DiscordHarness, has_via: bool) -> None:
    harness.platform.script("POST", MESSAGES, limited(45, has_via=has_via))
    async with running(harness):
        with pytest.raises(TransientSendError) as failure:
            await soon(harness.adapter.send(outbound("hello")))
    assert failure.value.retry_after_s == 45


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [(403, 50007, "takes no direct messages"), (403, 50001, "View Channel"), (403, 50013, "Send Messages")],
)
async def test_what_is_refused_for_good_says_what_to_do(
    harness: DiscordHarness, status: int, code: int, remedy: str
) -> None:
    harness.platform.channels[DM].refusal = (status, code)
    async with running(harness):
        with pytest.raises(PermanentSendError, match=remedy):
            await soon(harness.adapter.send(outbound("hello")))


@pytest.mark.parametrize("conversation", ["no id", "", "12 34", "١٢"])
async def test_a_conversation_that_cannot_be_is_refused(harness: DiscordHarness, conversation: str) -> None:
    async with running(harness):
        with pytest.raises(PermanentSendError):
            await soon(
                harness.adapter.send(outbound("hello", where=ConversationRef(channel="d", conversation=conversation)))
            )


# ---- sends that were cut off ----------------------------------------------------------------------------------------


async def resend(harness: DiscordHarness, message: OutboundMessage) -> tuple[str, ...]:
    """As the outbox does after an uncertain send."""
    receipt = await soon(harness.adapter.find_sent(message))
    if receipt is None:
        receipt = await soon(harness.adapter.send(message))
    return receipt.message_ids


@pytest.mark.parametrize("outcome", [Outcome(503), Outcome(), Outcome(503, is_after=True), Outcome(is_after=True)])
@pytest.mark.parametrize("is_soon", [True, False], ids=["within minutes", "after an hour"])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["same process", "after a restart"])
async def test_an_uncertain_send_ends_as_one_message(
    harness: DiscordHarness, outcome: Outcome, is_soon: bool, is_restarted: bool
) -> None:
    message = outbound("Once and for all.", reply_to="1")
    clock = clocked(harness)
    harness.platform.script("POST", MESSAGES, outcome)
    async with running(harness):
        with pytest.raises(UncertainSendError):
            await soon(harness.adapter.send(message))
    if is_restarted:
        harness.adapter = make_adapter(harness.notes)
        harness.adapter._outbound._clock = clock
    if not is_soon:
        clock.now += NONCE_LIFETIME_S + 1
        harness.platform.forget_nonces()
    async with running(harness):
        ids = await resend(harness, message)
    assert [each["id"] for each in harness.platform.of_bot()] == list(ids)
    assert harness.platform.texts() == ["Once and for all."]


async def test_a_server_error_is_repeated_by_the_library_with_the_same_nonce(harness: DiscordHarness) -> None:
    harness.platform.script("POST", MESSAGES, Outcome(502, is_after=True))
    async with running(harness):
        await soon(harness.adapter.send(outbound("hello")))
    assert len(posts(harness)) == 2
    assert harness.platform.texts() == ["hello"]


async def test_an_earlier_message_with_the_same_text_is_not_taken_for_the_lost_one(harness: DiscordHarness) -> None:
    clock = clocked(harness)
    first, second = outbound("Done.", id="t_1.reply"), outbound("Done.", id="t_2.reply")
    async with running(harness):
        await soon(harness.adapter.send(first))
        harness.platform.script("POST", MESSAGES, Outcome())
        with pytest.raises(UncertainSendError):
            await soon(harness.adapter.send(second))
        clock.now += NONCE_LIFETIME_S + 1
        harness.platform.forget_nonces()
        assert await soon(harness.adapter.find_sent(second)) is None
        await soon(harness.adapter.send(second))
    assert harness.platform.texts() == ["Done.", "Done."]


async def test_the_words_of_others_are_not_taken_for_the_lost_message(harness: DiscordHarness) -> None:
    clock = clocked(harness)
    harness.platform.script("POST", MESSAGES, Outcome())
    async with running(harness):
        with pytest.raises(UncertainSendError):
            await soon(harness.adapter.send(outbound("Done.")))
        harness.platform.write(DM, "Done.", author=BOB)
        clock.now += NONCE_LIFETIME_S + 1
        assert await soon(harness.adapter.find_sent(outbound("Done."))) is None


async def test_a_message_without_a_note_is_looked_for_behind_the_question(harness: DiscordHarness) -> None:
    """A power cut may take the notes of the last moments."""
    async with running(harness):
        question = await harness.person_says("really?")
        message = outbound("Really.", reply_to=question)
        receipt = await soon(harness.adapter.send(message))
        harness.notes.texts.clear()
        assert await soon(harness.adapter.find_sent(message)) == receipt
        assert await soon(harness.adapter.find_sent(outbound("Never sent.", id="t_2", reply_to=question))) is None


async def test_a_try_goes_on_behind_the_pieces_that_are_there(harness: DiscordHarness) -> None:
    message = outbound(TWO_PIECES)
    async with running(harness):
        await soon(harness.adapter.send(outbound("before", id="t_0.reply")))
        as_always = asyncio.Event()
        as_always.set()
        harness.platform.script("POST", MESSAGES, Outcome(gate=as_always), limited(45))
        with pytest.raises(TransientSendError):
            await soon(harness.adapter.send(message))
    harness.platform.forget_nonces()
    harness.adapter = make_adapter(harness.notes)
    async with running(harness):
        receipt = await soon(harness.adapter.send(message))
    assert harness.platform.texts() == ["before", "a" * 1500, "b" * 1500]
    assert len(receipt.message_ids) == 2


async def test_after_minutes_the_pieces_that_are_there_are_found_and_the_rest_is_sent(harness: DiscordHarness) -> None:
    clock = clocked(harness)
    message = outbound(TWO_PIECES)
    harness.platform.script("POST", MESSAGES, Outcome(is_after=True))
    async with running(harness):
        with pytest.raises(UncertainSendError):
            await soon(harness.adapter.send(message))
        clock.now += NONCE_LIFETIME_S + 1
        harness.platform.forget_nonces()
        assert await soon(harness.adapter.find_sent(message)) is None
        await soon(harness.adapter.send(message))
    assert harness.platform.texts() == ["a" * 1500, "b" * 1500]


async def test_a_message_that_was_deleted_meanwhile_does_not_stop_its_conversation(harness: DiscordHarness) -> None:
    harness.platform.script("POST", MESSAGES, Outcome(is_after=True))
    message = outbound("hello")
    async with running(harness):
        with pytest.raises(UncertainSendError):
            await soon(harness.adapter.send(message))
        harness.platform._delete(DM, harness.platform.of_bot()[0]["id"])
        await soon(harness.adapter.send(message))
    assert harness.platform.texts() == ["hello"]


async def test_a_send_without_its_notes_is_certain_not_to_have_happened(harness: DiscordHarness) -> None:
    class BrokenNotes(WatchedNotes):
        is_broken = False

        async def get(self, key: str) -> str | None:
            if self.is_broken:
                raise StoreUnavailable("the disk is gone")
            return await super().get(key)

    notes = BrokenNotes()
    harness.notes, harness.adapter = notes, make_adapter(notes)
    async with running(harness):
        notes.is_broken = True
        with pytest.raises(TransientSendError):
            await soon(harness.adapter.send(outbound("hello")))
        with pytest.raises(TransientSendError):
            await soon(harness.adapter.find_sent(outbound("hello")))
        notes.is_broken = False
        await soon(harness.adapter.send(outbound("hello")))
    assert harness.platform.texts() == ["hello"]


# ---- previews -------------------------------------------------------------------------------------------------------


async def test_a_preview_grows_in_one_message_and_the_answer_takes_its_place_exactly_once(
    harness: DiscordHarness,
) -> None:
    async with running(harness):
        for text in ("The", "The answer", "The answer"):
            await soon(harness.adapter.preview(outbound(text)))
        receipt = await soon(harness.adapter.send(outbound(TWO_PIECES)))
    assert harness.platform.texts() == ["a" * 1500, "b" * 1500]
    assert [content.strip() for _, content in harness.platform.edits] == ["The answer", "a" * 1500]
    assert receipt.message_ids[0] == harness.platform.edits[0][0]
    assert not [key for key in harness.notes.texts if key.startswith("preview:")]


async def test_a_long_preview_shows_the_beginning(harness: DiscordHarness) -> None:
    async with running(harness):
        await soon(harness.adapter.preview(outbound("word " * 900)))
    (shown,) = harness.platform.texts()
    assert len(shown) <= 2000
    assert shown.endswith("…")


@pytest.mark.parametrize("is_after", [False, True], ids=["before the effect", "after the effect"])
async def test_a_preview_whose_line_broke_does_not_stay_beside_the_answer(
    harness: DiscordHarness, is_after: bool
) -> None:
    harness.platform.script("POST", MESSAGES, Outcome(is_after=is_after))
    async with running(harness):
        await soon(harness.adapter.preview(outbound("The ans")))
        await soon(harness.adapter.preview(outbound("The answer is")))
        await soon(harness.adapter.send(outbound("The answer is 42.")))
    assert harness.platform.texts() == ["The answer is 42."]


async def test_a_preview_that_was_never_heard_of_again_is_replaced_too(harness: DiscordHarness) -> None:
    """Its id is unknown: the nonce of the first piece leads to it."""
    harness.platform.script("POST", MESSAGES, Outcome(is_after=True))
    async with running(harness):
        await soon(harness.adapter.preview(outbound("The ans")))
        await soon(harness.adapter.send(outbound("The answer is 42.")))
    assert harness.platform.texts() == ["The answer is 42."]


async def test_after_a_restart_the_preview_is_still_replaced(harness: DiscordHarness) -> None:
    async with running(harness):
        await soon(harness.adapter.preview(outbound("The ans")))
    harness.platform.forget_nonces()
    harness.adapter = make_adapter(harness.notes)
    async with running(harness):
        await soon(harness.adapter.send(outbound("The answer is 42.")))
    assert harness.platform.texts() == ["The answer is 42."]


async def test_a_preview_that_somebody_deleted_is_replaced_by_a_new_message(harness: DiscordHarness) -> None:
    async with running(harness):
        await soon(harness.adapter.preview(outbound("The ans")))
        harness.platform._delete(DM, harness.platform.of_bot()[0]["id"])
        await soon(harness.adapter.send(outbound("The answer is 42.")))
    assert harness.platform.texts() == ["The answer is 42."]


async def test_an_answer_that_comes_after_its_preview_was_taken_back_is_shown(harness: DiscordHarness) -> None:
    async with running(harness):
        await soon(harness.adapter.preview(outbound("The ans")))
        await soon(harness.adapter.preview(outbound("")))
        assert harness.platform.texts() == []
        await soon(harness.adapter.preview(outbound("The answer")))
        await soon(harness.adapter.preview(outbound("")))
        await soon(harness.adapter.send(outbound("The answer is 42.")))
    assert harness.platform.texts() == ["The answer is 42."]


async def test_a_preview_that_is_cancelled_on_its_way_does_not_overtake_the_answer(harness: DiscordHarness) -> None:
    gate = asyncio.Event()
    async with running(harness):
        await soon(harness.adapter.preview(outbound("The")))
        harness.platform.script("PATCH", MESSAGES, Outcome(gate=gate))
        on_its_way = asyncio.create_task(harness.adapter.preview(outbound("The answer")))
        await harness.platform.until(lambda: harness.platform.count("PATCH", MESSAGES) == 1)
        on_its_way.cancel()
        sending = asyncio.create_task(harness.adapter.send(outbound("The answer is 42.")))
        await soon(harness.adapter.preview(outbound("one too many")))
        for _ in range(3):  # there and back: whatever else is on its way has arrived
            await soon(harness.adapter.show_typing(direct()))
        gate.set()
        await soon(sending)
    assert [content for _, content in harness.platform.edits] == ["The answer", "The answer is 42."]


@pytest.mark.parametrize("outcome", [Outcome(503), Outcome(403, {"message": "no", "code": 50001}), limited(45)])
async def test_a_preview_that_fails_is_dropped(harness: DiscordHarness, outcome: Outcome) -> None:
    harness.platform.script("POST", MESSAGES, outcome)
    async with running(harness):
        await soon(harness.adapter.preview(outbound("The")))
        harness.platform.end_scripts()
        await soon(harness.adapter.preview(outbound("   ")))
    assert harness.platform.of_bot() == []


async def test_a_preview_that_was_taken_back_leaves_no_note(harness: DiscordHarness) -> None:
    async with running(harness):
        await soon(harness.adapter.preview(outbound("The")))
        await soon(harness.adapter.preview(outbound("")))
    assert not [key for key in harness.notes.texts if key.startswith("preview:")]


async def test_where_everything_is_deleted_at_once_it_gives_up(harness: DiscordHarness) -> None:
    gone = Outcome(404, {"message": "Unknown Message", "code": 10008})
    harness.platform.script("POST", MESSAGES, *[gone] * 9)
    async with running(harness):
        with pytest.raises(PermanentSendError, match="again and again"):
            await soon(harness.adapter.send(outbound("hello")))
    assert len(posts(harness)) == 3


# ---- files ----------------------------------------------------------------------------------------------------------


async def test_long_code_goes_as_a_file(harness: DiscordHarness) -> None:
    code = "".join(f"print({number})\n" for number in range(400))
    async with running(harness):
        await soon(harness.adapter.send(outbound(f"Here it is:\n```python\n{code}```\nThat is all.")))
    (message,) = harness.platform.of_bot()
    assert message["content"] == "Here it is:\n(see the file `code-1.py`)\nThat is all."
    assert harness.platform.uploads == {"code-1.py": code.encode()}


def _voice_note(tmp_path: Path) -> OutboundMessage:
    path = tmp_path / "voice.ogg"
    path.write_bytes(b"OggS" + bytes(24) + b"OpusHead")
    file = Attachment(
        media_type="audio/ogg",
        filename="voice.ogg",
        size_bytes=36,
        ref=str(path),
        is_voice=True,
        duration_s=2.5,
        waveform="AAEHJTo0IQA=",
    )
    return outbound("", id="t_1.voice", attachments=(file,))


async def test_a_voice_note_is_a_voice_message_with_length_and_waveform_and_without_text(
    harness: DiscordHarness, tmp_path: Path
) -> None:
    async with running(harness):
        assert harness.adapter.capabilities.voice == "message"
        first = await soon(harness.adapter.send(_voice_note(tmp_path)))
        assert await soon(harness.adapter.send(_voice_note(tmp_path))) == first
    (asked,) = posts(harness)
    assert asked["flags"] == 8192
    assert "content" not in asked
    assert asked["attachments"] == [
        {"id": 0, "filename": "voice.ogg", "duration_secs": 2.5, "waveform": "AAEHJTo0IQA="}
    ]
    assert harness.platform.uploads["voice.ogg"].startswith(b"OggS")


async def test_where_voice_messages_are_forbidden_the_note_is_a_file(harness: DiscordHarness, tmp_path: Path) -> None:
    async with running(harness):
        harness.platform.script("POST", MESSAGES, Outcome(403, {"message": "Missing Permissions", "code": 50013}))
        await soon(harness.adapter.send(_voice_note(tmp_path)))
    (message,) = harness.platform.of_bot()
    assert (message["flags"] & 8192, [each["filename"] for each in message["attachments"]]) == (0, ["voice.ogg"])


async def test_attachments_are_sent_and_a_missing_one_is_named(harness: DiscordHarness, tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("buy milk")
    files = [_attachment(tmp_path / "plan.txt"), _attachment(tmp_path / "gone.txt")]
    async with running(harness):
        await soon(harness.adapter.send(outbound("Two files.", attachments=tuple(files))))
    assert harness.platform.uploads == {"plan.txt": b"buy milk"}
    assert harness.platform.texts() == ["Two files.\n\n(could not be attached: gone.txt)"]


async def test_more_files_than_one_message_takes_go_in_several(harness: DiscordHarness, tmp_path: Path) -> None:
    files = []
    for number in range(12):
        path = tmp_path / f"{number}.txt"
        path.write_text(str(number))
        files.append(_attachment(path))
    async with running(harness):
        await soon(harness.adapter.send(outbound("A dozen.", attachments=tuple(files))))
    assert len(harness.platform.uploads) == 12
    assert [len(message["attachments"]) for message in harness.platform.of_bot()] == [10, 2]


async def test_a_file_that_is_too_large_is_named_instead(harness: DiscordHarness, tmp_path: Path) -> None:
    path = tmp_path / "film.bin"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    async with running(harness):
        await soon(harness.adapter.send(outbound("A film.", attachments=(_attachment(path),))))
    assert harness.platform.texts() == ["A film.\n\n(could not be attached: film.bin)"]


async def test_where_files_are_refused_the_text_is_sent_all_the_same(harness: DiscordHarness, tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("buy milk")
    refusal = Outcome(413, {"message": "Request entity too large", "code": 40005})
    harness.platform.script("POST", MESSAGES, refusal)
    async with running(harness):
        await soon(harness.adapter.send(outbound("A plan.", attachments=(_attachment(tmp_path / "plan.txt"),))))
    assert harness.platform.texts() == ["A plan.\n(could not be attached: plan.txt)"]


async def test_files_come_with_the_answer_that_replaces_a_preview(harness: DiscordHarness, tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("buy milk")
    async with running(harness):
        await soon(harness.adapter.preview(outbound("A pl")))
        await soon(harness.adapter.send(outbound("A plan.", attachments=(_attachment(tmp_path / "plan.txt"),))))
    (message,) = harness.platform.of_bot()
    assert (message["content"], len(message["attachments"])) == ("A plan.", 1)


async def test_a_message_without_anything_in_it_is_refused(harness: DiscordHarness) -> None:
    async with running(harness):
        with pytest.raises(PermanentSendError, match="no text"):
            await soon(harness.adapter.send(outbound("  \n ")))


def _attachment(path: Path) -> Attachment:
    return Attachment(media_type="text/plain", filename=path.name, size_bytes=8, ref=str(path))


# ---- long code and tables -------------------------------------------------------------------------------------------

CODE = "".join(f"print({number})\n" for number in range(300))
ANSWER = f"{'words ' * 500}\n\n```python\n{CODE}```\n\nThat is all."


async def test_long_code_comes_as_a_file_with_the_last_of_the_text(harness: DiscordHarness) -> None:
    async with running(harness):
        await soon(harness.adapter.send(outbound(ANSWER)))
    assert harness.platform.texts()[-1].endswith("(see the file `code-1.py`)\n\nThat is all.")
    assert harness.platform.uploads == {"code-1.py": CODE.encode()}
    assert [len(message["attachments"]) for message in harness.platform.of_bot()] == [0, 1]


@pytest.mark.parametrize("outcome", [Outcome(503), Outcome(is_after=True)], ids=["not there", "there"])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize("is_soon", [True, False], ids=["within minutes", "after an hour"])
async def test_a_file_is_shown_once_although_its_send_was_cut_off(
    harness: DiscordHarness, outcome: Outcome, is_restarted: bool, is_soon: bool
) -> None:
    message, clock, as_always = outbound(ANSWER), clocked(harness), asyncio.Event()
    as_always.set()
    harness.platform.script("POST", MESSAGES, Outcome(gate=as_always), outcome)
    async with running(harness):
        with pytest.raises(UncertainSendError):
            await soon(harness.adapter.send(message))
    if is_restarted:
        harness.adapter = make_adapter(harness.notes)
        harness.adapter._outbound._clock = clock
    if not is_soon:
        clock.now += NONCE_LIFETIME_S + 1
        harness.platform.forget_nonces()
    async with running(harness):
        ids = await resend(harness, message)
    assert [each["id"] for each in harness.platform.of_bot()] == list(ids)
    assert [len(each["attachments"]) for each in harness.platform.of_bot()] == [0, 1]


@pytest.mark.parametrize(("status", "code"), [(403, 50013), (413, 40005)], ids=["no permission", "too large"])
async def test_where_files_are_refused_the_code_follows_as_text(
    harness: DiscordHarness, tmp_path: Path, status: int, code: int
) -> None:
    (tmp_path / "plan.txt").write_text("buy milk")
    as_always = asyncio.Event()
    as_always.set()
    refusal, cut_off = Outcome(status, {"message": "no", "code": code}), limited(45)
    passed = [Outcome(gate=as_always)]
    harness.platform.script("POST", MESSAGES, *passed, refusal, *passed, cut_off)
    message = outbound(ANSWER, attachments=(_attachment(tmp_path / "plan.txt"),))
    async with running(harness):
        with pytest.raises(TransientSendError):
            await soon(harness.adapter.send(message))
    harness.adapter = make_adapter(harness.notes)
    async with running(harness):
        await soon(harness.adapter.send(message))
    shown = "\n".join(harness.platform.texts())
    assert [int(number) for number in re.findall(r"print\((\d+)\)", shown)] == list(range(300))
    assert shown.count("words") == 500
    assert shown.endswith("(could not be attached: plan.txt)")
    assert "`code-1.py`:\n```python\n" in shown
    assert harness.platform.uploads == {}
