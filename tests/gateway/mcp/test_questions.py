"""What a server asks is bounded, and a form that cannot be read is refused in words."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from gateway.mcp.questions import MAX_ADDRESS_CHARS, MAX_CHOICES, MAX_WORDS_CHARS, points_of
from gateway.tools.contract import ToolError
from gateway.tools.forms import AS_PROPOSED, AnswerWrong


def form(**fields: Any) -> types.ElicitRequest:
    schema = {"type": "object", "properties": fields}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which?", requested_schema=schema))


def address(message: str, url: str) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id="1"))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (form(tea={"type": "string", "enum": [str(number) for number in range(MAX_CHOICES + 1)]}), "more than can be"),
        (form(tea={"type": "string", "oneOf": [{"const": "a", "title": "x" * 1_000}]}), "more than can be shown"),
        (form(tea={"type": "string", "oneOf": [{"title": "without its value"}]}), "in a form that cannot be read"),
        (form(tea="no schema"), "in a form that cannot be read"),
        (address("Pay", f"https://example.org/{'x' * MAX_ADDRESS_CHARS}"), "too long to be shown"),
    ],
)
def test_what_cannot_be_shown_or_read_is_refused(asked: types.ElicitRequest, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        points_of({"one": asked}, None)


def test_long_words_before_an_address_are_cut_and_the_address_is_whole() -> None:
    [point] = points_of({"one": address("x" * 1_000_000, "https://example.org/pay")}, None)
    assert len(point.words) < MAX_WORDS_CHARS + 100
    assert point.words.endswith("https://example.org/pay")


@pytest.mark.parametrize(
    ("schema", "shown", "value"),
    [
        ({"type": "string", "default": "John Doe"}, "John Doe", "John Doe"),
        ({"type": "integer", "default": 30}, "30", 30),
        ({"type": "number", "default": 95.5}, "95.5", 95.5),
        ({"type": "boolean", "default": False}, "No", False),
        ({"type": "string", "oneOf": [{"const": "a", "title": "Assam"}], "default": "a"}, "Assam", "a"),
    ],
)
def test_what_the_server_proposes_is_shown_and_taken_by_a_word(schema: Any, shown: str, value: Any) -> None:
    [point] = points_of({"one": form(field=schema)}, None)
    assert point.proposed == (shown, value)
    assert point.read("as proposed") == value
    is_choice = bool(point.choices)
    assert (AS_PROPOSED in [label for label, _ in point.offered]) is not is_choice
    assert is_choice or f'"{AS_PROPOSED}"' in point.expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "string", "default": ""},
        {"type": "string", "default": "x" * 1_000},
        {"type": "integer", "default": "many"},
        {"type": "integer", "maximum": 4, "default": 5},
        {"type": "string", "enum": ["a"], "default": "b"},
        {"type": "number", "default": None},
        {"type": "number", "default": [1]},
    ],
)
def test_what_is_proposed_and_does_not_fit_or_cannot_be_shown_is_none(schema: Any) -> None:
    [point] = points_of({"one": form(field=schema)}, None)
    assert point.proposed is None
    if schema["type"] != "string" or "enum" in schema:
        with pytest.raises(AnswerWrong):
            point.read(AS_PROPOSED)
