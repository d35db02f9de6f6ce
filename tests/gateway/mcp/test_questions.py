"""What a server asks is bounded, and a form that cannot be read is refused in words."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from gateway.mcp.questions import MAX_ADDRESS_CHARS, MAX_CHOICES, MAX_WORDS_CHARS, points_of
from gateway.tools.contract import ToolError


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
