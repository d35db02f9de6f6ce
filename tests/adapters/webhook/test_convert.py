"""The JSON of the webhook and the gateway's messages, on recorded payloads."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.webhook.convert import FIELDS, BadMessage, to_inbound, to_reply, webhook_id
from gateway.messages import ConversationRef, InboundMessage, OutboundMessage, Sender
from tests.adapters.webhook.other_side import payload

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def read(fields: Any) -> InboundMessage:
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return to_inbound(body, channel="shop", realm="shop", event_id="msg_1", received_at=NOW)


def test_a_message_says_who_and_where_and_when() -> None:
    assert read(payload("message")) == InboundMessage(
        id="m-1",
        event_id="msg_1",
        conversation=ConversationRef(channel="shop", conversation="order 4711", thread="delivery"),
        sender=Sender(channel="shop", user="shop/42", display_name="Ada Lovelace", is_verified=True),
        text="Where is my parcel? 📦",
        sent_at=datetime(2026, 11, 20, 10, 0, tzinfo=UTC),
    )


def test_a_message_in_a_group_is_read_by_others_and_meant_for_the_agent() -> None:
    message = read(payload("group_message"))
    assert (message.is_direct, message.mentions_bot) == (False, True)
    assert message.sender.display_name == ""
    assert message.conversation.thread is None
    assert message.sent_at == NOW


def test_the_user_of_one_realm_is_not_that_of_another() -> None:
    body = json.dumps(payload("message")).encode()
    users = {
        to_inbound(body, channel="shop", realm=realm, event_id="msg_1", received_at=NOW).sender.user
        for realm in ("shop", "crm")
    }
    assert users == {"shop/42", "crm/42"}


BAD_FIELDS = [
    *(
        (name, value)
        for name in ("id", "conversation", "user")
        for value in (None, 42, "", " ", " a", "a ", ["a"], True)
    ),
    *(("thread", value) for value in (42, "", " a", {}, False)),
    *(
        (name, value)
        for name in ("id", "conversation", "thread", "user")
        for value in ("a\nb", "a\0", "\ud800", "x" * 201)
    ),
    *(("text", value) for value in (None, "", " \n\t", 42, ["hello"], {"text": "hello"}, True)),
    *(("name", value) for value in (42, 0, False, ["Ada"], {})),
    *(("is_group", value) for value in (None, 0, 1, "true")),
    *(("sent_at", value) for value in (1_700_000_000, "now", "", "2026-11-20", "2026-11-20T10:00:00", True, [])),
    ("sent_at", "0001-01-01T00:00:00+23:00"),
    ("sent_at", "9999-12-31T23:59:59-23:00"),
]


@pytest.mark.parametrize(("name", "value"), BAD_FIELDS)
def test_a_field_of_a_wrong_kind_is_named(name: str, value: object) -> None:
    with pytest.raises(BadMessage, match=f"^{name}: expected"):
        read({**payload("message"), name: value})


@pytest.mark.parametrize("name", ["id", "conversation", "user", "text"])
def test_a_field_that_must_be_there_is_named(name: str) -> None:
    fields = payload("message")
    del fields[name]
    with pytest.raises(BadMessage, match=f"^{name}: expected"):
        read(fields)


@pytest.mark.parametrize("name", ["thread", "name", "sent_at"])
def test_what_may_be_left_out_may_be_null_too(name: str) -> None:
    fields = payload("message")
    del fields[name]
    assert read({**fields, name: None}) == read(fields)


def test_a_field_that_is_misspelt_does_not_lead_the_answer_elsewhere() -> None:
    with pytest.raises(BadMessage, match="'thred': unknown field; expected some of id, conversation, thread"):
        read({**payload("message"), "thred": "delivery"})


@pytest.mark.parametrize(
    "body",
    [b"", b"hello", b"{", b'{"id": "m-1"}, x', b"\xff\xfe{}", '{"text": "ä"}'.encode("latin-1"), b"[" * 100_000,
     b"9" * 5_000, b"null", b"42", b"[]", b'"hello"', "{}".encode("utf-16")],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadMessage):
        read(body)


@given(text=st.text(min_size=1).filter(str.strip))
def test_any_text_that_comes_in_is_read_whole(text: str) -> None:
    assert read({**payload("message"), "text": text}).text == text


def test_a_reply_says_what_it_answers_and_where() -> None:
    message = OutboundMessage(
        id="t_0f3a.reply",
        conversation=ConversationRef(channel="shop", conversation="order 4711", thread="delivery"),
        text="It comes **today**. 🚚",
        reply_to="m-1",
    )
    id_, body = to_reply(message)
    assert json.loads(body) == payload("reply")
    assert id_ == payload("reply")["id"]


def test_a_reply_leaves_out_what_there_is_not() -> None:
    conversation = ConversationRef(channel="shop", conversation="c")
    _, body = to_reply(OutboundMessage(id="o", conversation=conversation, text="Hello."))
    assert json.loads(body) == {"type": "reply", "id": "o", "conversation": "c", "text": "Hello."}


@given(text=st.text(), conversation=st.text(min_size=1), thread=st.none() | st.text())
def test_any_text_that_goes_out_is_read_whole(text: str, conversation: str, thread: str | None) -> None:
    where = ConversationRef(channel="shop", conversation=conversation, thread=thread)
    read_back = json.loads(to_reply(OutboundMessage(id="o", conversation=where, text=text))[1])
    assert (read_back["text"], read_back["conversation"], read_back.get("thread")) == (text, conversation, thread)


def test_half_a_surrogate_pair_does_not_stop_a_reply() -> None:
    conversation = ConversationRef(channel="shop", conversation="c")
    _, body = to_reply(OutboundMessage(id="o", conversation=conversation, text="a\ud83d b"))
    assert json.loads(body)["text"] == "a? b"


@given(one=st.text(), other=st.text())
def test_two_ids_of_the_outbox_never_become_one_and_fit_into_a_header(one: str, other: str) -> None:
    assert (webhook_id(one) == webhook_id(other)) == (one == other)
    assert set(webhook_id(one)) <= set("~-_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")


def test_a_reply_that_is_sent_back_to_us_is_no_message() -> None:
    with pytest.raises(BadMessage):
        read(payload("reply"))
    assert "type" not in FIELDS
