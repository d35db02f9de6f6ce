"""A text of the agent's is shown whole, in pieces that read well."""

from __future__ import annotations

import asyncio
import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.discord.outbound import posts_of
from adapters.discord.render import LONG_CODE_CHARS, MAX_CHARS, preview, render, split
from gateway.messages import ConversationRef, OutboundMessage

FAMILY, FLAG, THUMB, ACCENT = "👩‍👩‍👧‍👦", "🇦🇹", "👍🏽", "e\u0301"
HANGUL = "\u1100\u1161\u11a8"  # one syllable of three letters
SCOTLAND = "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
BITS = (
    "word ",
    "word. ",
    "\n",
    "\n\n",
    "```\n",
    "```py\n",
    "    x = 1\n",
    "~~~\n",
    "| a | b |\n",
    "`",
    "`" * 30,
    "x" * 30,
)
MARKDOWN = st.lists(st.sampled_from((*BITS, FAMILY, FLAG, THUMB, ACCENT, "漢")), max_size=60).map("".join)


# ---- pieces ---------------------------------------------------------------------------------------------------------


@given(st.one_of(MARKDOWN, st.text()), st.integers(80, 200))
@example("```\n" + "x" * 300, 80)
@example("`" * 500, 80)
@example("```\n" + "x\n" * 100 + "```" + " " * 200 + "end", 80)
def test_the_bodies_of_the_pieces_are_the_text_and_each_piece_fits(text: str, max_chars: int) -> None:
    pieces = split(text, max_chars)
    assert "".join(piece.body for piece in pieces) == text
    assert all(len(piece.content) <= max_chars for piece in pieces)
    assert all(piece.body for piece in pieces)


def test_the_limit_counts_code_points() -> None:
    assert len(split("🦊" * MAX_CHARS)) == 1
    assert len(split("🦊" * (MAX_CHARS + 1))) == 2


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a" * 50 + "\n\n" + "b " * 40, "a" * 50 + "\n\n"),
        ("a " * 25 + "\n" + "b " * 40, "a " * 25 + "\n"),
        ("One. " * 15 + "Two " * 20, None),
        ("word " * 40, "word " * 20),
    ],
    ids=["paragraphs", "lines", "sentences", "words"],
)
def test_a_text_is_cut_where_a_reader_would(text: str, first: str | None) -> None:
    pieces = split(text, 100)
    assert pieces[0].body == (first if first is not None else "One. " * 15)


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=12), min_size=30, max_size=60))
def test_no_word_is_cut(words: list[str]) -> None:
    pieces = split(" ".join(words), 100)
    assert [word for piece in pieces for word in piece.body.split()] == words


@pytest.mark.parametrize("character", [FAMILY, FLAG, THUMB, ACCENT, "\r\n", SCOTLAND, HANGUL], ids=ascii)
def test_no_character_is_cut(character: str) -> None:
    for offset in range(len(character)):
        for piece in split("x" * offset + character * 60, 80):
            body = piece.body.lstrip("x")
            assert body.replace(character, "") == "", f"{body!r} begins or ends within a character"


def test_a_code_block_that_fits_is_kept_whole() -> None:
    block = "```py\n" + "x = 1\n" * 10 + "```"
    pieces = split(f"{'word ' * 12}\n{block}\nend", 100)
    assert [piece.content.strip() for piece in pieces] == [("word " * 12).strip(), f"{block}\nend"]


def test_a_code_block_that_is_too_long_is_closed_and_opened_again_between_two_lines() -> None:
    lines = [f"line_{number} = {number}" for number in range(60)]
    pieces = split("```py\n" + "\n".join(lines) + "\n```\nThe end.", 200)
    assert len(pieces) > 4
    shown: list[str] = []
    for piece in pieces:
        block = re.match(r"```py\n(.*?)\n?```", piece.content, re.DOTALL)
        assert block is not None
        assert piece.content.count("```") == 2
        shown += block[1].split("\n")
    assert shown == lines


@pytest.mark.parametrize("spaces", range(0, 60, 7))
def test_a_code_block_is_never_cut_between_its_code_and_its_end(spaces: int) -> None:
    text = "```\n" + "x = 1\n" * 14 + "```" + " " * spaces + "\n" + "word " * 20
    for piece in split(text, 100):
        assert piece.content.count("```") in (0, 2), piece


def test_nothing_is_too_strange_to_be_cut() -> None:
    zalgo = "e" + "\u0301" * 500
    assert "".join(piece.body for piece in split(zalgo, 100)) == zalgo
    assert unicodedata.category("\u0301") == "Mn"


# ---- what Discord shows ---------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_characters="#|!`~\0", exclude_categories=["Cs"])))
def test_a_text_without_anything_special_stays_as_it_is(text: str) -> None:
    assert render(text).text == text
    assert render(text).files == ()


@given(MARKDOWN)
def test_words_are_never_lost(text: str) -> None:
    rendered = render(text)
    everything = rendered.text + "".join(file.content for file in rendered.files)
    for mark in ("word", "漢", FLAG):
        assert everything.count(mark) >= text.count(mark)


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("# One\n### Three", "# One\n### Three"),
        ("#### Four", "**Four**"),
        ("###### **Six** ##", "**Six**"),
        ("#### C#", "**C#**"),
        ("#### ##", ""),
        ("#### " + " " * 5_000 + "far", "**far**"),
        ("![a cat](https://x.y/cat.png)", "[a cat](https://x.y/cat.png)"),
        ('![](<https://x.y/cat.png> "title")', "[picture](<https://x.y/cat.png>)"),
        ("`![code](x)`", "`![code](x)`"),
        ("```\n#### no heading\n![no](picture)\n```", "```\n#### no heading\n![no](picture)\n```"),
        ("~~~py\nx = '```'\n~~~", "````py\nx = '```'\n````"),
        ("a | b\nno table", "a | b\nno table"),
        ("nul \0 and half \ud83e", "nul \ufffd and half \ufffd"),
    ],
)
def test_markdown_becomes_what_discord_shows(markdown: str, shown: str) -> None:
    assert render(markdown).text == shown


def test_a_table_becomes_aligned_text() -> None:
    table = "| name | born |\n|:---|---:|\n| Ada | 1815 |\n| 漢字 | 100 \\| x |\n\nAfter."
    assert render(table).text == ("```\nname  born\n----  -------\nAda   1815\n漢字  100 | x\n```\n\nAfter.")


def test_a_row_with_too_many_cells_loses_none() -> None:
    assert "extra" in render("| a | b |\n|---|---|\n| 1 | 2 | extra |").text


def test_a_language_that_names_no_ending_is_told() -> None:
    code = "x = 1\n" * 400
    rendered = render(f"```brain fuck\n{code}```")
    assert rendered.text == "(see the file `code-1.txt`: brain fuck)"
    assert rendered.files[0].inline == f"`code-1.txt`:\n```brain fuck\n{code}```"


@settings(deadline=None)
@given(MARKDOWN, st.booleans())
def test_nothing_is_lost_between_the_parts_and_their_files(text: str, has_files: bool) -> None:
    """Every word of a text, its code and its tables is in one of them."""
    message = OutboundMessage(
        id="t_1", conversation=ConversationRef(channel="d", conversation="1"), text=f"begin\n\n{text * 20}"
    )
    found = asyncio.run(posts_of(message, has_files=has_files))
    contents = "".join(part.content + "".join(content.decode() for _, content in part.files) for part in found)
    for mark in ("word", "漢", FLAG):
        assert contents.count(mark) >= message.text.count(mark)
    assert all(len(part.content) <= MAX_CHARS for part in found)
    assert has_files or not any(part.files for part in found)


def test_a_wide_table_becomes_a_file() -> None:
    rendered = render(f"| a | b |\n|---|---|\n| {'x' * 60} | {'y' * 60} |\nAfter.")
    assert rendered.text == "(see the file `table-1.txt`)\nAfter."
    assert "y" * 60 in rendered.files[0].content


def test_long_code_becomes_a_file_named_after_its_language() -> None:
    code = "x = 1\n" * (LONG_CODE_CHARS // 6 + 1)
    rendered = render(f"See:\n```python\n{code}```\nand\n```\n{code}```")
    assert rendered.text == "See:\n(see the file `code-1.py`)\nand\n(see the file `code-2.txt`)"
    assert rendered.files[0].content == code


def test_more_files_than_a_message_takes_are_not_made() -> None:
    code = "```\n" + "x = 1\n" * 400 + "```\n"
    rendered = render(code * 12)
    assert len(rendered.files) == 10
    assert rendered.text.count("```") == 4


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_preview_shows_nothing(text: str) -> None:
    assert preview(text) == ""


@given(MARKDOWN)
def test_a_preview_is_one_message(text: str) -> None:
    assert len(preview(text * 40)) <= MAX_CHARS
