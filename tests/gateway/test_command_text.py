"""Commands in our own words stand as they are typed on the channel where the words are read."""

from __future__ import annotations

import pytest

from gateway.domain.command_text import in_form
from gateway.messages import Capabilities

PLAIN = Capabilities(max_text_chars=1_000)
SPACED = Capabilities(max_text_chars=1_000, command_form="/bot {command}", group_command_form="@bot /{command}")


@pytest.mark.parametrize(
    ("text", "direct", "group"),
    [
        ("Type `/link yes`.", "Type `/bot link yes`.", "Type `@bot /link yes`."),
        ("`/memory [log | undo [N]]`, `/help`", "`/bot memory [log | undo [N]]`, `/bot help`", None),
        ("A path is `/etc/passwd`, a word /link.", "A path is `/etc/passwd`, a word /link.", None),
        ("```\n+Type `/link`\n```\n`/link`", "```\n+Type `/link`\n```\n`/bot link`", None),
    ],
)  # fmt: skip
def test_a_command_is_told_as_it_is_typed_and_what_is_fenced_is_left_alone(
    text: str, direct: str, group: str | None
) -> None:
    assert in_form(text, SPACED) == direct
    if group is not None:
        assert in_form(text, SPACED, is_direct=False) == group
    assert in_form(text, PLAIN) == text
    assert in_form(text, None) == text
