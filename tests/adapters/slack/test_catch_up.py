"""What was written while we were away is fetched, once, from the conversations that we know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from gateway.errors import StoreUnavailable
from gateway.testing.adapters import Inbox, running, soon
from tests.adapters.slack.fake_slack import ADA, BOT_USER, DIRECT, GENERAL, Fault
from tests.adapters.slack.harness import SocketHarness


async def back(person: SocketHarness, **settings: float) -> SocketHarness:
    """The same gateway, started again."""
    later = SocketHarness(notes=person.notes, slack=person.slack, **settings)
    await later.start()
    return later


async def met(person: SocketHarness) -> str:
    """Let the bot get to know the direct chat, the channel and a thread in it; returns the thread."""
    slack = person.slack
    mention = slack.write(GENERAL, f"<@{BOT_USER}> hello")
    async with running(person) as inbox:
        await person.person_says("before")
        await slack.acknowledgement(await slack.deliver(slack.event(mention, GENERAL)))
        await inbox.has(2)
    return str(mention["ts"])


async def test_messages_mentions_and_threads_of_the_time_between_arrive_once_and_in_order(
    person: SocketHarness,
) -> None:
    """Row 11."""
    thread, slack = await met(person), person.slack
    slack.page_size = 2
    slack.write(DIRECT, "first")
    slack.write(DIRECT, "from a bot", bot_id="B1", user="U1")
    slack.write(DIRECT, "second", subtype="file_share", files=[slack.add_file(b"x")])
    slack.write(GENERAL, "not for us")
    slack.write(GENERAL, f"<@{BOT_USER}> a new question")
    slack.write(GENERAL, f"<@{BOT_USER}> in the old thread", thread_ts=thread)
    async with running(later := await back(person)) as inbox:
        found = await inbox.has(4)
    texts = {
        where: [each.text for each in found if each.conversation.conversation == where] for where in (DIRECT, GENERAL)
    }
    assert texts == {DIRECT: ["first", "second"], GENERAL: ["a new question", "in the old thread"]}
    assert next(each for each in found if each.text == "in the old thread").conversation.thread == thread
    async with running(later) as inbox:
        await later.person_says("now")
        assert [each.text for each in await inbox.has(1)] == ["now"]
        assert inbox.tries == 1, "nothing comes twice"


@pytest.mark.parametrize("where", [DIRECT, GENERAL])
async def test_what_is_written_at_the_start_comes_behind_what_was_missed(person: SocketHarness, where: str) -> None:
    await met(person)
    slack, gate = person.slack, asyncio.Event()
    slack.write(where, f"<@{BOT_USER}> A")
    slack.fail("conversations.history", *[Fault(gate=gate)] * 2)
    async with running(await back(person)) as inbox:
        envelopes = [
            await slack.deliver(slack.event(slack.write(where, f"<@{BOT_USER}> {text}"), where)) for text in "BC"
        ]
        await slack.ping()
        assert inbox.tries == 0
        gate.set()
        for each in envelopes:
            await slack.acknowledgement(each)
        texts = [each.text for each in inbox.messages if each.conversation.conversation == where]
    assert list(dict.fromkeys(texts)) == ["A", "B", "C"]


async def test_a_first_mention_at_the_start_comes_behind_one_that_was_missed_in_that_channel(
    person: SocketHarness,
) -> None:
    async with running(person) as inbox:
        await person.person_says("before")
        await inbox.has(1)
    slack = person.slack
    slack.write(GENERAL, f"<@{BOT_USER}> A")
    slack.fail("users.conversations", *[Fault(error="internal_error")] * 5)
    async with running(await back(person)) as inbox:
        event = slack.event(slack.write(GENERAL, f"<@{BOT_USER}> B"), GENERAL)
        await slack.acknowledgement(await slack.deliver(event))
        assert [each.text for each in inbox.messages][:2] == ["A", "B"]


async def test_a_message_waits_for_what_was_missed_no_longer_than_slack_waits(
    person: SocketHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await met(person)
    monkeypatch.setattr("adapters.slack.inbound._MAX_WAIT_S", 0.01)
    slack, gate = person.slack, asyncio.Event()
    slack.write(DIRECT, "A")
    slack.fail("conversations.history", *[Fault(gate=gate)] * 2)
    async with running(await back(person)) as inbox:
        await slack.acknowledgement(await slack.deliver(slack.event(slack.write(DIRECT, "B"))))
        assert [each.text for each in inbox.messages] == ["B"]
        gate.set()
        await inbox.has(3)


async def test_a_message_that_was_delivered_has_the_same_id_when_it_is_fetched(person: SocketHarness) -> None:
    await met(person)
    event = person.slack.event(person.slack.write(DIRECT, "hello", client_msg_id="c0ffee"))
    async with running(await back(person)) as inbox:
        await inbox.has(1)
        await person.slack.acknowledgement(await person.slack.deliver(event))
        fetched, delivered = await inbox.has(2)
    assert fetched == delivered


async def test_replies_in_a_thread_of_a_message_that_we_have_not_seen_are_found_too(person: SocketHarness) -> None:
    await met(person)
    parent = person.slack.write(GENERAL, "what is it?")
    reply = person.slack.write(GENERAL, f"<@{BOT_USER}> do you know?", thread_ts=parent["ts"])
    parent |= {"thread_ts": parent["ts"], "latest_reply": reply["ts"], "reply_count": 1}
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["do you know?"]


async def test_a_message_that_could_not_be_kept_is_fetched_although_later_ones_were_kept(
    person: SocketHarness,
) -> None:
    async with running(person) as inbox:
        await person.person_says("before")
        await inbox.has(1)
        inbox.failure = StoreUnavailable("the disk is full")
        await person.person_says("lost?")
        await inbox.tried(2)
        inbox.failure = None
        await soon(person.wait_acknowledged(await person.person_says("after")))
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(2)] == ["lost?", "after"]


async def test_after_a_short_break_of_the_line_what_was_kept_before_is_not_kept_again(person: SocketHarness) -> None:
    async with running(person) as inbox:
        await person.person_says("before")
        await inbox.has(1)
        await person.drop_connection()
        person.slack.write(DIRECT, "in the gap")
        assert [each.text for each in await inbox.has(2)] == ["before", "in the gap"]


@pytest.mark.parametrize(("catch_up_h", "expected"), [(0.0, []), (1.0, ["fresh"]), (200.0, ["old", "fresh"])])
async def test_how_far_back_is_a_setting(person: SocketHarness, catch_up_h: float, expected: list[str]) -> None:
    await met(person)
    slack = person.slack
    days_ago = f"{slack._start_s - 3 * 86_400}.000001"
    slack.channels[DIRECT] = {
        ts: {"type": "message", "user": ADA, "text": text, "ts": ts}
        for ts, text in ((days_ago, "old"), (slack.new_ts(), "fresh"))
    }
    known = json.loads(person.notes.texts[f"conversation/{DIRECT}"])
    person.notes.texts[f"conversation/{DIRECT}"] = json.dumps({**known, "ts": f"{slack._start_s - 5 * 86_400}.000001"})
    async with running(later := await back(person, catch_up_h=catch_up_h)) as inbox:
        await inbox.has(len(expected))
        await later.person_says("now")
        assert [each.text for each in await inbox.has(len(expected) + 1)] == [*expected, "now"]


async def test_a_channel_that_is_gone_is_forgotten_and_the_others_are_read(person: SocketHarness) -> None:
    await met(person)
    del person.slack.channels[GENERAL]
    person.slack.write(DIRECT, "still here")
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["still here"]
    assert f"conversation/{GENERAL}" not in person.notes.texts


async def test_a_thread_that_is_gone_keeps_nothing_of_its_channel_from_being_read(person: SocketHarness) -> None:
    """https://docs.slack.dev/reference/methods/conversations.replies#errors: `thread_not_found`."""
    thread, slack = await met(person), person.slack
    slack.write(GENERAL, f"<@{BOT_USER}> missed")
    slack.fail("conversations.replies", Fault(error="thread_not_found"))
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["missed"]
    assert f"conversation/{GENERAL}" in person.notes.texts
    assert f"thread/{GENERAL}/{thread}" not in person.notes.texts


async def test_what_could_not_be_fetched_is_fetched_later_whatever_came_in_the_meantime(
    person: SocketHarness,
) -> None:
    await met(person)
    person.slack.write(DIRECT, "missed")
    person.slack.fail("conversations.history", *[Fault(status=500, error="internal_error")] * 3)
    async with running(later := await back(person)) as inbox:
        await later.person_says("now")
        assert [each.text for each in await inbox.has(1)] == ["now"]
    person.slack.recover()
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(2)] == ["missed", "now"]


async def test_catching_up_is_tried_again_by_itself(person: SocketHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.slack.adapter._FIRST_RETRY_S", 0.0)
    await met(person)
    person.slack.write(DIRECT, "missed")
    person.slack.fail("conversations.history", *[Fault(status=500, error="internal_error")] * 3)
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["missed"]


async def test_calls_that_read_wait_when_slack_says_so_and_are_made_again(person: SocketHarness) -> None:
    await met(person)
    person.slack.write(DIRECT, "missed")
    person.slack.fail("conversations.history", Fault(status=429, error="ratelimited", retry_after_s=0))
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["missed"]


async def test_an_entry_of_the_history_that_is_no_message_is_passed_over(person: SocketHarness) -> None:
    await met(person)
    person.slack.write(DIRECT, "poisoned", files=[{"mode": "hosted"}])
    person.slack.write(DIRECT, "sound")
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["sound"]


async def test_what_is_fetched_stays_in_line_behind_what_is_being_kept(person: SocketHarness) -> None:
    await met(person)
    person.slack.write(DIRECT, "missed")
    inbox = Inbox()
    inbox.gate.clear()
    async with running(await back(person), inbox):
        await inbox.tried(1)
        waiting = asyncio.create_task(inbox.has(1))
        inbox.gate.set()
        assert [each.text for each in await soon(waiting)] == ["missed"]


# ---- where nobody has spoken to us yet ------------------------------------------------------------------------------

NEW = "C0OTHER"


async def away_for_an_hour(person: SocketHarness) -> None:
    """The gateway was there until an hour ago, and knows the direct chat, the channel and a thread."""
    await met(person)
    slack = person.slack
    assert "alive" in person.notes.texts
    person.notes.texts["alive"] = f"{slack._start_s}.500000"
    slack._start_s += 3600


async def test_a_first_mention_in_a_channel_during_an_hour_of_our_absence_is_found(person: SocketHarness) -> None:
    await away_for_an_hour(person)
    person.slack.page_size = 1
    person.slack.write(NEW, "just talk")
    parent = person.slack.write(NEW, "a question")
    first = person.slack.write(NEW, f"<@{BOT_USER}> are you there?")
    reply = person.slack.write(NEW, f"<@{BOT_USER}> and here?", thread_ts=parent["ts"])
    parent |= {"thread_ts": parent["ts"], "latest_reply": reply["ts"], "reply_count": 1}
    person.slack.channels["D0BOB"] = {}
    person.slack.write("D0BOB", "hello, whoever you are", user="U0BOB")
    async with running(later := await back(person)) as inbox:
        found = await inbox.has(3)
        assert {each.text for each in found} == {"are you there?", "and here?", "hello, whoever you are"}
        assert next(each for each in found if each.text == "are you there?").conversation.thread == first["ts"]
        direct = next(each for each in found if each.conversation.conversation == "D0BOB")
        assert direct.is_direct
        assert f"conversation/{NEW}" in later.notes.texts, "the channel is known from now on"
        await later.person_says("now")
        await inbox.has(4)
        assert inbox.tries == 4, "nothing comes twice"


async def test_what_is_older_than_our_absence_is_not_looked_for(person: SocketHarness) -> None:
    person.slack.write(NEW, f"<@{BOT_USER}> long ago")
    person.slack._start_s += 3600
    await away_for_an_hour(person)
    async with running(later := await back(person)) as inbox:
        await later.person_says("now")
        assert [each.text for each in await inbox.has(1)] == ["now"]


async def test_at_the_first_start_nothing_is_looked_for(person: SocketHarness) -> None:
    person.slack.write(NEW, f"<@{BOT_USER}> before you were there")
    async with running(person) as inbox:
        await person.person_says("now")
        assert [each.text for each in await inbox.has(1)] == ["now"]
        await person.slack.until(lambda: "alive" in person.notes.texts)
    assert not person.slack.called("users.conversations")


async def test_without_the_permission_to_list_channels_the_known_ones_are_read(
    person: SocketHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await away_for_an_hour(person)
    person.slack.scopes.discard("groups:read")
    person.slack.write(NEW, f"<@{BOT_USER}> are you there?")
    person.slack.write(DIRECT, "missed")
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["missed"]
        await soon(until(person, lambda: caplog.text))
    assert "missing_scope (reinstall the app with the scopes of the manifest)" in caplog.text


async def until(person: SocketHarness, is_so: Callable[[], object]) -> None:
    while not is_so():
        await person.settle()


async def test_people_of_other_organisations_are_not_heard_there_either(person: SocketHarness) -> None:
    await away_for_an_hour(person)
    person.slack.shared.add(NEW)
    person.slack.write(NEW, f"<@{BOT_USER}> let me in", user_team="T0ELSEWHERE")
    person.slack.write(NEW, f"<@{BOT_USER}> hello", user_team="T0HOME")
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["hello"]


async def test_a_search_that_was_cut_off_begins_again_where_it_began(person: SocketHarness) -> None:
    await away_for_an_hour(person)
    person.slack.write(NEW, f"<@{BOT_USER}> are you there?")
    gate = asyncio.Event()
    person.slack.fail("users.conversations", Fault(gate=gate))
    async with running(later := await back(person)) as inbox:
        await person.slack.until(lambda: person.slack.called("users.conversations"))
        event = person.slack.event(person.slack.write(NEW, f"<@{BOT_USER}> hello?"), NEW)
        await later.deliver(event)
        await inbox.has(1)
        await later.adapter._catch_up.note_alive()
    gate.set()
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(2)] == ["are you there?", "hello?"]
        await soon(until(person, lambda: "searching" not in person.notes.texts))


async def test_as_long_as_we_have_not_caught_up_our_absence_goes_on(person: SocketHarness) -> None:
    await away_for_an_hour(person)
    before, gate = person.notes.texts["alive"], asyncio.Event()
    person.slack.fail("conversations.history", Fault(gate=gate))
    async with running(later := await back(person)):
        await person.slack.until(lambda: person.slack.calls[-1][0] == "conversations.history")
        await later.adapter._catch_up.note_alive()
        assert person.notes.texts["alive"] == before
        gate.set()
        await soon(until(person, lambda: person.notes.texts["alive"] != before))


async def test_a_channel_that_cannot_be_read_keeps_no_other_from_being_searched(
    person: SocketHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await away_for_an_hour(person)
    person.slack.write(NEW, f"<@{BOT_USER}> are you there?")
    person.slack.channels = {"C0LOCKED": {}, **person.slack.channels}
    fine = [Fault()] * 3  # the direct chat, the channel and its thread, which are known
    person.slack.fail("conversations.history", *fine[:2], Fault(error="not_in_channel"))
    async with running(await back(person)) as inbox:
        assert [each.text for each in await inbox.has(1)] == ["are you there?"]
    assert "cannot be fetched now" not in caplog.text
