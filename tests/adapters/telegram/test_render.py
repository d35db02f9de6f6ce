"""Row 33: what becomes of the agent's Markdown: pieces that Telegram takes, with nothing lost between them."""

from __future__ import annotations

import csv
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.telegram.render import (
    MAX_STYLES,
    MAX_UNITS,
    FilePiece,
    Piece,
    Table,
    TextPiece,
    cut_position,
    render,
    split_tables,
)
from tests.adapters.telegram.fake_telegram import utf16

FAMILY = "👩‍👩‍👧"
HANGUL = "\u1100\u1161\u11a8"  # one syllable of three letters


def texts(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces if isinstance(piece, TextPiece)]


def markdown(text: str, *, is_group: bool = False) -> list[Piece]:
    return render(text, is_markdown=True, is_group=is_group)


def plain(text: str) -> list[Piece]:
    return render(text, is_markdown=False, is_group=False)


def only(pieces: list[Piece]) -> TextPiece:
    assert len(pieces) == 1
    assert isinstance(pieces[0], TextPiece)
    return pieces[0]


def styled(piece: TextPiece) -> list[tuple[str, str]]:
    raw = piece.text.encode("utf-16-le")
    return [(style.kind, raw[2 * style.start : 2 * style.end].decode("utf-16-le")) for style in piece.styles]


# ---- Markdown -------------------------------------------------------------------------------------------------------


def test_markdown_is_shown_as_styles() -> None:
    piece = only(markdown("😀 **bold** _it_ `code` ~~gone~~ [word](https://a.example)"))
    assert piece.text == "😀 bold it code gone word"
    assert set(styled(piece)) == {
        ("bold", "bold"), ("italic", "it"), ("code", "code"), ("strikethrough", "gone"), ("text_link", "word"),
    }  # fmt: skip


def test_headings_and_lists_get_no_pictures() -> None:
    assert only(markdown("# Head\n\n- one\n- two")).text.strip() == "Head\n\n• one\n• two"


def test_a_table_is_set_in_columns() -> None:
    piece = only(markdown("|a|b|\n|-|-|\n|1|2|\n|longer|x|"))
    assert piece.text.splitlines()[0] == "a      | b"
    assert piece.styles[0].kind == "pre"


@pytest.mark.parametrize("text", ["vector<int> v", "a <b>x</b> <!-- c --> d", "<!channel> <@U123>", "<div>\nx\n</div>"])
def test_what_looks_like_html_is_shown_and_not_dropped(text: str) -> None:
    assert only(markdown(text)).text == text


def test_less_than_stays_itself_in_code_too() -> None:
    piece = only(markdown("```cpp\nvector<int> v;\n```\n`a<b`"))
    assert "vector<int> v;" in piece.text
    assert ("code", "a<b") in styled(piece)
    assert piece.styles[0].language == "cpp"


@pytest.mark.parametrize("text", ["5*3*2 = 30", "`5*3*2`", "a **5*3** b", "[x](https://a.example/5*3)"])
def test_the_star_of_a_product_is_no_emphasis(text: str) -> None:
    piece = only(markdown(text))
    assert piece.text.count("*") + sum((style.url or "").count("*") for style in piece.styles) == len(
        re.findall(r"\d\*\d", text.replace("5*3*2", "5*3 3*2"))
    )
    assert not [style for style in piece.styles if style.kind == "italic"]


def test_a_text_of_which_nothing_would_be_left_is_shown_as_it_was_written() -> None:
    assert only(markdown("[a]: https://a.example")).text == "[a]: https://a.example"


def test_latex_and_escaped_brackets_are_not_mixed_up() -> None:
    assert only(markdown(r"\[not a formula\] and \*no star\*")).text == "[not a formula] and *no star*"


def test_plain_markup_shows_every_sign() -> None:
    assert only(plain("# **x** <b>")) == TextPiece(text="# **x** <b>")


@pytest.mark.parametrize("text", ["", "  \n", "\u0000"])
def test_a_blank_text_is_no_message(text: str) -> None:
    assert markdown(text) == plain(text) == []


def test_half_a_character_becomes_a_sign_that_can_be_sent() -> None:
    assert only(plain("a\ud83db")).text == "a\ufffdb"


# ---- nobody is called -----------------------------------------------------------------------------------------------


def test_names_in_a_group_are_set_as_code_so_that_nobody_is_called() -> None:
    piece = only(markdown("@everyone, @ada_l and **@bob_b**: mail me@host.example", is_group=True))
    assert [text for kind, text in styled(piece) if kind == "code"] == ["@everyone", "@ada_l", "@bob_b"]


def test_names_in_code_and_in_private_chats_are_left_alone() -> None:
    assert [kind for kind, _ in styled(only(markdown("`@decorator`", is_group=True)))] == ["code"]
    assert only(markdown("@everyone")).styles == ()


@pytest.mark.parametrize("url", ["tg://user?id=42", "javascript:alert(1)", "TG://resolve?domain=x", "intent:x"])
def test_a_link_to_an_account_or_a_program_is_only_its_words(url: str) -> None:
    piece = only(markdown(f"[click]({url}) and ![x](tg://emoji?id=5368324170671202286)"))
    assert not [style for style in piece.styles if style.kind in ("text_link", "custom_emoji", "text_mention")]


# ---- splitting ------------------------------------------------------------------------------------------------------


def test_a_long_text_is_cut_between_paragraphs() -> None:
    paragraph = "word " * 300
    pieces = texts(plain("\n\n".join([paragraph.strip()] * 6)))
    assert len(pieces) == 3
    assert all(piece.startswith("word") and piece.endswith("word") for piece in pieces)


def test_words_are_not_cut() -> None:
    word = "antidisestablishmentarianism"
    pieces = texts(plain(" ".join([word] * 600)))
    assert set(" ".join(pieces).split()) == {word}


def test_sentences_are_kept_together_where_there_are_no_lines() -> None:
    pieces = texts(plain("This is a sentence. " * 500 + "The end."))
    assert all(piece.endswith(".") for piece in pieces)


@pytest.mark.parametrize(
    "character", [FAMILY, HANGUL, "🇩🇪", "e\u0301\u0323", "👍🏽", "🏴\U000e0067\U000e0062\U000e007f", "❤️"]
)
def test_a_character_is_never_cut(character: str) -> None:
    for shift in range(len(character) + 1):
        pieces = texts(plain("x" * shift + character * 3000))
        assert all(re.fullmatch(f"x*({re.escape(character)})+", piece) for piece in pieces)


def test_code_that_fits_into_one_message_is_not_torn_over_two() -> None:
    code = "\n".join(f"line {number}" for number in range(390))
    before, block, after = markdown(f"{'before ' * 120}\n\n```python\n{code}\n```\n\n{'after ' * 300}")
    assert isinstance(before, TextPiece)
    assert isinstance(block, TextPiece)
    assert isinstance(after, TextPiece)
    assert before.text.strip() == ("before " * 120).strip()
    assert block.text.startswith(code)
    assert (before.styles, after.styles) == ((), ())


def test_code_that_is_too_large_for_a_file_is_cut_and_is_code_on_both_sides_with_its_indentation() -> None:
    code = "\n".join(f"    line {number}" for number in range(500))
    pieces = render(f"```python\n{code}\n```\n", is_markdown=True, is_group=False, max_file_bytes=100)
    both = [piece for piece in pieces if isinstance(piece, TextPiece)]
    assert len(both) == len(pieces) == 2
    assert [piece.styles[0].language for piece in both] == ["python", "python"]
    assert both[-1].text.startswith("    line")
    assert "\n".join(texts(pieces)).split() == code.split()


def test_no_piece_has_more_styles_than_telegram_reads() -> None:
    pieces = markdown(" ".join(f"**b{number}**" for number in range(350)))
    assert [len(piece.styles) for piece in pieces if isinstance(piece, TextPiece)] == [100, 100, 100, 50]
    assert " ".join(texts(pieces)).split() == [f"b{number}" for number in range(350)]


@pytest.mark.parametrize("text", ["x" * 20_000, "😀" * 9_000, "\u0301" * 9_000, "\n" * 9_000 + "x", " " * 9_000 + "x"])
def test_a_text_without_any_place_to_cut_is_cut_all_the_same(text: str) -> None:
    pieces = texts(plain(text))
    assert "".join(pieces).replace("\n", "").replace(" ", "") == text.strip()
    assert max(map(utf16, pieces)) <= MAX_UNITS


# ---- files ----------------------------------------------------------------------------------------------------------


def test_long_code_goes_as_a_file_between_the_texts_around_it_and_the_text_names_it() -> None:
    code = "\n".join(f"print({number})" for number in range(500))
    first, file, last = markdown(f"before\n\n```python\n{code}\n```\n\nafter")
    assert isinstance(file, FilePiece)
    assert (file.filename, file.content.decode().strip()) == ("code-1.py", code)
    assert [piece.text.strip() for piece in (first, last) if isinstance(piece, TextPiece)] == [
        "before\n\n(see code-1.py)", "after",
    ]  # fmt: skip


def test_a_long_table_goes_as_a_file_for_a_spreadsheet() -> None:
    rows = "\n".join(f"|{number}|**{'x' * 30}** a\\|b|" for number in range(200))
    first, file, last = markdown(f"Look:\n\n|n|text|\n|-|-|\n{rows}\n\nThat is all.")
    assert isinstance(file, FilePiece)
    assert file.filename == "table-1.csv"
    lines = list(csv.reader(file.content.decode("utf-8-sig").splitlines()))
    assert lines == [["n", "text"], *([str(number), f"**{'x' * 30}** a|b"] for number in range(200))]
    assert texts([first, last]) == ["Look:\n\n(see table-1.csv)", "That is all."]


def test_a_short_table_stays_in_the_text() -> None:
    assert only(markdown("Look:\n\n|n|text|\n|-|-|\n|1|x|")).text.startswith("Look:\n\nn | text")


def test_files_are_numbered_by_kind_in_their_order() -> None:
    table = "|n|text|\n|-|-|\n" + "\n".join(f"|{number}|{'x' * 30}|" for number in range(200))
    code = "```\n" + "line\n" * 1000 + "```"
    pieces = markdown(f"{code}\n\n{table}\n\n{code}")
    assert [piece.filename for piece in pieces if isinstance(piece, FilePiece)] == [
        "text-1.txt", "table-1.csv", "text-2.txt",
    ]  # fmt: skip
    assert texts(pieces) == ["(see text-1.txt)", "(see table-1.csv)", "(see text-2.txt)"]


def test_a_table_that_is_too_large_for_a_file_is_cut_as_text() -> None:
    table = "|n|text|\n|-|-|\n" + "\n".join(f"|{number}|{'x' * 30}|" for number in range(200))
    pieces = render(f"Look:\n\n{table}\n\nend", is_markdown=True, is_group=False, max_file_bytes=100)
    shown = "\n".join(texts(pieces))
    assert len(texts(pieces)) == len(pieces) > 1
    assert all(f"{number} " in shown for number in range(200))


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"), ("@SUM(A1)", "'@SUM(A1)"), ("+cmd", "'+cmd"), ("-2+3", "'-2+3"), ("--", "'--"),
        ("-5", "-5"), ("+1,234.50", "+1,234.50"), ("-7%", "-7%"), ("plain", "plain"), ("", ""),
    ],
)  # fmt: skip
def test_a_cell_of_the_model_is_no_formula_for_whoever_opens_the_file(cell: str, written: str) -> None:
    ((only_cell,),) = csv.reader(Table(source="", rows=[[cell]]).as_csv().decode("utf-8-sig").splitlines() or ['""'])
    assert only_cell == written


def test_a_table_inside_of_a_list_or_of_code_is_left_there() -> None:
    text = "- one\n\n  |a|b|\n  |-|-|\n  |1|2|\n\n```\n|a|\n|-|\n|1|\n```"
    assert list(split_tables(text, lambda _: True)) == [text]


# ---- properties -----------------------------------------------------------------------------------------------------

MARKS = st.sampled_from(
    ["**", "_", "`", "```\n", "\n", "\n\n", "- ", "> ", "# ", "|", "<b>", "[a](https://b.c)", "@name_x"]
)
TEXT = st.lists(st.text(max_size=30) | MARKS | st.sampled_from(["word " * 200, "😀" * 500, FAMILY]), max_size=40).map(
    "".join
)


@given(text=TEXT, is_markdown=st.booleans(), is_group=st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_piece_is_one_that_telegram_takes(text: str, is_markdown: bool, is_group: bool) -> None:
    pieces = render(text, is_markdown=is_markdown, is_group=is_group)
    assert pieces == render(text, is_markdown=is_markdown, is_group=is_group)
    for piece in pieces:
        if isinstance(piece, TextPiece):
            assert piece.text.strip()
            assert utf16(piece.text) <= MAX_UNITS
            assert len(piece.styles) <= MAX_STYLES
            assert all(0 <= style.start < style.end <= utf16(piece.text) for style in piece.styles), piece


def letters(text: str) -> str:
    return "".join(character for character in text if not character.isspace())


@given(text=TEXT)
@example(text="Ünïcödé 👩‍👩‍👧 \u202e\u05e2\u05d1\u202c 漢字 \t end" * 200)
@settings(max_examples=150, deadline=None)
def test_any_text_is_there_whole_once_its_pieces_are_put_together(text: str) -> None:
    shown = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "")
    assert letters("".join(texts(plain(text)))) == letters(shown)


@given(words=st.lists(st.text("abcdefghij", min_size=1, max_size=12), min_size=1, max_size=900))
@settings(max_examples=40, deadline=None)
def test_markdown_without_marks_keeps_every_word(words: list[str]) -> None:
    assert " ".join(texts(markdown(" ".join(words)))).split() == words


WORD = st.text("abcdefghij", min_size=1, max_size=12)
BLOCK = st.one_of(
    st.tuples(st.just("text"), st.lists(WORD, min_size=1, max_size=400)),
    st.tuples(st.just("code"), st.lists(WORD, min_size=1, max_size=900)),
    st.tuples(st.just("table"), st.lists(WORD, min_size=2, max_size=500)),
)


def as_markdown(kind: str, words: list[str]) -> str:
    if kind == "code":
        return "```py\n" + "\n".join(words) + "\n```"
    if kind == "table":
        head, *rows = words
        return f"|{head}|n|\n|-|-|\n" + "\n".join(f"|{word}|{number}|" for number, word in enumerate(rows))
    return " ".join(words)


@given(blocks=st.lists(BLOCK, min_size=1, max_size=5), max_file_bytes=st.sampled_from([10, 5_000, 10**6]))
@settings(max_examples=60, deadline=None)
def test_every_word_of_every_block_arrives_in_a_text_or_in_a_file_in_its_order(
    blocks: list[tuple[str, list[str]]], max_file_bytes: int
) -> None:
    text = "\n\n".join(as_markdown(kind, words) for kind, words in blocks)
    pieces = render(text, is_markdown=True, is_group=False, max_file_bytes=max_file_bytes)
    arrived = " ".join(
        re.sub(r"\(see [\w.-]+\)", "", piece.text)
        if isinstance(piece, TextPiece)
        else piece.content.decode("utf-8-sig").replace(",", " ")
        for piece in pieces
    )
    assert re.findall("[a-j]+", arrived.replace("|n\n", "|\n").replace("| n", "|")) == [
        word for _, words in blocks for word in words
    ]
    for piece in pieces:
        if isinstance(piece, FilePiece):
            assert len(piece.content) <= max_file_bytes
            assert f"(see {piece.filename})" in "\n".join(texts(pieces))


@given(text=st.text(min_size=2, max_size=200), following=st.text(max_size=2))
def test_a_cut_always_takes_something_and_never_more_than_there_is(text: str, following: str) -> None:
    assert 0 < cut_position(text, following) <= len(text)


def test_a_task_that_is_not_done_has_an_empty_box() -> None:
    (piece,) = render("- [ ] todo\n- [x] done", is_markdown=True, is_group=False)
    assert isinstance(piece, TextPiece)
    assert piece.text.split("\n")[:2] == ["☐ todo", "☑ done"]
