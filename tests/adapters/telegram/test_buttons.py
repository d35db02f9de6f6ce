"""The choices of an answer as buttons, and what a press becomes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.buttons import Buttons
from gateway.errors import AdapterNotReady, UncertainSendError
from gateway.messages import Action, ConversationRef, OutboundMessage
from gateway.testing.adapters import Inbox, soon
from tests.adapters.telegram.fake_telegram import BOT, GROUP, FakeTelegram, Fault, Json
from tests.adapters.telegram.harness import adapter_of, client_of, direct, event_id_of, group
from tests.conformance.notes import FakeNotes

YES_NO = (Action(id="confirm abc", label="Yes"), Action(id="cancel", label="No"))
LONG = Action(id="personality " + "x" * 100, label="The one with the long name")
_numbers = count(1)


def asked(
    text: str = "Sure?", actions: tuple[Action, ...] = YES_NO, where: ConversationRef | None = None
) -> OutboundMessage:
    return OutboundMessage(id=f"t_{next(_numbers)}.reply", conversation=where or direct(), text=text, actions=actions)


def shown_buttons(telegram: FakeTelegram, chat: int = 42) -> list[list[tuple[str, str]]]:
    """Of the newest message, in rows."""
    keyboard = telegram.bot_messages(chat)[-1].keyboard
    return [[(button["text"], button["callback_data"]) for button in row] for row in keyboard]


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram()
    await telegram.start()
    yield telegram
    await telegram.stop()


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@contextlib.asynccontextmanager
async def receiving(adapter: TelegramAdapter, inbox: Inbox) -> AsyncIterator[asyncio.Task[None]]:
    await soon(adapter.connect())
    task = asyncio.create_task(adapter.run(inbox.accept))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        await soon(adapter.close())


@pytest.fixture
async def adapter(telegram: FakeTelegram, inbox: Inbox) -> AsyncIterator[TelegramAdapter]:
    adapter = adapter_of(telegram)
    async with receiving(adapter, inbox):
        yield adapter


async def answered(telegram: FakeTelegram, update: Json) -> str | None:
    press = update["callback_query"]["id"]
    await telegram.until(lambda: press in telegram.presses)
    return telegram.presses[press]


# ---- out ------------------------------------------------------------------------------------------------------------


async def test_the_choices_are_below_the_last_piece_only(telegram: FakeTelegram, adapter: TelegramAdapter) -> None:
    await adapter.send(asked("word " * 1500))
    first, last = telegram.bot_messages()
    assert (first.keyboard, len(last.keyboard[0])) == ([], 2)
    assert shown_buttons(telegram) == [[("Yes", "/confirm abc"), ("No", "/cancel")]]


async def test_a_line_that_breaks_leaves_one_message_with_one_row_of_buttons(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    telegram.faults["editMessageText"].append(Fault(is_done=True))
    message = asked()
    with pytest.raises(UncertainSendError):
        await adapter.send(message)
    await adapter.send(message)
    assert telegram.texts() == ["Sure?"]
    assert len(shown_buttons(telegram)) == 1


async def test_a_preview_in_a_group_has_no_buttons_before_the_answer_is_whole(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    message = asked(where=group())
    await adapter.preview(message)
    assert shown_buttons(telegram, GROUP["id"]) == []
    await adapter.send(message)
    assert len(shown_buttons(telegram, GROUP["id"])) == 1


async def test_long_labels_have_a_row_of_their_own_and_a_choice_without_one_shows_its_command(
    telegram: FakeTelegram, adapter: TelegramAdapter
) -> None:
    await adapter.send(asked(actions=(*YES_NO, Action(id="new", label=" "), LONG)))
    assert [[label for label, _ in row] for row in shown_buttons(telegram)] == [["Yes", "No", "new"], [LONG.label]]


@given(command=st.text(min_size=1, max_size=200).filter(lambda text: text == text.encode("utf-8", "replace").decode()))
def test_any_command_fits_into_a_button_and_comes_out_of_it(command: str) -> None:
    async def there_and_back() -> None:
        notes = FakeNotes()
        ((button,),) = await Buttons(notes).keyboard([Action(id=command, label="x")])
        assert 1 <= len(button.data.encode()) <= 64
        after_a_restart = Buttons(notes)
        await after_a_restart.load()
        assert after_a_restart.command(button.data) == command

    asyncio.run(there_and_back())


async def test_what_a_button_stands_for_is_forgotten_after_a_month() -> None:
    notes = FakeNotes()
    await notes.put("button/abc", '["2020-01-01T00:00:00+00:00", "new"]')
    buttons = Buttons(notes)
    await buttons.load()
    assert buttons.command("#abc") is None
    assert notes.texts == {}


# ---- in -------------------------------------------------------------------------------------------------------------


async def test_a_press_arrives_as_the_command_and_is_answered(
    telegram: FakeTelegram, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    await adapter.send(asked())
    shown = telegram.bot_messages()[0]
    update = telegram.press("/confirm abc", shown)
    await telegram.give(update)
    (message,) = await inbox.has(1)
    assert (message.text, message.command) == ("/confirm abc", "confirm abc")
    assert (message.sender.user, message.is_direct, message.is_trusted_text) == ("42", True, True)
    assert message.conversation == direct()
    assert message.event_id == event_id_of(update)
    assert message.reply_to == f"42:{shown.number}"
    assert await answered(telegram, update) is None


async def test_the_buttons_of_what_was_decided_go_and_others_stay(
    telegram: FakeTelegram, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    choices = [Action(id=f"memory {verb} {number}", label=verb) for number in (1, 2) for verb in ("approve", "refuse")]
    await adapter.send(asked(actions=tuple(choices)))
    shown = telegram.bot_messages()[0]
    await telegram.give(telegram.press("/memory refuse 1", shown))
    await telegram.until(lambda: len(telegram.called("editMessageReplyMarkup")) == 1)
    assert [data for row in shown_buttons(telegram) for _, data in row] == ["/memory approve 2", "/memory refuse 2"]
    await telegram.give(telegram.press("/memory approve 2", shown))
    await telegram.until(lambda: not shown.keyboard)
    assert [message.command for message in inbox.messages] == ["memory refuse 1", "memory approve 2"]


async def test_a_yes_to_all_goes_on_without_what_is_decided(
    telegram: FakeTelegram, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    numbers = " ".join(str(number) for number in range(100_003, 100_011))
    choices = [Action(id=one, label=one) for one in ("yes 100003", "no 100003", f"yes {numbers}", "cancel")]
    await adapter.send(asked(actions=tuple(choices)))
    shown = telegram.bot_messages()[0]
    await telegram.give(telegram.press("/no 100003", shown))
    await telegram.until(lambda: len(telegram.called("editMessageReplyMarkup")) == 1)
    rest = f"/{choices[2].id}".replace(" 100003", "")
    assert [data for row in shown_buttons(telegram) for _, data in row] == [rest, "/cancel"]
    await telegram.give(telegram.press(rest, shown))
    await telegram.until(lambda: len(telegram.called("editMessageReplyMarkup")) == 2)
    assert [data for row in shown_buttons(telegram) for _, data in row] == ["/cancel"]
    assert [message.command for message in inbox.messages] == ["no 100003", rest[1:]]


async def test_in_a_group_the_buttons_stay_for_the_others(
    telegram: FakeTelegram, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    await adapter.send(asked(where=group()))
    shown = telegram.bot_messages(GROUP["id"])[0]
    message = {**telegram._as_message(GROUP["id"], shown), "chat": GROUP}
    update = telegram.press("/cancel", message=message)
    await telegram.give(update)
    await inbox.has(1)
    await answered(telegram, update)
    await adapter.close()
    assert telegram.called("editMessageReplyMarkup") == []


async def test_a_command_that_is_too_long_for_a_button_comes_back_whole_after_a_restart(
    telegram: FakeTelegram, inbox: Inbox
) -> None:
    notes = FakeNotes()
    adapter = adapter_of(telegram, notes)
    async with receiving(adapter, inbox):
        await adapter.send(asked(actions=(LONG,)))
    _, data = shown_buttons(telegram)[0][0]
    async with receiving(adapter_of(telegram, notes), inbox):
        await telegram.give(telegram.press(data, telegram.bot_messages()[0]))
        assert [message.command for message in await inbox.has(1)] == [LONG.id]


async def test_a_press_in_a_group_is_of_who_pressed_it_and_speaks_to_us(
    telegram: FakeTelegram, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    await adapter.send(asked(where=direct(GROUP["id"], thread="5")))
    shown = telegram.bot_messages(GROUP["id"])[0]
    bob = {"id": 43, "is_bot": False, "first_name": "Bob"}
    place = {"message_id": shown.number, "chat": GROUP, "date": 1, "is_topic_message": True, "message_thread_id": 5}
    await telegram.give(telegram.press("/cancel", message=place, **{"from": bob}))
    (message,) = await inbox.has(1)
    assert (message.sender.user, message.is_direct, message.mentions_bot) == ("43", False, True)
    assert message.conversation == direct(GROUP["id"], thread="5")


async def test_a_press_below_an_old_message_of_which_telegram_tells_little_is_taken(
    telegram: FakeTelegram, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    """api#inaccessiblemessage: its date is 0."""
    old = {"message_id": 7, "chat": {"id": 42, "type": "private"}, "date": 0}
    await telegram.give(telegram.press("/cancel", message=old))
    assert [message.command for message in await inbox.has(1)] == ["cancel"]
    assert inbox.messages[0].sent_at.year > 2000


@pytest.mark.parametrize(
    "press",
    [
        {"data": "#0123", "where": {"message_id": 7, "chat": {"id": 42, "type": "private"}, "date": 1}},
        {"data": "vote:1", "where": {"message_id": 7, "chat": {"id": 42, "type": "private"}, "date": 1}},
        {"data": "/", "where": {"message_id": 7, "chat": {"id": 42, "type": "private"}, "date": 1}},
        {"data": "/cancel", "where": None},
    ],
    ids=["expired", "of another program", "empty", "of an inline message"],
)
async def test_a_button_that_is_not_in_use_is_said_so_and_does_nothing(
    telegram: FakeTelegram, adapter: TelegramAdapter, inbox: Inbox, press: dict[str, Any]
) -> None:
    fields = {} if press["where"] is None else {"message": press["where"]}
    update = telegram.press(press["data"], **fields)
    await telegram.give(update)
    assert "not in use any more" in (await answered(telegram, update) or "")
    await telegram.until(lambda: update["update_id"] in telegram.confirmed)
    assert inbox.tries == 0


async def test_a_bot_presses_nothing(telegram: FakeTelegram, adapter: TelegramAdapter, inbox: Inbox) -> None:
    await adapter.send(asked())
    update = telegram.press("/cancel", telegram.bot_messages()[0], **{"from": {**BOT, "id": 9}})
    await telegram.give(update)
    await telegram.until(lambda: update["update_id"] in telegram.confirmed)
    assert inbox.tries == 0


async def test_a_press_is_answered_only_after_it_was_accepted(telegram: FakeTelegram, inbox: Inbox) -> None:
    inbox.failure = RuntimeError("the disk is full")
    update = telegram.press("/cancel", message={"message_id": 7, "chat": {"id": 42, "type": "private"}, "date": 1})
    await telegram.give(update)
    async with receiving(adapter_of(telegram), inbox) as task:
        await asyncio.wait([task], timeout=60)
        assert isinstance(task.exception(), AdapterNotReady)
    assert telegram.called("answerCallbackQuery") == []
    inbox.failure = None
    async with receiving(adapter_of(telegram), inbox):
        await inbox.has(1)
        await answered(telegram, update)


async def test_an_answer_to_a_press_that_comes_too_late_or_hangs_holds_nothing_up(
    telegram: FakeTelegram, inbox: Inbox
) -> None:
    place = {"message_id": 7, "chat": {"id": 42, "type": "private"}, "date": 1}
    first, second = telegram.press("/cancel", message=place), telegram.press("/cancel", message=place)
    telegram.presses[first["callback_query"]["id"]] = "answered long ago"
    telegram.faults["answerCallbackQuery"].append(Fault(is_hanging=True))
    async with receiving(adapter_of(telegram, client=client_of(telegram, request_timeout_s=600.0)), inbox) as task:
        await telegram.give(second)
        await telegram.until(lambda: len(telegram.called("answerCallbackQuery")) == 1)
        await telegram.give(first)
        await telegram.say("and now?")
        assert [message.text for message in await inbox.has(3)] == ["/cancel", "/cancel", "and now?"]
        assert not task.done()
