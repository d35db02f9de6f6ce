"""How updates come by long polling: nothing is confirmed too early, nothing is lost, nothing turns in circles."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from adapters.telegram.adapter import TelegramAdapter
from gateway.errors import AdapterAuthFailed, AdapterNotReady, StoreUnavailable
from gateway.messages import InboundMessage
from gateway.testing.adapters import Inbox, soon
from tests.adapters.telegram.fake_telegram import GROUP, PERSON, TOKEN, FakeTelegram, Fault, flood, refusal
from tests.adapters.telegram.harness import adapter_of, client_of, event_id_of
from tests.conformance.notes import FakeNotes


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram()
    await telegram.start()
    yield telegram
    await telegram.stop()


@contextlib.asynccontextmanager
async def receiving(adapter: TelegramAdapter, inbox: Inbox) -> AsyncIterator[asyncio.Task[None]]:
    """Connected once and running, not connected anew: `run` may end."""
    await soon(adapter.connect())
    task = asyncio.create_task(adapter.run(inbox.accept))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        await soon(adapter.close())


async def ended(task: asyncio.Task[None]) -> BaseException:
    await asyncio.wait([task], timeout=60)
    assert task.done(), "run goes on"
    error = task.exception()
    assert error is not None
    return error


# ---- what is confirmed, and when ------------------------------------------------------------------------------------


async def test_a_batch_is_confirmed_only_after_all_of_it_was_accepted(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    updates = [telegram.update(telegram.message(f"{n}", chat={"id": 40 + n, "type": "private"})) for n in range(3)]
    telegram.pending += updates
    inbox.gate.clear()
    async with receiving(adapter_of(telegram), inbox):
        await inbox.tried(3)
        assert telegram.polls == 1
        assert telegram.confirmed == set()
        inbox.gate.set()
        await telegram.until(lambda: len(telegram.confirmed) == 3)


async def test_an_offset_is_sent_once_so_that_numbers_which_begin_anew_are_not_passed_over(
    telegram: FakeTelegram,
) -> None:
    inbox = Inbox()
    async with receiving(adapter_of(telegram, client=client_of(telegram, poll_timeout_s=0.6)), inbox):
        await telegram.say("before a quiet week")
        await telegram.until(lambda: telegram.polls >= 3)
        telegram._next_update = 17
        await telegram.say("after it")
        assert [message.text for message in await inbox.has(2)] == ["before a quiet week", "after it"]
    offsets = [asked.get("offset") for asked in telegram.called("getUpdates")]
    assert offsets[0] is None
    assert offsets[1] == "700000002"
    assert offsets[2] is None


async def test_a_lost_confirmation_is_sent_again(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    async with receiving(adapter_of(telegram), inbox):
        await telegram.until(lambda: telegram.polls == 1)
        telegram.faults["getUpdates"].append(Fault())
        await telegram.say("hello")
        await telegram.until(lambda: len(telegram.confirmed) == 1)
        assert len(inbox.messages) == 1


async def test_after_a_restart_what_was_not_confirmed_comes_again_with_the_same_id(telegram: FakeTelegram) -> None:
    first, second = Inbox(), Inbox()
    update = await telegram.say("hello")
    first.failure = RuntimeError("the disk is full")
    async with receiving(adapter_of(telegram), first) as task:
        assert isinstance(await ended(task), AdapterNotReady)
    async with receiving(adapter_of(telegram), second):
        assert (await second.has(1))[0].event_id == event_id_of(update)


async def test_what_was_not_accepted_comes_again_at_the_next_connection_with_all_of_its_batch(
    telegram: FakeTelegram,
) -> None:
    inbox, adapter = Inbox(), adapter_of(telegram)
    telegram.pending += [telegram.update(telegram.message(text)) for text in ("one", "two", "three")]

    async def accept(message: InboundMessage) -> None:
        if message.text == "two" and inbox.failure is None:
            inbox.failure = StoreUnavailable("the disk is full")
            raise inbox.failure
        inbox.messages.append(message)
        await telegram.notify()

    await adapter.connect()
    with pytest.raises(AdapterNotReady, match="disk is full"):
        await soon(adapter.run(accept))
    assert telegram.confirmed == set()
    await adapter.connect()
    task = asyncio.create_task(adapter.run(accept))
    await telegram.until(lambda: len(telegram.confirmed) == 3)
    task.cancel()
    await asyncio.wait([task])
    await adapter.close()
    assert [message.text for message in inbox.messages] == ["one", "one", "two", "three"]


async def test_what_waits_from_a_downtime_is_fetched_in_order_in_batches(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    telegram.pending += [telegram.update(telegram.message(f"{number}")) for number in range(250)]
    async with receiving(adapter_of(telegram), inbox):
        assert [message.text for message in await inbox.has(250)] == [f"{number}" for number in range(250)]
    assert telegram.polls >= 3


async def test_chats_do_not_wait_for_one_another(telegram: FakeTelegram) -> None:
    inbox, slow = Inbox(), asyncio.Event()

    async def accept(message: InboundMessage) -> None:
        if message.text == "slow":
            await slow.wait()
        await inbox.accept(message)

    telegram.pending += [
        telegram.update(telegram.message(text, chat={"id": chat, "type": "private"}))
        for chat, text in ((41, "slow"), (41, "behind it"), (43, "quick"))
    ]
    adapter = adapter_of(telegram)
    await adapter.connect()
    task = asyncio.create_task(adapter.run(accept))
    assert [message.text for message in await inbox.has(1)] == ["quick"]
    slow.set()
    assert [message.text for message in (await inbox.has(3))[1:]] == ["slow", "behind it"]
    task.cancel()
    await asyncio.wait([task])
    await adapter.close()


async def test_only_messages_and_presses_are_asked_for(telegram: FakeTelegram) -> None:
    async with receiving(adapter_of(telegram), Inbox()):
        await telegram.until(lambda: telegram.polls == 1)
    assert telegram.called("getUpdates")[0]["allowed_updates"] == ["message", "callback_query"]


# ---- what cannot be read --------------------------------------------------------------------------------------------


async def test_one_update_that_cannot_be_read_is_passed_over_with_one_word_and_those_behind_it_arrive(
    telegram: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    bad = telegram.update({"message_id": "no number", "from": PERSON, "chat": {"id": 42}, "secret words": 1})
    telegram.pending += [
        telegram.update(telegram.message("before")),
        bad,
        telegram.update({"from": 5}),
        telegram.update(telegram.message("after")),
    ]
    async with receiving(adapter_of(telegram), inbox):
        assert [message.text for message in await inbox.has(2)] == ["before", "after"]
        await telegram.until(lambda: len(telegram.confirmed) == 4)
        assert telegram.polls <= 3
    told = [record for record in caplog.records if "cannot be read" in record.message]
    assert len(told) == 2
    assert str(bad["update_id"]) in told[0].message
    assert "secret words" not in caplog.text


async def test_what_is_no_update_at_all_does_no_harm(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    body = {"ok": True, "result": [None, 7, {"no": "number"}, telegram.update(telegram.message("hello"))]}
    telegram.faults["getUpdates"].append(Fault(200, json.dumps(body).encode()))
    async with receiving(adapter_of(telegram), inbox):
        assert [message.text for message in await inbox.has(1)] == ["hello"]


@pytest.mark.parametrize("body", [b"<html>sign in to the hotel's network</html>", b"[]", b'{"ok": true}', b""])
async def test_an_answer_of_somebody_else_is_not_taken_for_telegrams(telegram: FakeTelegram, body: bytes) -> None:
    telegram.faults["getUpdates"] += [Fault(200, body)] * 3
    async with receiving(adapter_of(telegram), Inbox()) as task:
        assert isinstance(await ended(task), AdapterNotReady)


async def test_empty_answers_without_end_are_noticed(telegram: FakeTelegram) -> None:
    telegram.faults["getUpdates"] += [Fault(200, b'{"ok": true, "result": []}')] * 50
    async with receiving(adapter_of(telegram), Inbox()) as task:
        assert isinstance(await ended(task), AdapterNotReady)
    assert telegram.called("getUpdates") != []
    assert len(telegram.called("getUpdates")) < 20


# ---- trouble on the line --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 404])
async def test_a_token_that_was_revoked_ends_it_for_good(telegram: FakeTelegram, status: int) -> None:
    async with receiving(adapter_of(telegram), Inbox()) as task:
        await telegram.until(lambda: telegram.polls == 1)
        telegram.faults["getUpdates"].append(refusal(status, "Unauthorized"))
        await telegram.say("hello")
        error = await ended(task)
    assert isinstance(error, AdapterAuthFailed)
    assert TOKEN not in repr(error)


async def test_two_processes_with_one_token_are_told_so(telegram: FakeTelegram) -> None:
    async with receiving(adapter_of(telegram), Inbox()) as first:
        await telegram.until(lambda: telegram.polls == 1)
        other = client_of(telegram, poll_timeout_s=0.1)
        await other.open()
        await other.get_updates(None)
        await other.close()
        error = await ended(first)
    assert isinstance(error, AdapterNotReady)
    assert "another process" in str(error)


async def test_a_pause_that_telegram_asks_for_is_passed_on(telegram: FakeTelegram) -> None:
    telegram.faults["getUpdates"].append(flood(17))
    async with receiving(adapter_of(telegram), Inbox()) as task:
        error = await ended(task)
    assert isinstance(error, AdapterNotReady)
    assert error.retry_after_s == 17


async def test_one_5xx_is_borne_and_two_in_a_row_are_reported(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    gateway_error = Fault(502, b"<html><h1>502 Bad Gateway</h1></html>")
    telegram.faults["getUpdates"] += [gateway_error]
    async with receiving(adapter_of(telegram), inbox) as task:
        await telegram.say("hello")
        await inbox.has(1)
        telegram.faults["getUpdates"] += [gateway_error, gateway_error]
        telegram.drop_polls()
        assert isinstance(await ended(task), AdapterNotReady)


async def test_a_connection_that_is_open_only_on_our_side_is_cut(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    telegram.faults["getUpdates"].append(Fault(is_hanging=True))
    client = client_of(telegram, poll_timeout_s=0.1, poll_grace_s=1.0)
    async with receiving(adapter_of(telegram, client=client), inbox):
        await telegram.say("hello")
        await inbox.has(1)


async def test_a_stop_does_not_wait_for_the_long_poll(telegram: FakeTelegram) -> None:
    adapter = adapter_of(telegram, client=client_of(telegram, poll_timeout_s=600.0))
    await adapter.connect()
    task = asyncio.create_task(adapter.run(Inbox().accept))
    await telegram.until(lambda: telegram.polls == 1)
    task.cancel()
    await soon(asyncio.wait([task]))
    assert task.cancelled()
    await soon(adapter.close())


async def test_a_server_of_ones_own_on_this_machine_is_not_looked_for_behind_a_proxy(
    telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    inbox = Inbox()
    async with receiving(adapter_of(telegram), inbox):
        await telegram.say("hello")
        await inbox.has(1)


async def test_a_server_that_restarts_is_survived(telegram: FakeTelegram) -> None:
    inbox, adapter = Inbox(), adapter_of(telegram)
    async with receiving(adapter, inbox) as task:
        await telegram.until(lambda: telegram.polls == 1)
        await telegram.stop()
        assert isinstance(await ended(task), AdapterNotReady)
        await telegram.start()
        await telegram.say("hello")
        await adapter.connect()
        again = asyncio.create_task(adapter.run(inbox.accept))
        await inbox.has(1)
        again.cancel()
        await asyncio.wait([again])


async def test_a_webhook_that_was_set_before_is_removed_and_what_waits_is_kept(telegram: FakeTelegram) -> None:
    telegram.webhook = {"url": "https://elsewhere.example"}
    inbox = Inbox()
    await telegram.say("hello")
    async with receiving(adapter_of(telegram), inbox):
        await inbox.has(1)
    assert telegram.called("deleteWebhook")[0].get("drop_pending_updates") is None


# ---- groups that are upgraded ---------------------------------------------------------------------------------------


async def test_an_upgraded_group_goes_on_as_the_same_conversation_also_after_a_restart(telegram: FakeTelegram) -> None:
    notes, inbox = FakeNotes(), Inbox()
    old = {"id": -55, "type": "group", "title": "Engines"}
    telegram.pending += [
        telegram.update(telegram.message("before", chat=old)),
        telegram.update(telegram.message(chat=old, migrate_to_chat_id=GROUP["id"])),
        telegram.update(telegram.message(chat=GROUP, migrate_from_chat_id=-55)),
    ]
    async with receiving(adapter_of(telegram, notes), inbox):
        await inbox.has(1)
        await telegram.until(lambda: len(telegram.confirmed) == 3)
        await telegram.say("after", chat=GROUP)
        await telegram.until(lambda: len(telegram.confirmed) == 4)
    async with receiving(adapter_of(telegram, notes), inbox):
        await telegram.say("later", chat=GROUP)
        await inbox.has(3)
    assert {message.conversation.conversation for message in inbox.messages} == {"-55"}
    assert [message.text for message in inbox.messages] == ["before", "after", "later"]


# ---- being away -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "is_told"), [(30, True), (20, False), (None, False)])
async def test_being_away_for_longer_than_telegram_keeps_messages_is_told(
    telegram: FakeTelegram, caplog: pytest.LogCaptureFixture, hours: int | None, is_told: bool
) -> None:
    notes = FakeNotes()
    if hours is not None:
        await notes.put("caught_up", (datetime.now(UTC) - timedelta(hours=hours)).isoformat())
    async with receiving(adapter_of(telegram, notes, client=client_of(telegram, poll_timeout_s=0.01)), Inbox()):
        await telegram.until(lambda: telegram.polls >= 2)
    assert ("are lost" in caplog.text) == is_told
    assert datetime.now(UTC) - datetime.fromisoformat(notes.texts["caught_up"]) < timedelta(minutes=1)


async def test_nothing_of_the_library_reaches_the_log(telegram: FakeTelegram, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    telegram.faults["getUpdates"].append(Fault(502, b"<html>trouble</html>"))
    inbox = Inbox()
    async with receiving(adapter_of(telegram), inbox):
        await telegram.say("hello")
        await inbox.has(1)
    assert TOKEN not in caplog.text
    assert "trouble" not in caplog.text
