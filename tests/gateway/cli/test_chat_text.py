"""What a model wrote is shown, and cannot control the terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.chat_screen import render_markdown, tail
from gateway.cli.chat_text import clean, neutralise

OUR_STYLES = re.compile(r"\x1b\[[0-9;]*m")  # SGR, which only sets colours and weights
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

ATTACKS = [
    "\x1b[2J\x1b[H gone",  # clears the screen
    "\x1b]0;title\x07",  # sets the title
    "\x1b]52;c;ZXZpbA==\x07",  # writes the clipboard
    "\x9b2J",  # the same with one character
    "\x1bP$q\x1b\\",  # asks the terminal, which would type the answer
    "over\rwritten\b\b\b",
    "`code \x1b[31m`",
    "```\n\x1b]8;;http://evil\x1b\\\n```",
    "[bank](http://evil.example/\x1b[2J)",
    "&#27;[2J &#155;2J &#x1b;[2J &#13; &#8; &#12; &#7;",  # entities, controls only after parsing
    "a\x00b",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_no_escape_sequence_of_the_model_reaches_the_terminal(text: str) -> None:
    assert not CONTROLS.search(neutralise(text))
    assert not CONTROLS.search(tail(text, columns=40, rows=5))
    for is_coloured in (True, False):
        assert not CONTROLS.search(OUR_STYLES.sub("", render_markdown(text, columns=80, is_coloured=is_coloured)))


@given(st.text(st.characters()))
def test_whatever_the_text_nothing_but_our_styles_reaches_the_terminal(text: str) -> None:
    assert not CONTROLS.search(neutralise(text))
    assert not CONTROLS.search(OUR_STYLES.sub("", render_markdown(text, columns=40, is_coloured=True)))


@given(st.text(st.characters()))
def test_what_is_cleaned_can_be_kept_by_every_file_and_database(text: str) -> None:
    assert "\0" not in clean(text)
    assert len(clean(text).encode().decode()) == len(text)


def test_what_is_neutralised_stays_visible() -> None:
    assert neutralise("a\x1b[2Jb\r\nc\td\x9be\ud800") == "a␛[2Jb\nc\td\ufffde\ufffd"


def test_no_text_turns_the_direction_of_what_follows() -> None:
    assert neutralise("Rex\u202e is a dog\u2066") == "Rex⟨U+202E⟩ is a dog⟨U+2066⟩"


def test_plain_text_of_any_script_stays_as_it_is() -> None:
    text = "Grüße, 漢字 👩‍👩‍👧\n\t\u0634\u0643\u0631"
    assert neutralise(text) == text


def test_markdown_is_rendered() -> None:
    rendered = render_markdown("# Title\n\n**bold** and `code`\n\n- item", columns=40, is_coloured=True)
    assert "\x1b[1m" in rendered
    plain = OUR_STYLES.sub("", rendered)
    assert "Title" in plain
    assert "**" not in plain
    assert "• item" in plain


def test_without_colours_there_are_none() -> None:
    rendered = render_markdown("**bold** `code`\n\n```python\nx = 1\n```", columns=40, is_coloured=False)
    assert not re.search(r"\x1b\[[0-9;]*(3|4|9|10)[0-9]", rendered)


def test_a_link_shows_where_it_leads() -> None:
    assert "http://evil.example" in render_markdown("[bank](http://evil.example)", columns=80, is_coloured=False)


def test_the_tail_is_the_end_of_the_text_wrapped_to_the_width() -> None:
    assert tail("one\ntwo\nabcdefgh", columns=4, rows=3) == "two\nabcd\nefgh"
    assert tail("漢字漢字", columns=4, rows=9) == "漢字\n漢字"
    assert tail("a\n\nb", columns=4, rows=9) == "a\n\nb"


@given(st.text(), st.integers(10, 80), st.integers(1, 20))
def test_the_tail_never_has_more_rows_than_there_are(text: str, columns: int, rows: int) -> None:
    assert tail(text, columns=columns, rows=rows).count("\n") < rows
