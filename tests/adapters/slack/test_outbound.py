"""Answers: every piece once, whatever breaks on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.errors import PermanentSendError, TransientSendError, UncertainSendError
from gateway.messages import Action, ConversationRef, OutboundMessage
from gateway.testing.adapters import answer, running, soon
from tests.adapters.slack.fake_slack import BOT_USER, DIRECT, GENERAL, Fault, read
from tests.adapters.slack.harness import NAME, SocketHarness

LONG = "The quick brown fox jumps over the lazy dog.\n" * 800  # four pieces


def shown(person: SocketHarness, channel: str = DIRECT) -> list[str]:
    return [read(each) for each in person.slack.ours(channel)]


def in_thread(person: SocketHarness) -> ConversationRef:
    parent = person.slack.write(GENERAL, f"<@{BOT_USER}> what do you think?")
    return ConversationRef(channel=NAME, conversation=GENERAL, thread=parent["ts"])


# ---- what goes wrong ------------------------------------------------------------------------------------------------


async def test_too_many_calls_hold_back_the_conversation_for_as_long_as_slack_says_and_no_other(
    person: SocketHarness,
) -> None:
    async with running(person):
        person.slack.fail("chat.postMessage", Fault(status=429, error="ratelimited", retry_after_s=7))
        with pytest.raises(TransientSendError) as caught:
            await soon(person.adapter.send(answer(person, "held back")))
        assert caught.value.retry_after_s == 7
        await soon(person.adapter.send(answer(person, "goes on", conversation=in_thread(person))))
    assert shown(person, GENERAL) == ["goes on"]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(drop="before"), UncertainSendError),
        (Fault(drop="after"), UncertainSendError),
        (Fault(status=502, html=True), UncertainSendError),
        (Fault(status=503, error="service_unavailable"), UncertainSendError),
        (Fault(error="internal_error"), UncertainSendError),
        (Fault(error="team_added_to_org"), TransientSendError),
        (Fault(error="not_in_channel"), PermanentSendError),
        (Fault(error="is_archived"), PermanentSendError),
        (Fault(error="restricted_action"), PermanentSendError),
    ],
    ids=str,
)
async def test_an_error_says_how_certain_it_is_and_the_call_is_made_once(
    person: SocketHarness, fault: Fault, error: type[Exception]
) -> None:
    async with running(person):
        person.slack.fail("chat.postMessage", fault)
        with pytest.raises(error):
            await soon(person.adapter.send(answer(person, "hello")))
        assert len(person.slack.called("chat.postMessage")) == 1


async def test_slack_out_of_reach_has_certainly_nothing(person: SocketHarness) -> None:
    await soon(person.adapter.connect())
    await person.slack.stop()
    with pytest.raises(UncertainSendError):  # on the connection that was open; who knows how far it got
        await soon(person.adapter.send(answer(person, "hello")))
    with pytest.raises(TransientSendError):
        await soon(person.adapter.send(answer(person, "hello")))


async def test_a_send_before_connect_has_certainly_done_nothing(person: SocketHarness) -> None:
    with pytest.raises(TransientSendError):
        await soon(person.adapter.send(answer(person, "hello")))


@pytest.mark.parametrize("is_in_thread", [False, True])
async def test_a_message_that_arrived_although_the_line_broke_is_found_and_not_sent_again(
    person: SocketHarness, is_in_thread: bool
) -> None:
    async with running(person):
        conversation = in_thread(person) if is_in_thread else person.conversation
        message = answer(person, "once", conversation=conversation)
        person.slack.fail("chat.postMessage", Fault(drop="after"))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
        found = await soon(person.adapter.find_sent(message))
    ours = person.slack.ours(conversation.conversation)
    assert found is not None
    assert found.message_ids == tuple(each["ts"] for each in ours)
    assert [read(each) for each in ours] == ["once"]


async def test_a_message_that_did_not_arrive_is_not_found_and_is_then_sent_once(person: SocketHarness) -> None:
    async with running(person):
        message = answer(person, "once")
        person.slack.fail("chat.postMessage", Fault(drop="before"))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
        assert await soon(person.adapter.find_sent(message)) is None
        await soon(person.adapter.send(message))
    assert shown(person) == ["once"]


async def test_it_is_found_behind_many_others_and_whoever_copies_its_metadata_is_not_taken_for_it(
    person: SocketHarness,
) -> None:
    person.slack.page_size = 3
    async with running(person):
        message = answer(person, "once")
        await soon(person.adapter.send(message))
        copied = person.slack.ours()[0]["metadata"]
        for number in range(10):
            person.slack.write(DIRECT, f"{number}", metadata=copied)
        found = await soon(person.adapter.find_sent(message))
        assert found is not None
        assert found.message_ids == (person.slack.ours()[0]["ts"],)
        never = answer(person, "never sent")
        assert await soon(person.adapter.find_sent(never)) is None
        payload = {**copied["event_payload"], "outbox_id": never.id}
        person.slack.write(DIRECT, "forged", metadata={**copied, "event_payload": payload})
        assert await soon(person.adapter.find_sent(never)) is None


async def test_when_nobody_can_be_asked_the_message_waits(person: SocketHarness) -> None:
    async with running(person):
        person.slack.fail("conversations.history", *[Fault(status=500, error="internal_error")] * 5)
        with pytest.raises(TransientSendError):
            await soon(person.adapter.find_sent(answer(person, "hello")))


async def test_without_the_permission_to_look_an_answer_is_sent_rather_than_lost(person: SocketHarness) -> None:
    async with running(person):
        person.slack.scopes -= {scope for scope in person.slack.scopes if scope.endswith(":history")}
        assert await soon(person.adapter.find_sent(answer(person, "hello"))) is None


async def test_without_metadata_in_the_history_a_message_is_known_by_its_words(person: SocketHarness) -> None:
    async with running(person):
        person.slack.scopes.discard("metadata.message:read")
        await soon(person.adapter.send(answer(person, "**once** & again")))
        question = person.slack.write(DIRECT, "once more?")
        message = replace(answer(person, "**once** & again"), reply_to=question["ts"])
        person.slack.fail("chat.postMessage", Fault(drop="after"))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
        found = await soon(person.adapter.find_sent(message))
    assert found is not None
    assert found.message_ids == (person.slack.ours()[1]["ts"],)
    assert len(person.slack.ours()) == 2


@pytest.mark.parametrize("scope", ["metadata", "history"])
async def test_where_nobody_can_tell_whether_a_message_is_there_it_is_repeated_as_such(
    person: SocketHarness, scope: str
) -> None:
    async with running(person):
        person.slack.scopes -= {each for each in person.slack.scopes if scope in each}
        question = person.slack.write(DIRECT, "what is it?")
        message = replace(answer(person, "It is :tea:"), reply_to=question["ts"])
        person.slack.fail("chat.postMessage", Fault(drop="after"))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
        person.slack.ours()[0]["text"] = "It is \u2615"  # as Slack may write it otherwise
        assert await soon(person.adapter.find_sent(message)) is None
        await soon(person.adapter.send(message))
    assert shown(person)[1:] == ["(This may be a repeat.) It is :tea:"]


@pytest.mark.parametrize("drop", ["before", "after"])
async def test_a_long_message_goes_on_where_it_broke_also_after_a_restart(person: SocketHarness, drop: str) -> None:
    message = answer(person, LONG)
    async with running(person):
        person.slack.fail("chat.postMessage", Fault(), Fault(), Fault(drop=drop))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
    later = SocketHarness(notes=person.notes, slack=person.slack)
    await later.start()
    async with running(later):
        assert await soon(later.adapter.find_sent(message)) is None
        receipt = await soon(later.adapter.send(message))
    assert "".join(shown(person)) == LONG
    assert receipt.message_ids == tuple(each["ts"] for each in person.slack.ours())
    assert not [key for key in person.notes.texts if key.startswith("message/")], "nothing is left behind"


async def test_a_long_message_that_was_refused_in_the_middle_goes_on_from_there(person: SocketHarness) -> None:
    message = answer(person, LONG)
    async with running(person):
        person.slack.fail("chat.postMessage", Fault(), Fault(status=429, error="ratelimited", retry_after_s=1))
        with pytest.raises(TransientSendError):
            await soon(person.adapter.send(message))
        await soon(person.adapter.send(message))
    assert "".join(shown(person)) == LONG


async def test_an_empty_message_is_refused(person: SocketHarness) -> None:
    async with running(person):
        with pytest.raises(PermanentSendError):
            await soon(person.adapter.send(answer(person, " \n")))


# ---- what people see ------------------------------------------------------------------------------------------------


async def test_an_answer_goes_into_its_thread_and_slack_fetches_no_address(person: SocketHarness) -> None:
    async with running(person):
        conversation = in_thread(person)
        await soon(person.adapter.send(answer(person, "see https://example.org", conversation=conversation)))
    call = person.slack.called("chat.postMessage")[0]
    assert call["thread_ts"] == conversation.thread
    assert (call["unfurl_links"], call["unfurl_media"]) == (False, False)


async def test_nobody_is_called_by_what_the_model_wrote(person: SocketHarness) -> None:
    text = "<!channel> <!here> <@U0ADA> <#C0GENERAL> `<!everyone>`"
    async with running(person):
        await soon(person.adapter.send(answer(person, text)))
    assert "<" not in person.slack.ours()[0]["text"]
    assert shown(person) == [text]


@pytest.mark.parametrize("code", ["invalid_blocks", "msg_blocks_too_long", "msg_too_long", "no_text"])
async def test_when_the_markup_is_refused_the_plain_text_is_sent(person: SocketHarness, code: str) -> None:
    async with running(person):
        person.slack.fail("chat.postMessage", Fault(error=code))
        await soon(person.adapter.send(answer(person, "**bold** <!channel>")))
        await soon(person.adapter.preview(message := answer(person, "so far")))
        person.slack.fail("chat.update", Fault(error=code))
        await soon(person.adapter.send(replace(message, text="**all**")))
    assert shown(person) == ["**bold** <!channel>", "**all**"]
    assert [each["is_markdown"] for each in person.slack.ours()] == [False, False]
    assert "<" not in person.slack.ours()[0]["text"]


async def test_choices_are_buttons_below_the_last_piece(person: SocketHarness) -> None:
    async with running(person):
        message = replace(answer(person, LONG), actions=(Action(id="stop", label="Stop"),))
        await soon(person.adapter.send(message))
    last = person.slack.ours()[-1]
    assert [block["type"] for block in last["blocks"]] == ["markdown", "actions"]
    assert last["blocks"][1]["elements"][0]["value"] == "stop"
    assert all(not each["blocks"] for each in person.slack.ours()[:-1])


async def test_the_status_is_shown_in_threads_and_its_failure_is_dropped(person: SocketHarness) -> None:
    async with running(person):
        conversation = in_thread(person)
        await soon(person.adapter.show_typing(person.conversation))
        await soon(person.adapter.show_typing(conversation))
        person.slack.fail("assistant.threads.setStatus", Fault(error="internal_error"))
        await soon(person.adapter.show_typing(conversation))
    assert person.slack.statuses == [(GENERAL, conversation.thread, "is thinking…")]


# ---- previews -------------------------------------------------------------------------------------------------------


def grown(message: OutboundMessage, text: str) -> OutboundMessage:
    return replace(message, text=text)


async def test_a_preview_that_is_under_way_when_the_turn_ends_is_replaced_all_the_same(person: SocketHarness) -> None:
    async with running(person):
        message = answer(person, "The answer is 42.")
        gate = asyncio.Event()
        person.slack.fail("chat.postMessage", Fault(gate=gate))
        previewing = asyncio.create_task(person.adapter.preview(grown(message, "The")))
        await person.slack.until(lambda: person.slack.called("chat.postMessage"))
        previewing.cancel()
        await asyncio.wait({previewing})
        sending = asyncio.create_task(person.adapter.send(message))
        calls = len(person.slack.calls)
        for _ in range(5):
            await person.settle()
        assert len(person.slack.calls) == calls, "it waits for what is under way"
        gate.set()
        await soon(sending)
    assert shown(person) == ["The answer is 42."]


async def test_a_preview_whose_answer_got_lost_is_found_and_replaced(person: SocketHarness) -> None:
    async with running(person):
        message = answer(person, "The answer is 42.")
        person.slack.fail("chat.postMessage", Fault(drop="after"))
        await soon(person.adapter.preview(grown(message, "The")))
        await soon(person.adapter.preview(grown(message, "The answer")))
        assert shown(person) == ["The"]
        await soon(person.adapter.send(message))
    assert shown(person) == ["The answer is 42."]


async def test_a_preview_of_a_process_that_died_is_replaced_by_the_next_one(person: SocketHarness) -> None:
    message = answer(person, "The answer is 42.")
    async with running(person):
        await soon(person.adapter.preview(grown(message, "The answ")))
    later = SocketHarness(notes=person.notes, slack=person.slack)
    await later.start()
    async with running(later):
        await soon(later.adapter.preview(grown(message, "The ans")))
        await soon(later.adapter.send(message))
    assert shown(person) == ["The answer is 42."]


async def test_the_end_of_a_longer_preview_is_taken_away(person: SocketHarness) -> None:
    async with running(person):
        message = answer(person, "Short.")
        await soon(person.adapter.preview(grown(message, LONG)))
        assert len(shown(person)) > 1
        person.slack.fail("chat.delete", Fault(status=500, error="internal_error"))
        with pytest.raises(TransientSendError):
            await soon(person.adapter.send(message))
        receipt = await soon(person.adapter.send(message))
    assert shown(person) == ["Short."]
    assert len(receipt.message_ids) == 1


async def test_an_answer_whose_preview_somebody_removed_is_posted_anew(person: SocketHarness) -> None:
    async with running(person):
        message = answer(person, "The answer is 42.")
        await soon(person.adapter.preview(grown(message, "The")))
        del person.slack.channels[DIRECT][person.slack.ours()[0]["ts"]]
        await soon(person.adapter.send(message))
    assert shown(person) == ["The answer is 42."]


async def test_an_edit_that_broke_is_simply_made_again(person: SocketHarness) -> None:
    async with running(person):
        message = answer(person, "The answer is 42.")
        await soon(person.adapter.preview(grown(message, "The")))
        person.slack.fail("chat.update", Fault(drop="after"))
        with pytest.raises(TransientSendError):
            await soon(person.adapter.send(message))
        await soon(person.adapter.send(message))
    assert shown(person) == ["The answer is 42."]


async def test_a_preview_that_is_refused_is_dropped_and_the_answer_is_not(person: SocketHarness) -> None:
    async with running(person):
        message = answer(person, "The answer is 42.")
        person.slack.fail("chat.postMessage", Fault(error="restricted_action"))
        await soon(person.adapter.preview(grown(message, "The")))
        await soon(person.adapter.send(message))
    assert shown(person) == ["The answer is 42."]
    assert not [key for key in person.notes.texts if key.startswith("message/")]


async def test_after_too_many_edits_previews_wait_and_answers_do_not(person: SocketHarness) -> None:
    async with running(person):
        message = answer(person, "The answer is 42.")
        await soon(person.adapter.preview(grown(message, "The")))
        person.slack.fail("chat.update", Fault(status=429, error="ratelimited", retry_after_s=3600))
        await soon(person.adapter.preview(grown(message, "The answer")))
        waiting = asyncio.create_task(person.adapter.preview(grown(message, "The answer is")))
        await soon(person.adapter.send(message))
        assert not waiting.done()
        waiting.cancel()
    assert shown(person) == ["The answer is 42."]
