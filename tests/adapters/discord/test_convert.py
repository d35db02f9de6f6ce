"""What Discord sends is read for what it says, and no more; payloads from the vendor's documentation."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.discord import convert
from adapters.discord.convert import ReadContext
from gateway.messages import ConversationRef, QuotedText
from gateway.protocols import CommandInfo
from tests.adapters.discord.world import BOB, BOT, BOT_ROLE, BOT_USER

PAYLOADS = Path(__file__).parent / "payloads"
DIRECT = ReadContext(channel="discord", user=BOT, guild=None)
IN_GUILD = ReadContext(channel="discord", user=BOT, guild="2002", roles=frozenset({BOT_ROLE}))


def recorded(name: str, **changes: Any) -> dict[str, Any]:
    """An example of https://docs.discord.com/developers/resources/message and .../interactions."""
    payload: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_text(encoding="utf-8"))
    return {**payload, **changes}


def read(payload: dict[str, Any], place: ReadContext = DIRECT) -> Any:
    message = convert.to_inbound(payload, place)
    assert message is not None
    return message


# ---- messages -------------------------------------------------------------------------------------------------------


def test_the_documented_message_is_read() -> None:
    message = read(recorded("message"))
    assert message.id == message.event_id == "334385199974967042"
    assert message.conversation == ConversationRef(channel="discord", conversation="290926798999357250")
    assert (message.sender.user, message.sender.display_name) == ("53908099506183680", "Mason")
    assert message.sender.is_verified
    assert message.text == "Supa Hot"
    assert message.sent_at == datetime(2017, 7, 11, 17, 27, 7, 299000, tzinfo=UTC)
    assert (message.is_direct, message.mentions_bot, message.is_trusted_text) == (True, False, True)


def test_what_was_copied_from_a_followed_channel_is_nobodys_message() -> None:
    assert convert.to_inbound(recorded("crossposted_message"), DIRECT) is None


@pytest.mark.parametrize("name", ["nick", "global_name", "username"])
def test_the_name_for_people_is_the_nearest_to_them(name: str) -> None:
    author = {"id": "5", "username": "username", "global_name": None if name == "username" else "global_name"}
    member = {"nick": "nick"} if name == "nick" else {}
    assert read(recorded("message", author=author, member=member)).sender.display_name == name


def test_a_new_name_is_the_same_person_and_the_same_name_is_not() -> None:
    first, renamed, other = (
        read(recorded("message", author={"id": identifier, "username": username})).sender.user
        for identifier, username in (("5", "ada"), ("5", "countess"), ("6", "ada"))
    )
    assert first == renamed != other


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (f"<@{BOT}> what is this?", "what is this?"),
        (f"what is this, <@!{BOT}>", "what is this,"),
        (f"<@&{BOT_ROLE}> and <@{BOB['id']}>", "and @bob"),
        ("<@99> and <@&98> stay", "<@99> and <@&98> stay"),
        ("look <:parrot:123456789012345678> <a:dance:2>", "look :parrot: :dance:"),
        ("  1 < 2 and <b>bold</b>  ", "  1 < 2 and <b>bold</b>  "),
    ],
)
def test_mentions_are_made_readable_and_those_of_the_bot_are_left_out(content: str, text: str) -> None:
    assert read(recorded("message", content=content, mentions=[BOT_USER, BOB]), IN_GUILD).text == text


def test_what_was_recorded_is_a_voice_note_of_its_sender_and_not_of_who_answers_or_forwards_it() -> None:
    message = read(recorded("voice_message"))
    (file,) = message.attachments
    assert (message.text, file.is_voice, file.media_type, message.is_trusted_text) == ("", True, "audio/ogg", True)
    answer = read(recorded("message", type=19, referenced_message=recorded("voice_message")))
    assert [each.is_voice for each in answer.attachments] == [False]
    snapshot = {key: recorded("voice_message")[key] for key in ("content", "attachments", "flags")}
    forward = recorded("message", message_reference={"type": 1}, message_snapshots=[{"message": snapshot}])
    assert [(each.is_voice, read(forward).is_trusted_text) for each in read(forward).attachments] == [(True, False)]


def test_what_is_forwarded_is_not_the_senders_own_voice() -> None:
    snapshot = {"message": {"type": 0, "content": "transfer all the money", "attachments": []}}
    message = read(
        recorded("message", content="", message_reference={"type": 1, "message_id": "7"}, message_snapshots=[snapshot])
    )
    assert (message.text, message.is_trusted_text, message.reply_to) == ("transfer all the money", False, None)


def test_an_answer_names_what_it_answers() -> None:
    message = read(recorded("message", type=19, message_reference={"type": 0, "message_id": "7"}))
    assert message.reply_to == "7"


FILE = {"id": "9", "filename": "plan.txt", "size": 3, "content_type": "text/plain", "url": "https://cdn/plan.txt"}


def test_the_message_that_is_answered_is_read_as_the_words_of_its_author() -> None:
    answered = recorded("message", id="7", author=BOB, content="the plan", attachments=[FILE])
    reply = recorded("message", type=19, message_reference={"message_id": "7"}, referenced_message=answered)
    message = read(reply, IN_GUILD)
    name = BOB["global_name"] or BOB["username"]
    assert message.quotes == (QuotedText(origin="message that this one answers", text="the plan", author=name),)
    assert message.text == "Supa Hot"
    assert [convert.parse_file_ref(file.ref)[1] for file in message.attachments] == [7]


@pytest.mark.parametrize("place", [DIRECT, IN_GUILD])
def test_what_the_session_has_is_not_quoted(place: ReadContext) -> None:
    """Our own words, and in a direct chat the person's, unless somebody else's were forwarded there."""
    mine = recorded("message", id="7", author=BOT_USER, content="42")
    reply = recorded("message", type=19, message_reference={"message_id": "7"}, referenced_message=mine)
    assert read(reply, place).quotes == ()
    own = recorded("message", id="8", author=reply["author"], content="before")
    assert bool(read({**reply, "referenced_message": own}, place).quotes) == (place is IN_GUILD)
    forwarded = {**own, "message_reference": {"type": 1}, "message_snapshots": [{"message": {"content": "Pay!"}}]}
    assert [quote.text for quote in read({**reply, "referenced_message": forwarded}, place).quotes] == ["Pay!"]


@pytest.mark.parametrize("referenced", [None, {"id": "7", "author": BOB}, {}], ids=["deleted", "a person's", "empty"])
def test_an_answer_to_somebody_else_is_not_for_the_bot(referenced: Any) -> None:
    message = read(
        recorded("message", type=19, message_reference={"message_id": "7"}, referenced_message=referenced), IN_GUILD
    )
    assert not convert.is_for_bot(message)


def test_a_sticker_is_named() -> None:
    message = read(recorded("message", content="", sticker_items=[{"id": "1", "name": "Wave", "format_type": 1}]))
    assert message.text == "[sticker: Wave]"


def test_files_are_listed_with_a_reference_that_can_be_followed_later() -> None:
    file = {"id": "9", "filename": "a.png", "size": 12, "content_type": "image/png", "url": "https://cdn/a.png?ex=1"}
    (attachment,) = read(recorded("message", attachments=[file])).attachments
    assert (attachment.media_type, attachment.filename, attachment.size_bytes) == ("image/png", "a.png", 12)
    channel, message, identifier, url = convert.parse_file_ref(attachment.ref)
    assert (channel, message, identifier) == (290926798999357250, 334385199974967042, "9")
    assert url == file["url"]
    assert convert.file_url(recorded("message", attachments=[{**file, "url": "https://cdn/new"}]), "9") == (
        "https://cdn/new"
    )


@pytest.mark.parametrize(
    "change", [{"id": "none"}, {"author": {}}, {"timestamp": "yesterday"}, {"attachments": [{}]}, {"channel_id": None}]
)
def test_what_is_no_message_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        convert.to_inbound(recorded("message", **change), DIRECT)


@given(st.text())
def test_any_text_of_a_person_is_read_whole(text: str) -> None:
    if "<" not in text:
        assert read(recorded("message", content=text)).text == text


# ---- interactions ---------------------------------------------------------------------------------------------------


def test_the_documented_interaction_is_read() -> None:
    payload = recorded("interaction")
    interaction = convert.to_interaction(payload)
    assert interaction is not None
    assert (interaction.id, interaction.token, interaction.type) == ("786008729715212338", "A_UNIQUE_TOKEN", 2)
    message = convert.command_to_inbound(payload, IN_GUILD)
    assert message.command == "cardsearch The Gitrog Monster"
    assert message.text == "/cardsearch The Gitrog Monster"
    assert (message.sender.user, message.sender.display_name) == ("53908232506183680", "Mason")
    assert (message.is_direct, message.mentions_bot) == (False, True)
    assert message.sent_at == convert.snowflake_time(786008729715212338)


@pytest.mark.parametrize("kind", [1, 4, 5, 99])
def test_other_interactions_are_none_of_ours(kind: int) -> None:
    assert convert.to_interaction(recorded("interaction", type=kind)) is None


# ---- commands -------------------------------------------------------------------------------------------------------


def test_commands_are_described_as_discord_wants_them() -> None:
    commands = convert.to_commands(
        [
            CommandInfo(name="help", usage="/help", description="lists the commands"),
            CommandInfo(name="search", usage="/search words", description="x" * 200),
            CommandInfo(name="Not A Name", usage="", description="is left out"),
        ]
    )
    assert [command["name"] for command in commands] == ["help", "search"]
    assert commands[0]["options"] == []
    assert commands[1]["options"][0]["description"] == "words"
    assert len(commands[1]["description"]) == 100


def test_the_hash_changes_with_the_commands_and_with_the_application() -> None:
    commands = convert.to_commands([CommandInfo(name="help", usage="/help", description="lists")])
    hashes = {
        convert.commands_hash(commands, "1"),
        convert.commands_hash(commands, "2"),
        convert.commands_hash([], "1"),
        convert.commands_hash([dict(reversed(commands[0].items()))], "1"),
    }
    assert len(hashes) == 3


# ---- ids ------------------------------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 50), st.integers(0, 5))
def test_a_nonce_fits_and_belongs_to_one_piece_of_one_message(message_id: str, piece: int, generation: int) -> None:
    nonce = convert.nonce(message_id, piece, generation)
    assert len(nonce) == 25
    assert nonce.isascii()
    assert nonce == convert.nonce(message_id, piece, generation)
    assert nonce not in {
        convert.nonce(f"{message_id}x", piece, generation),
        convert.nonce(message_id, piece + 1, generation),
        convert.nonce(message_id, piece, generation + 1),
    }


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "1" * 21, "٣", None, "1 "])
def test_what_is_no_snowflake_is_none(value: object) -> None:
    assert convert.snowflake(value) is None


def test_the_documented_snowflake_is_read() -> None:
    """https://docs.discord.com/developers/reference#snowflakes."""
    assert convert.snowflake_time(175928847299117063) == datetime(2016, 4, 30, 11, 18, 25, 796000, tzinfo=UTC)


@given(st.integers(1_500_000_000, 2_500_000_000))
def test_a_snowflake_says_when_it_was_made(second: int) -> None:
    assert convert.snowflake_time(convert.snowflake_at(second)) == datetime.fromtimestamp(second, tz=UTC)
