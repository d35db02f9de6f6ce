"""Chat streams: answers that are seen as they are written, and end as one ordinary message whatever happens."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import TransientSendError, UncertainSendError
from gateway.messages import Action, ConversationRef, InboundMessage, OutboundMessage
from gateway.testing.adapters import Inbox, answer, running, soon
from tests.adapters.slack.fake_slack import ADA, BOT_USER, DIRECT, GENERAL, TEAM, Fault, read
from tests.adapters.slack.harness import SocketHarness

ANSWER = "The answer is **42**, of course."


async def asked(person: SocketHarness, inbox: Inbox, channel: str = GENERAL) -> InboundMessage:
    """Somebody asks in a thread."""
    known = len(inbox.messages)
    parent = person.slack.write(channel, f"<@{BOT_USER}> what is it?")
    question = person.slack.write(channel, f"<@{BOT_USER}> go on", thread_ts=parent["ts"])
    await person.deliver(person.slack.event(question, channel))
    return (await inbox.has(known + 1))[-1]


def reply(person: SocketHarness, question: InboundMessage, text: str = ANSWER, **more: Any) -> OutboundMessage:
    message = answer(person, text, conversation=question.conversation)
    return replace(message, reply_to=question.id, **more)


async def show(person: SocketHarness, message: OutboundMessage, *texts: str) -> None:
    for text in texts:
        await soon(person.adapter.preview(replace(message, text=text)))


def shown(person: SocketHarness, channel: str = GENERAL) -> list[str]:
    return [read(each) for each in person.slack.ours(channel)]


def methods(person: SocketHarness) -> list[str]:
    return [name.removeprefix("chat.") for name, _ in person.slack.calls if name.startswith("chat.")]


# ---- what people see ------------------------------------------------------------------------------------------------


async def test_an_answer_in_a_thread_is_streamed_to_who_asked_and_never_edited(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The answer", "The answer is **4")
        assert shown(person) == ["The answer is **4"]
        receipt = await soon(person.adapter.send(message))
        assert await soon(person.adapter.find_sent(message)) == receipt, "it can be asked for by its metadata"
    assert shown(person) == [ANSWER]
    assert receipt.message_ids == (person.slack.ours(GENERAL)[0]["ts"],)
    assert methods(person) == ["startStream", "appendStream", "stopStream"]
    start = person.slack.called("chat.startStream")[0]
    assert (start["thread_ts"], start["recipient_team_id"], start["recipient_user_id"]) == (
        message.conversation.thread,
        TEAM,
        ADA,
    )
    assert not [key for key in person.notes.texts if key.startswith("message/")]


async def test_a_stream_that_is_complete_already_is_only_stopped(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox), actions=(Action(id="stop", label="Stop"),))
        await show(person, message, ANSWER)
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]
    assert "markdown_text" not in person.slack.called("chat.stopStream")[0]
    assert person.slack.ours(GENERAL)[0]["blocks"][0]["elements"][0]["value"] == "stop"


async def test_an_answer_that_says_something_else_than_its_preview_takes_its_place(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "Let me look that up.")
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]
    assert methods(person) == ["startStream", "stopStream", "update"]


async def test_a_preview_that_begins_anew_goes_on_by_edits(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "Let me look that up.", "The", "The answer")
        assert shown(person) == ["The answer"]
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]
    assert methods(person) == ["startStream", "stopStream", "update", "update", "update"]


async def test_a_preview_that_outgrows_one_message_goes_on_by_edits(person: SocketHarness) -> None:
    long = "The quick brown fox.\n" * 1200
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox), long)
        await show(person, message, long[:9_000], long[:20_000])
        assert len(shown(person)) == 2
        await soon(person.adapter.send(message))
    assert "".join(shown(person)) == long
    assert not person.slack.open_streams()


async def test_a_preview_that_is_withdrawn_is_stopped_and_removed(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The", "")
    assert shown(person) == []
    assert methods(person) == ["startStream", "stopStream", "delete"]


@pytest.mark.parametrize("end", ["A & B", "A &am", "A < B", "<!chan", "a &#x26; b"])
async def test_nobody_is_called_by_a_stream_wherever_its_text_is_cut(person: SocketHarness, end: str) -> None:
    text = f"{end}nel> <@U0ADA> &amp; done"
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox), text)
        await show(person, message, *[text[:length] for length in range(1, len(text))])
        await soon(person.adapter.send(message))
    assert "<" not in person.slack.ours(GENERAL)[0]["text"]
    assert shown(person) == [text]
    assert "update" not in methods(person)


# ---- where there are none -------------------------------------------------------------------------------------------


async def test_without_a_thread_or_somebody_to_stream_to_previews_are_edits(person: SocketHarness) -> None:
    async with running(person) as inbox:
        direct = answer(person, ANSWER)
        await show(person, direct, "The", "The answer")
        await soon(person.adapter.send(direct))
        unknown = replace(reply(person, await asked(person, inbox)), reply_to="1.000001")
        await show(person, unknown, "The", "The answer")
        await soon(person.adapter.send(unknown))
    assert "startStream" not in methods(person)
    assert shown(person, DIRECT) == shown(person) == [ANSWER]


async def test_in_a_thread_of_a_direct_chat_nobody_has_to_be_named(person: SocketHarness) -> None:
    async with running(person):
        parent = person.slack.write(DIRECT, "hello")
        conversation = ConversationRef(channel="office", conversation=DIRECT, thread=parent["ts"])
        message = answer(person, ANSWER, conversation=conversation)
        await show(person, message, "The")
        await soon(person.adapter.send(message))
    assert methods(person) == ["startStream", "stopStream"]
    assert shown(person, DIRECT) == [ANSWER]


async def test_they_can_be_switched_off() -> None:
    person = SocketHarness(streams=False)
    await person.start()
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The", "The answer")
        await soon(person.adapter.send(message))
    assert methods(person) == ["postMessage", "update", "update"]
    await person.close()


@pytest.mark.parametrize("code", ["missing_scope", "unknown_method", "invalid_stream_arguments"])
async def test_an_app_that_may_not_stream_asks_once_and_edits(person: SocketHarness, code: str) -> None:
    async with running(person) as inbox:
        person.slack.fail("chat.startStream", Fault(error=code))
        for _ in range(2):
            message = reply(person, await asked(person, inbox))
            await show(person, message, "The", "The answer")
            await soon(person.adapter.send(message))
    assert methods(person).count("startStream") == 1
    assert shown(person) == [ANSWER, ANSWER]


async def test_an_app_that_may_stream_again_does_so_after_the_next_connection(person: SocketHarness) -> None:
    async with running(person) as inbox:
        person.slack.fail("chat.startStream", Fault(error="missing_scope"))
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        await soon(person.adapter.send(message))
    async with running(person):
        other = replace(message, id="another")
        await show(person, other, "The")
        await soon(person.adapter.send(other))
    assert methods(person) == ["startStream", "postMessage", "update", "startStream", "stopStream"]


async def test_a_channel_without_streams_gets_edits_and_others_are_streamed(person: SocketHarness) -> None:
    async with running(person) as inbox:
        person.slack.fail("chat.startStream", Fault(error="channel_type_not_supported"))
        for _ in range(2):
            message = reply(person, await asked(person, inbox))
            await show(person, message, "The", "The answer")
            await soon(person.adapter.send(message))
    assert methods(person) == [
        *("startStream", "postMessage", "update", "update"),
        *("startStream", "appendStream", "stopStream"),
    ]
    assert shown(person) == [ANSWER, ANSWER]


# ---- what goes wrong ------------------------------------------------------------------------------------------------


async def test_a_stream_is_stopped_before_it_dies_and_its_message_goes_on_by_edits(person: SocketHarness) -> None:
    person.adapter._streams._rotate_s = 0.05
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        await person.slack.until(lambda: not person.slack.open_streams())
        await show(person, message, "The answer")
        assert shown(person) == ["The answer"]
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]
    assert methods(person).count("startStream") == 1
    assert "appendStream" not in methods(person)


async def test_four_minutes_are_waited_for_that(person: SocketHarness) -> None:
    assert person.adapter._streams._rotate_s == 240.0


@pytest.mark.parametrize("is_shown_again", [False, True])
async def test_a_stream_that_died_is_replaced_in_its_place(person: SocketHarness, is_shown_again: bool) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.end_streams()
        if is_shown_again:
            await show(person, message, "The answer")
            assert shown(person) == ["The answer"]
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]


@pytest.mark.parametrize("code", ["stopped_by_user", "message_not_owned_by_app", "streaming_mode_mismatch"])
async def test_whatever_else_ends_a_stream_its_message_is_edited(person: SocketHarness, code: str) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.fail("chat.appendStream", Fault(error=code))
        await show(person, message, "The answer")
        assert shown(person) == ["The answer"]
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]


@pytest.mark.parametrize("drop", ["before", "after"])
async def test_words_that_may_have_been_added_are_not_added_again(person: SocketHarness, drop: str) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.fail("chat.appendStream", Fault(drop=drop))
        await show(person, message, "The answer", "The answer is")
        assert shown(person) == ["The answer is"]
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]


@pytest.mark.parametrize("drop", ["before", "after"])
async def test_a_stream_whose_end_broke_is_brought_to_the_whole_answer_once(person: SocketHarness, drop: str) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.fail("chat.stopStream", Fault(drop=drop))
        with pytest.raises(TransientSendError):
            await soon(person.adapter.send(message))
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]
    assert not person.slack.open_streams()


async def test_when_there_are_too_many_starts_the_answer_is_edited_and_streams_pause(person: SocketHarness) -> None:
    async with running(person) as inbox:
        person.slack.fail("chat.startStream", Fault(status=429, error="ratelimited", retry_after_s=3600))
        for _ in range(2):
            message = reply(person, await asked(person, inbox))
            await show(person, message, "The")
            await soon(person.adapter.send(message))
    assert methods(person) == ["startStream", "postMessage", "update", "postMessage", "update"]
    assert shown(person) == [ANSWER, ANSWER]


async def test_thirty_answers_in_a_minute_stay_within_the_tier_of_starting(person: SocketHarness) -> None:
    async with running(person) as inbox:
        for _ in range(30):
            message = reply(person, await asked(person, inbox))
            await show(person, message, "The")
            await soon(person.adapter.send(message))
    assert methods(person).count("startStream") == 15
    assert shown(person) == [ANSWER] * 30


async def test_too_many_words_hold_back_previews_and_not_the_answer(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.fail("chat.appendStream", Fault(status=429, error="ratelimited", retry_after_s=3600))
        await show(person, message, "The answer")
        waiting = asyncio.create_task(person.adapter.preview(replace(message, text="The answer is")))
        await person.settle()
        await soon(person.adapter.send(message))
        assert not waiting.done()
        waiting.cancel()
    assert shown(person) == [ANSWER]
    assert "update" not in methods(person), "nothing was added, so the stream could be completed"


async def test_too_many_ends_make_the_answer_wait_as_long_as_slack_says(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.fail("chat.stopStream", Fault(status=429, error="ratelimited", retry_after_s=7))
        with pytest.raises(TransientSendError) as caught:
            await soon(person.adapter.send(message))
        assert caught.value.retry_after_s == 7
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]


async def test_the_end_of_a_stream_that_is_refused_is_edited_in(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.fail("chat.stopStream", Fault(error="msg_blocks_too_long"))
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]


async def test_a_message_that_slack_still_takes_for_a_stream_is_tried_again_later(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.fail("chat.stopStream", *[Fault(error="message_not_in_streaming_state")] * 2)
        with pytest.raises(TransientSendError, match="streaming_state_conflict"):
            await soon(person.adapter.send(message))
        person.slack.end_streams()
        await soon(person.adapter.send(message))
    assert shown(person) == [ANSWER]


# ---- crashes --------------------------------------------------------------------------------------------------------


async def back(person: SocketHarness) -> SocketHarness:
    """The next process."""
    later = SocketHarness(notes=person.notes, slack=person.slack)
    await later.start()
    return later


@pytest.mark.parametrize("is_shown_again", [False, True])
async def test_the_stream_of_a_process_that_died_is_replaced_by_the_next_one(
    person: SocketHarness, is_shown_again: bool
) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The answ")
    async with running(later := await back(person)):
        if is_shown_again:
            await show(later, message, "The ans")
            assert shown(person) == ["The ans"]
        await soon(later.adapter.send(message))
    assert shown(person) == [ANSWER]


async def test_after_a_restart_nobody_seems_to_be_writing(person: SocketHarness) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The answ")
        assert person.slack.open_streams()
    async with running(later := await back(person)):
        await person.slack.until(lambda: not person.slack.open_streams())
        assert await soon(later.adapter.find_sent(message)) is None
        await soon(later.adapter.send(message))
    assert shown(person) == [ANSWER]


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_stream_whose_id_was_never_heard_is_found_and_replaced(person: SocketHarness, has_ended: bool) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        person.slack.fail("chat.startStream", Fault(drop="after"))
        await show(person, message, "The", "The answer")
        assert shown(person) == ["The"], "nothing is shown twice"
    if has_ended:
        person.slack.end_streams()
    async with running(later := await back(person)):
        await soon(later.adapter.send(message))
    assert shown(person) == [ANSWER]


async def test_a_stream_that_never_began_is_not_looked_for_in_others(person: SocketHarness) -> None:
    async with running(person) as inbox:
        question = await asked(person, inbox)
        message = reply(person, question)
        person.slack.fail("chat.startStream", Fault(drop="before"))
        await show(person, message, "The")
        other = replace(reply(person, question, "Another."), id="another")
        await show(person, other, "Ano")
        await soon(person.adapter.send(message))
        await soon(person.adapter.send(other))
    assert sorted(shown(person)) == ["Another.", ANSWER]


@pytest.mark.parametrize("drop", ["before", "after"])
async def test_a_process_that_died_while_it_ended_a_stream_leaves_one_answer(person: SocketHarness, drop: str) -> None:
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox))
        await show(person, message, "The")
        person.slack.fail("chat.stopStream", Fault(drop=drop))
        with pytest.raises(TransientSendError):
            await soon(person.adapter.send(message))
    async with running(later := await back(person)):
        found = await soon(later.adapter.find_sent(message))
        assert found is None or shown(person) == [ANSWER]
        await soon(later.adapter.send(message))
    assert shown(person) == [ANSWER]


async def test_a_withdrawal_waits_for_the_preview_that_is_on_its_way(person: SocketHarness) -> None:
    async with running(person) as inbox:
        for fault in (Fault(gate=asyncio.Event()), Fault(drop="after")):
            message = reply(person, await asked(person, inbox))
            person.slack.fail("chat.startStream", fault)
            previewing = asyncio.create_task(person.adapter.preview(replace(message, text="The")))
            await person.slack.until(lambda: methods(person)[-1:] == ["startStream"])
            previewing.cancel()
            withdrawing = asyncio.create_task(person.adapter.preview(replace(message, text="")))
            if fault.gate is not None:
                fault.gate.set()
            await soon(withdrawing)
            assert shown(person) == []


async def test_an_uncertain_post_after_a_stream_is_not_repeated(person: SocketHarness) -> None:
    long = "The quick brown fox.\n" * 1200
    async with running(person) as inbox:
        message = reply(person, await asked(person, inbox), long)
        await show(person, message, "The quick")
        person.slack.fail("chat.postMessage", Fault(drop="after"))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
        await soon(person.adapter.find_sent(message))
        await soon(person.adapter.send(message))
    assert "".join(shown(person)) == long
