"""What an update becomes: over payloads written field by field after the documentation, which each of them names."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.telegram.convert import (
    UNREADABLE,
    Account,
    Reader,
    aliases_of,
    callback_query_id,
    chat_id_of,
    menu,
    message_id_in,
    migration_of,
    qualified_id,
)
from gateway.messages import InboundMessage
from gateway.protocols import CommandInfo
from tests.adapters.telegram.fake_telegram import FakeTelegram, cleaned
from tests.adapters.telegram.harness import COMMANDS, event_id_of

PAYLOADS = sorted((Path(__file__).parent / "payloads").glob("*.json"))
BOT = Account(id=123456, username="ethos_test_bot")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def reader(**changes: Any) -> Reader:
    return Reader(
        **{"channel": "phone", "bot": BOT, "aliases": aliases_of(COMMANDS), "original_chat": lambda chat: chat}
        | {"command": {"/help": "help"}.get, "commands": {command.name for command in COMMANDS}, "now": lambda: NOW}
        | changes
    )


def read(update: Any, **changes: Any) -> InboundMessage | None:
    return reader(**changes).message_from(update)


def payload(name: str) -> dict[str, Any]:
    return dict(json.loads((Path(__file__).parent / "payloads" / f"{name}.json").read_text())["update"])


def as_json(message: InboundMessage) -> dict[str, Any]:
    files = [
        {"media_type": each.media_type, "filename": each.filename, "size_bytes": each.size_bytes, "ref": each.ref}
        | ({"is_voice": True} if each.is_voice else {})
        for each in message.attachments
    ]
    fields = ("text", "is_direct", "mentions_bot", "reply_to", "command", "is_trusted_text")
    return {
        **{name: getattr(message, name) for name in fields},
        "attachments": files,
        "quotes": [[quote.origin, quote.text, quote.author] for quote in message.quotes],
        "thread": message.conversation.thread,
        "display_name": message.sender.display_name,
    }


@pytest.mark.parametrize("path", PAYLOADS, ids=lambda path: path.stem)
def test_a_documented_update_becomes_what_is_written_beside_it(path: Path) -> None:
    case = json.loads(path.read_text())
    message = read(case["update"])
    if case["message"] is None:
        assert message is None
    else:
        assert message is not None
        assert {name: value for name, value in as_json(message).items() if name in case["message"]} == case["message"]


def test_a_message_says_who_and_where_and_when_by_ids_that_stay() -> None:
    update = payload("text")
    message = read(update)
    assert message is not None
    assert message.event_id == event_id_of(update)
    assert message.id == f"42:{update['message']['message_id']}"
    assert (message.conversation.channel, message.conversation.conversation) == ("phone", "42")
    assert (message.sender.user, message.sender.display_name) == ("42", "Ada Lovelace (@ada)")
    assert message.sent_at == datetime(2025, 11, 20, 10, tzinfo=UTC)


def test_the_same_number_in_two_chats_is_two_messages() -> None:
    update = payload("group_talk")
    other = {**update, "message": {**update["message"], "chat": {"id": -7, "type": "group", "title": "x"}}}
    first, second = read(update), read(other)
    assert first is not None
    assert second is not None
    assert first.id != second.id


def test_a_number_that_telegram_uses_again_is_another_event() -> None:
    """After a quiet week it counts from a random number on: api#update."""
    update, other = payload("text"), payload("voice")
    first, second = read(update), read({**other, "update_id": update["update_id"]})
    assert first is not None
    assert second is not None
    assert first.event_id != second.event_id


def test_an_upgraded_group_keeps_its_conversation_and_gets_new_message_ids() -> None:
    message = read(payload("group_talk"), original_chat={-1001234: -55}.get)
    assert message is not None
    assert message.conversation.conversation == "-55"
    assert message.id.startswith("-1001234:")


def test_both_service_messages_of_an_upgrade_are_understood() -> None:
    assert migration_of(payload("upgraded")) == (-55, -1001234)
    there = {"update_id": 1, "message": {"chat": {"id": -1001234}, "migrate_from_chat_id": -55}}
    assert migration_of(there) == (-55, -1001234)
    assert migration_of(payload("text")) is None


def test_a_start_command_of_the_gateways_own_is_left_alone() -> None:
    own = CommandInfo(name="start", usage="/start", description="begin")
    message = read(payload("start_button"), aliases=aliases_of([own]))
    assert message is not None
    assert message.command is None


def test_the_menu_has_what_telegram_takes() -> None:
    commands = [
        CommandInfo(name="forget-me", usage="", description="x" * 300),
        CommandInfo(name="Ünfit", usage="", description="no such letters"),
        *(CommandInfo(name=f"c{number}", usage="", description="one of many") for number in range(120)),
    ]
    made = menu(commands)
    assert made[0] == ("forget_me", "x" * 256)
    assert "Ünfit" not in dict(made)
    assert len(made) == 100


def test_a_reply_finds_its_message_in_its_own_chat_only() -> None:
    assert message_id_in(-5, qualified_id(-5, 77)) == 77
    assert message_id_in(-6, qualified_id(-5, 77)) is None
    assert message_id_in(-5, None) is None
    assert message_id_in(-5, "nonsense") is None


@given(text=st.text(min_size=1).filter(str.strip))
@example(text="@ethos_test_bot")
def test_any_text_of_a_private_chat_is_read_whole(text: str) -> None:
    telegram = FakeTelegram()
    message = read(telegram.update(telegram.message(cleaned(text))))
    assert message is not None
    assert message.text == cleaned(text)


@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_mention_is_found_by_utf16_positions_whatever_stands_around_it(before: str, after: str) -> None:
    update = payload("group_mention")
    offset = len(before.encode("utf-16-le", "surrogatepass")) // 2
    update["message"]["text"] = f"{before}@ethos_test_bot{after}"
    update["message"]["entities"] = [{"type": "mention", "offset": offset, "length": 15}]
    message = read(update)
    assert message is not None
    assert message.mentions_bot
    assert "@ethos_test_bot" not in message.text
    assert message.text.replace(" ", "").endswith(after.lstrip(" ,:\n").replace(" ", ""))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("message_id", "from", "chat", "date", "text", "entities", "photo", "document", "sticker", "reply_to_message")


@given(field=st.sampled_from(FIELDS), value=JSON)
def test_a_field_of_any_form_spoils_nothing_but_its_own_update(field: str, value: object) -> None:
    update = payload("text")
    update["message"][field] = value
    try:
        message = read(update)
    except UNREADABLE:
        return
    assert message is None or isinstance(message.text, str)


@given(field=st.sampled_from(["id", "from", "message", "data", "chat_instance"]), value=JSON)
def test_a_field_of_a_press_of_any_form_spoils_nothing_but_its_own_update(field: str, value: object) -> None:
    update = payload("press")
    update["callback_query"][field] = value
    try:
        message = read(update)
    except UNREADABLE:
        return
    assert message is None or message.command == "help"


@given(update=st.dictionaries(st.sampled_from(["update_id", "message", "callback_query", "x"]), JSON))
def test_an_update_of_any_form_is_read_or_unreadable(update: dict[str, Any]) -> None:
    assert chat_id_of(update) is None or isinstance(chat_id_of(update), int)
    migration_of(update)
    assert callback_query_id(update) is None or isinstance(callback_query_id(update), str)
    with contextlib.suppress(*UNREADABLE):
        message = read(update)
        assert message is None or message.sender.user
