"""The terminal's protocol, on recorded lines."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.cli import convert
from gateway.messages import Action, ConversationRef
from gateway.protocols import LogEntry

LINES: dict[str, list[Any]] = json.loads((Path(__file__).parent / "lines.json").read_text(encoding="utf-8"))
MAIN = ConversationRef(channel="terminal", conversation="main")
UUID = "6f1b1f5e-8c5d-4b63-9a70-0f6f3f2a9b11"


@pytest.mark.parametrize("line", LINES["from_person"], ids=str)
def test_every_line_of_the_person_is_read_and_written_the_same(line: dict[str, Any]) -> None:
    frame = convert.decode_from_person(json.dumps(line).encode())
    assert json.loads(convert.encode(frame)) == line


@pytest.mark.parametrize("line", LINES["from_gateway"], ids=str)
def test_every_line_of_the_gateway_is_read_and_written_the_same(line: dict[str, Any]) -> None:
    frame = convert.decode_from_gateway(json.dumps(line).encode())
    assert json.loads(convert.encode(frame)) == line


@pytest.mark.parametrize("line", LINES["bad"])
def test_a_line_that_is_not_of_the_protocol_is_a_bad_line_with_a_reason(line: str) -> None:
    with pytest.raises(convert.BadLine, match=r"\w+"):
        convert.decode_from_person(line.encode())


@given(st.binary())
def test_any_bytes_are_a_frame_or_a_bad_line(line: bytes) -> None:
    with contextlib.suppress(convert.BadLine):
        assert convert.decode_from_person(line).type in {"hello", "message"}


@given(st.text())
def test_a_written_line_is_one_line_and_valid_utf8_whatever_the_text(text: str) -> None:
    line = convert.encode(convert.PersonMessage(id=UUID, text=text))
    assert line.count(b"\n") == 1
    assert json.loads(line.decode("utf-8"))["text"] == text


def test_halves_of_surrogate_pairs_are_replaced_when_written() -> None:
    line = convert.encode(convert.PersonMessage(id=UUID, text="a\ud800b"))
    assert json.loads(line)["text"] == "a\ufffdb"


def test_unknown_fields_are_ignored_so_that_either_side_may_be_newer() -> None:
    frame = convert.decode_from_person(b'{"type":"hello","version":1,"conversation":"main","colour":"red"}')
    assert frame == convert.Hello(conversation="main")


def test_a_message_becomes_an_inbound_message_with_one_id_for_both() -> None:
    now = datetime.now(UTC)
    frame = convert.PersonMessage(id=UUID, text="a\x00b", is_trusted=False)
    inbound = convert.to_inbound(frame, MAIN, "operator", "ada", now)
    assert (inbound.id, inbound.event_id) == (UUID, UUID)
    assert inbound.text == "a\ufffdb"
    assert inbound.conversation == MAIN
    assert (inbound.sender.user, inbound.sender.display_name, inbound.sender.is_verified) == ("operator", "ada", True)
    assert inbound.sent_at == now
    assert inbound.is_direct
    assert not inbound.is_trusted_text


@pytest.mark.parametrize("message_id", ["", "1", UUID.upper(), UUID.replace("-", ""), "{" + UUID + "}", UUID + " "])
def test_an_id_that_is_no_plain_uuid_is_refused(message_id: str) -> None:
    assert convert.message_problem(convert.PersonMessage(id=message_id, text="hello"))
    assert convert.message_problem(convert.PersonMessage(id=UUID, text="hello")) is None


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_a_blank_message_is_refused(text: str) -> None:
    assert convert.message_problem(convert.PersonMessage(id=UUID, text=text)) == "the message is empty"


@pytest.mark.parametrize("name", ["main", "trip to Rome", "日記", "a" * 100])
def test_these_names_of_conversations_are_good(name: str) -> None:
    assert convert.conversation_problem(name) is None


@pytest.mark.parametrize("name", ["", " main", "main ", "a\nb", "\x1b[2J", "a" * 101, "a\ud800"])
def test_these_names_of_conversations_are_refused(name: str) -> None:
    assert convert.conversation_problem(name)


@pytest.mark.parametrize(
    ("direction", "state", "is_shown"),
    [
        ("in", "parked", True),
        ("in", "dead", True),
        ("out", "ready", True),
        ("out", "sending", True),
        ("out", "sent", True),
        ("out", "dead", False),
        ("out", "dropped", False),
    ],
)
def test_what_is_shown_depends_on_the_state_of_its_delivery(direction: Any, state: str, is_shown: bool) -> None:
    entry = LogEntry(
        cursor=7, direction=direction, id="x", text="t", display_name="ada", at=datetime.now(UTC), state=state
    )
    shown = convert.to_log_message(entry)
    assert (shown is not None) == is_shown
    if shown is not None:
        assert shown.choices == ()
        assert (shown.cursor, shown.direction, shown.id, shown.text, shown.author) == (7, direction, "x", "t", "ada")


def test_an_answers_choices_go_to_the_terminal_as_the_commands_that_take_them() -> None:
    entry = LogEntry(
        cursor=7, direction="out", id="x", text="t", display_name="", at=datetime.now(UTC), state="sent",
        actions=(Action(id="confirm abc", label="Yes"),),
    )  # fmt: skip
    shown = convert.to_log_message(entry)
    assert shown is not None
    assert convert.decode_from_gateway(convert.encode(shown)) == shown
    assert shown.choices == (convert.Choice(command="confirm abc", label="Yes"),)
