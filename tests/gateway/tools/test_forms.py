"""What a person writes in answer to a server: which value it is, and what is expected where it is none."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequests

from gateway.mcp.questions import points_of
from gateway.tools.forms import AnswerWrong, Point, Value


def point(schema: dict[str, Any], *, is_required: bool = True) -> Point:
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"] if is_required else []}
    requests: InputRequests = {
        "k": ElicitRequest(params=ElicitRequestFormParams(message="Say.", requested_schema=whole))
    }
    [found] = points_of(requests, None)
    return found


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " tea ", "tea"),
        ({"type": "string", "format": "email"}, "ada@example.org", "ada@example.org"),
        ({"type": "string", "format": "date"}, "2026-11-27", "2026-11-27"),
        ({"type": "integer"}, "-3", -3),
        ({"type": "number", "minimum": 0}, "0.5", 0.5),
        ({"type": "boolean"}, "YES", True),
        ({"type": "boolean"}, "2", False),
        ({"type": "string", "enum": ["a", "b"]}, "B", "b"),
        ({"type": "string", "enum": ["2", "1"]}, "1", "1"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["Tea", "Milk"]}, "milk", "b"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "Tea"}]}, "1", "a"),
    ],
)
def test_what_is_written_is_a_value_of_the_field(schema: dict[str, Any], text: str, value: Value) -> None:
    found = point(schema).read(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "string", "minLength": 3}, "ab", "a text of at least 3 characters"),
        ({"type": "string", "format": "email"}, "ada", "a mail address"),
        ({"type": "string", "format": "date"}, "tomorrow", "a date such as 2026-11-27"),
        ({"type": "integer", "maximum": 9}, "10", "a whole number of at most 9"),
        ({"type": "integer"}, "1.5", "a whole number"),
        ({"type": "number"}, "nan", "a number"),
        ({"type": "boolean"}, "perhaps", "one of: Yes, No"),
        ({"type": "string", "enum": ["a", "b"]}, "3", "one of: a, b"),
    ],
)
def test_what_does_not_fit_is_told_without_what_was_written(schema: dict[str, Any], text: str, expected: str) -> None:
    with pytest.raises(AnswerWrong) as error:
        point(schema).read(text)
    assert str(error.value) == expected


def test_what_is_not_required_may_be_left_out() -> None:
    assert point({"type": "string"}, is_required=False).read("leave out") is None
    assert point({"type": "boolean"}, is_required=False).read("3") is None
    assert point({"type": "string"}).read("leave out") == "leave out"
