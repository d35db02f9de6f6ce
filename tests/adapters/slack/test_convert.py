"""What Slack's own examples become, and what becomes of text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.slack import convert
from adapters.slack.convert import Conversation, Installation
from gateway.messages import Attachment, ConversationRef, InboundMessage
from tests.adapters.slack.fake_slack import escaped

PAYLOADS = Path(__file__).parent / "payloads"
HOME = Installation(team="T061EG9R6", enterprise=None, user="U0LAN0Z89", bot="B0LAN")


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_text())["payload"]
    return found


def event(name: str, *, app: Installation = HOME, slack_connect: bool = False, **changed: Any) -> InboundMessage | None:
    envelope = payload(name)
    envelope["event"] |= changed
    return convert.message_from_event("office", app, envelope, slack_connect=slack_connect)


def message(name: str, **changed: Any) -> InboundMessage:
    found = event(name, **changed)
    assert found is not None
    return found


def test_a_direct_message() -> None:
    found = message("message_im")
    assert found.id == "1355517523.000005"
    assert found.event_id == "Ev0PV52K21"
    assert found.conversation == ConversationRef(channel="office", conversation="D024BE91L")
    assert found.text == "Hello hello can you hear me?"
    assert found.sent_at == datetime(2012, 12, 14, 20, 38, 43, 5, tzinfo=UTC)
    assert found.is_direct
    assert not found.mentions_bot
    assert (found.sender.user, found.sender.is_verified) == ("T061EG9R6/U2147483697", True)


def test_a_mention_is_answered_in_the_thread_that_it_begins_and_the_mention_is_not_in_the_text() -> None:
    found = message("app_mention")
    assert found.text == "What is the hour of the pearl,?"
    assert found.mentions_bot
    assert not found.is_direct
    assert found.conversation == ConversationRef(channel="office", conversation="C123ABC456", thread=found.id)
    assert message("app_mention", text="<@U0LAN0Z89>: hello").text == "hello"


def test_the_two_events_of_one_mention_are_one_message() -> None:
    first, second = message("message_channels"), message("app_mention")
    assert first.event_id != second.event_id
    assert replace(first, event_id="") == replace(second, event_id="")


def test_one_gesture_under_two_timestamps_has_one_event_id_and_nobody_else_s() -> None:
    first = message("message_im", client_msg_id="c0ffee")
    second = message("message_im", client_msg_id="c0ffee", ts="1355517524.000001")
    assert first.event_id == second.event_id != message("message_im", client_msg_id="c0ffee", user="U1").event_id


def test_talk_that_does_not_mention_us_is_nothing_to_us() -> None:
    assert event("message_channels", text="hello everybody") is None
    assert event("message_channels", text="hello <@U0LAN0Z89X>") is None


def test_a_reply_to_us_in_a_thread_counts_as_a_mention_and_is_answered_there() -> None:
    found = message("thread_reply")
    assert found.mentions_bot
    assert found.conversation.thread == found.reply_to == "1482960137.003543"
    assert event("thread_reply", parent_user_id="U1") is None


def test_a_thread_in_a_direct_chat_is_answered_in_the_thread() -> None:
    assert message("message_im", thread_ts="1355517000.000001").conversation.thread == "1355517000.000001"


@pytest.mark.parametrize("name", ["bot_message", "message_changed"])
def test_bots_and_edits_are_passed_over(name: str) -> None:
    assert event(name) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"user": "U0LAN0Z89"},
        {"user": None},
        {"user": "USLACKBOT"},
        {"bot_id": "B1"},
        {"bot_profile": {"id": "B1"}},
        {"app_id": "A1"},
        {"subtype": "bot_message", "username": "Ada"},
        {"subtype": "channel_join"},
        {"hidden": True},
        {"text": "", "files": []},
    ],
    ids=str,
)
def test_what_no_person_wrote_is_passed_over(changed: dict[str, Any]) -> None:
    assert event("message_im", **changed) is None


def test_a_spoofed_name_proves_nothing() -> None:
    found = message("message_im", username="The Boss", user_profile={"display_name": "The Boss"})
    assert found.sender.user == "T061EG9R6/U2147483697"


def test_outsiders_of_a_shared_channel_are_kept_out_unless_they_are_wanted() -> None:
    assert event("slack_connect") is None
    found = message("slack_connect", slack_connect=True)
    assert found.sender.user == "T9OTHER/U9OUTSIDE"


def test_our_own_people_in_a_shared_channel_are_ours_also_when_slack_names_the_organisation() -> None:
    app = replace(HOME, enterprise="E0HOME")
    found = message("slack_connect", app=app, user_team="E0HOME")
    assert found.sender.user == "E0HOME/U9OUTSIDE"
    assert message("message_im", app=app).sender.user == "E0HOME/U2147483697"


def test_another_workspace_of_the_organisation_is_no_outsider_where_nothing_is_shared() -> None:
    assert message("message_im", team="T0BRANCH").sender.user == "T061EG9R6/U2147483697"


@pytest.mark.parametrize(
    ("envelope", "is_ours"),
    [
        ({"team_id": "T061EG9R6"}, True),
        ({"team_id": "T1"}, False),
        ({"team_id": "T1", "authorizations": [{"team_id": "T061EG9R6"}]}, True),
        ({"team_id": "T1", "authorizations": [{"team_id": "T2", "enterprise_id": None}]}, False),
        ({"team_id": "T1", "context_team_id": "T061EG9R6"}, True),
    ],
)
def test_events_of_other_installations_are_told_apart(envelope: dict[str, Any], is_ours: bool) -> None:
    assert convert.is_for_installation(HOME, envelope) is is_ours


def test_files_come_with_their_message_and_those_that_are_gone_do_not() -> None:
    found = message("file_share")
    assert found.text == "See <this>"
    assert found.attachments == (
        Attachment(media_type="text/plain", filename="file.htm", size_bytes=12345, ref="F2147483862"),
    )


def test_a_clip_that_was_recorded_is_a_voice_note_without_a_text() -> None:
    found = message("audio_clip")
    (file,) = found.attachments
    assert (found.text, file.is_voice, file.media_type, file.ref) == ("", True, "audio/mp4", "F2147483899")
    assert not any(each.is_voice for each in message("file_share").attachments)


def test_a_clip_that_another_person_recorded_is_a_file_and_not_the_senders_own_voice() -> None:
    shared = message("audio_clip", user="U0OTHER")
    (file,) = shared.attachments
    assert (file.is_voice, file.ref) == (False, "F2147483899")


def test_history_gives_the_same_message_as_the_event() -> None:
    envelope = payload("message_im")
    conversation = convert.conversation_of(envelope)
    assert conversation == Conversation(channel="D024BE91L", kind="im", is_shared=False)
    entry = {key: envelope["event"][key] for key in ("type", "user", "text", "ts")}
    found = convert.message_from_history("office", HOME, conversation, entry)
    assert found is not None
    assert replace(found, event_id="") == replace(message("message_im"), event_id="")
    assert found.event_id == "D024BE91L/1355517523.000005"


def command(text: str) -> InboundMessage:
    return convert.message_from_command(
        "office", HOME, {**payload("slash_command"), "text": text}, conversation="D1", commands={"new", "help"},
        sent_at=datetime.now(UTC),
    )  # fmt: skip


def test_a_slash_command_is_a_command_in_the_direct_chat() -> None:
    found = command("new  please")
    assert found.command == "new  please"
    assert found.event_id == "command-13345224609.738474920.8088930838d88f008e0"
    assert found.conversation == ConversationRef(channel="office", conversation="D1")
    assert found.is_direct
    assert found.sender.user == "T061EG9R6/U2147483697"


def test_a_slash_command_that_is_none_is_talk() -> None:
    assert (command("what is new?").command, command("what is new?").text) == (None, "what is new?")
    assert command("/NEW").command == "NEW"
    assert command(" ").command == "help"
    assert command("/").command == "help"


def test_a_press_on_a_button_is_its_command_in_the_thread_of_the_button() -> None:
    found = convert.message_from_action("office", HOME, payload("block_actions"), sent_at=datetime.now(UTC))
    assert found is not None
    assert (found.command, found.mentions_bot, found.is_direct) == ("memory show", True, False)
    assert found.conversation.thread == "1548261000.000100"
    assert found.sender.user == "T061EG9R6/UA8RXUSPL"


def test_buttons_of_others_and_presses_of_outsiders_are_passed_over() -> None:
    others, outsiders = payload("block_actions"), payload("block_actions")
    others["actions"][0]["action_id"] = "WaXA"
    outsiders["user"]["team_id"] = "T9OTHER"
    for each in (others, outsiders):
        assert convert.message_from_action("office", HOME, each, sent_at=datetime.now(UTC)) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see <https://example.org|the page>", "see the page (https://example.org)"),
        ("see <https://example.org>", "see https://example.org"),
        ("see <http://example.org|example.org>", "see http://example.org"),
        ("write to <mailto:ada@example.org|ada@example.org>", "write to ada@example.org"),
        ("ask <@U1> or <@U2|Bob> in <#C1|general>", "ask @U1 or @Bob in #general"),
        ("<!here> and <!subteam^S1|@crew>", "@here and @crew"),
        ("<!date^1392734382^{date}|Feb 18, 2014>", "Feb 18, 2014"),
        ("a &lt;b&gt; &amp;lt; c", "a <b> &lt; c"),
        ("hello <@U0LAN0Z89> there", "hello there"),
    ],
)
def test_slack_s_tokens_become_what_people_see(text: str, shown: str) -> None:
    assert convert.plain_text(text, "U0LAN0Z89") == shown


@given(st.text())
def test_whatever_a_person_types_arrives_as_it_was_typed(text: str) -> None:
    assert convert.plain_text(escaped(text), "U0LAN0Z89") == text
