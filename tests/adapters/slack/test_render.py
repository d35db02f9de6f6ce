"""Row 33: the agent's Markdown in Slack: harmless, whole, and in pieces that can be read."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.slack import render
from tests.adapters.slack.fake_slack import read


def utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@given(st.text())
@example("&lt;!channel&gt; &#60; &amp;amp; &copy; & AT&T ?a=1&b=2")
@example("> quoted\n > > again\n1 > 0\n`a < b && c > d`")
def test_any_text_is_read_back_whole(text: str) -> None:
    assert read({"text": render.escaped(text)}) == text
    assert read({"text": render.plain(text)}) == text


@pytest.mark.parametrize(
    "token", ["<!channel>", "<!here>", "<!everyone>", "<@U123>", "<#C123>", "<!subteam^S1>", "<https://evil|bank>"]
)
def test_nothing_that_slack_obeys_gets_through(token: str) -> None:
    for text in (token, f"`{token}`", f"> {token}", f"```\n{token}\n```", f"**{token}**", token.replace("<", "<<")):
        assert "<" not in render.escaped(text)
        assert "<" not in render.plain(text)


def test_quotations_and_the_addresses_of_links_stay_as_they_are() -> None:
    text = "> so be it\n[a link](https://example.org/?a=1&b=2)"
    assert render.escaped(text) == text


def test_what_looks_like_an_entity_is_shown_as_it_was_written() -> None:
    assert render.escaped("&lt; &#60; &copy; AT&T") == "&amp;lt; &amp;#60; &amp;copy; AT&T"


@given(st.text(), st.integers(min_value=600, max_value=900))
def test_pieces_are_short_enough_and_never_blank(text: str, limit: int) -> None:
    for piece in render.split(text * 20, limit):
        assert utf16_units(render.escaped(piece)) <= limit
        assert piece.strip()


@given(st.text(alphabet=st.characters(exclude_characters="`~", exclude_categories=("Cs", "Z", "Cc")), min_size=1))
def test_joined_they_are_the_text(text: str) -> None:
    text = f"{text} " * 50
    assert "".join(render.split(text, 600)).strip() == text.strip()


def test_words_are_not_cut() -> None:
    words = [f"word{number}" for number in range(2_000)]
    found = [word for piece in render.split(" ".join(words), 700) for word in piece.split()]
    assert found == words


def test_paragraphs_are_kept_together_where_they_fit() -> None:
    paragraph = "one two three four five six seven. " * 14
    text = f"{paragraph}\n\n{paragraph}\n\n{paragraph}"
    assert render.split(text, 1_200) == [f"{paragraph}\n\n{paragraph}\n\n", paragraph]


@pytest.mark.parametrize("character", ["👩‍👩‍👧", "🇩🇪", "e\u0301", "👍🏽", "☎️"])
@pytest.mark.parametrize("limit", range(601, 606))
def test_a_character_that_is_made_of_several_is_not_cut(character: str, limit: int) -> None:
    found = render.split(character * 700, limit)
    assert len(found) > 1
    assert all(len(piece) % len(character) == 0 for piece in found)
    assert all(piece == character * (len(piece) // len(character)) for piece in found)


def test_a_code_block_that_is_cut_is_closed_and_opened_again() -> None:
    code = "".join(f"line {number} of the program\n" for number in range(100))
    found = render.split(f"Look:\n\n```python\n{code}```\nThat was it.", 800)
    assert len(found) > 2
    for piece in found:
        assert piece.count("```") % 2 == 0
    for piece in found[1:-1]:
        assert piece.startswith("```python\nline")
        assert piece.endswith("\n```")
    lines = [line for piece in found for line in piece.splitlines() if line.startswith("line ")]
    assert lines == code.splitlines()


def test_a_fence_within_a_longer_fence_is_only_text() -> None:
    text = "````md\n```\n" + "inside\n" * 200 + "```\n````\n"
    for piece in render.split(text, 700)[:-1]:
        assert piece.endswith("````")


def test_a_text_that_grows_keeps_its_pieces_but_the_last() -> None:
    text = "The quick brown fox. " * 300
    whole = render.split(text, 700)
    for end in range(0, len(text), 97):
        part = render.split(text[:end], 700)
        assert part[:-1] == whole[: max(0, len(part) - 1)]
