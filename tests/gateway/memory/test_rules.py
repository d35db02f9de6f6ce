"""The rules on texts, against simple models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory import rules
from gateway.memory.delta import Delta
from gateway.memory.prompt_section import render_memory
from gateway.protocols import MemoryContext, MemoryUpdate

LINES = st.lists(st.text(alphabet="aB \tß日🙂\u2028", max_size=6), max_size=8)
TEXTS = LINES.map("\n".join)
ANY = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60)


@given(TEXTS, TEXTS)
def test_add_appends_one_paragraph(old, content):
    after = rules.apply(old, MemoryUpdate.add("memory", content))
    if not content.strip():
        assert after is None
    elif not old.strip():
        assert after == content.strip() + "\n"
    else:
        assert after == old.rstrip() + "\n\n" + content.strip() + "\n"


@given(TEXTS, st.text(alphabet="aB ß日", max_size=2))
def test_remove_drops_exactly_the_lines_that_contain_the_match(old, match):
    after = rules.apply(old, MemoryUpdate.remove("memory", match))
    kept = [line for line in old.split("\n") if match not in line]
    if not match.strip() or len(kept) == len(old.split("\n")):
        assert after is None
    else:
        assert after == "\n".join(kept).rstrip() + "\n"


@given(ANY, ANY)
def test_what_is_written_has_one_kind_of_line_end(old, content):
    after = rules.apply(old, MemoryUpdate.add("memory", content))
    assert after is None or "\r" not in after


@given(st.binary(max_size=50))
def test_bytes_that_are_not_utf8_pass_through_unharmed(data):
    assert rules.encode(rules.decode(data)) == data


@given(TEXTS.map(str.encode), st.integers(1, 40))
def test_a_cut_loses_no_byte_and_leaves_something(data, max_bytes):
    cut, kept = rules.cut_to_size(data, max_bytes)
    assert cut + kept == data
    assert len(kept) <= max_bytes
    if len(data) <= max_bytes:
        assert cut == b""
    elif data.strip() and max_bytes >= 4:  # a character has up to 4 bytes
        assert kept
        kept.decode()


def test_a_cut_keeps_the_newest_whole_lines_that_fit():
    assert rules.cut_to_size(b"one\ntwo\nthree\n", 10) == (b"one\n", b"two\nthree\n")
    assert rules.cut_to_size(b"one\ntwo\nthree\n", 9) == (b"one\ntwo\n", b"three\n")


def test_a_line_longer_than_the_file_is_cut_inside_between_two_characters():
    cut, kept = rules.cut_to_size("a\nßßßß\n".encode(), 6)
    assert (cut.decode(), kept.decode()) == ("a\nßß", "ßß\n")


# ---- delta ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"a", b"b\n", b"\n", b"cc"]), max_size=12), st.data())
def test_a_delta_goes_there_and_back_and_holds_whole_lines(pieces, data):
    before = b"".join(pieces)
    after = b"".join(data.draw(st.lists(st.sampled_from([b"a", b"b\n", b"\n", b"cc"]), max_size=12)))
    delta = Delta.between(before, after)
    assert delta.apply(before) == after
    assert delta.revert(after) == before
    for text in (before, after):
        starts = {0} | {at + 1 for at, byte in enumerate(text) if byte == 0x0A}
        assert delta.prefix_bytes in starts
        assert delta.suffix_bytes == 0 or len(text) - delta.suffix_bytes in starts


def test_a_delta_of_an_appended_paragraph_holds_nothing_but_the_paragraph():
    before = b"line\n" * 1000
    assert Delta.between(before, before + b"\nnew\n") == Delta(5000, 0, b"", b"\nnew\n")


# ---- rendering ------------------------------------------------------------------------------------------------------


def context(user, memory):
    return MemoryContext(user_memory=user, project_memory=memory)


def test_the_section_has_the_user_first_and_no_heading_without_text():
    assert render_memory(context("Ada\n", "Tea.\n")) == "## About You\n\nAda\n\n## Memory\n\nTea."
    assert render_memory(context(None, "Tea.")) == "## Memory\n\nTea."
    assert render_memory(context("Ada", " \n")) == "## About You\n\nAda"
    assert render_memory(context(" ", None)) is None
    assert render_memory(context(None, None)) is None


def test_the_tail_of_the_memory_is_kept_from_the_start_of_a_line():
    section = render_memory(context("Ada", "one\ntwo\nthree"), 60)
    assert section == "## About You\n\nAda\n\n## Memory\n\none\ntwo\nthree"
    section = render_memory(context("Ada", "a longer first line\ntwo\nthree"), 56)
    assert section == "## About You\n\nAda\n\n## Memory\n\n[...truncated]\ntwo\nthree"


def test_one_long_line_is_cut_inside_rather_than_dropped():
    section = render_memory(context(None, "x" * 100 + "END"), 40)
    assert len(section) == 40
    assert section.startswith("## Memory\n\n[...truncated]\nx")
    assert section.endswith("END")


def test_the_profile_is_cut_only_when_nothing_of_the_memory_is_left():
    assert render_memory(context("p" * 100, "m" * 100), 120) == "## About You\n\n" + "p" * 100
    section = render_memory(context("p" * 100, "m" * 100), 60)
    assert section.startswith("## About You\n\n[...truncated]\np")
    assert len(section) == 60


@given(TEXTS, TEXTS, st.integers(0, 80))
def test_the_section_is_never_longer_than_allowed_and_never_invents(user, memory, max_chars):
    section = render_memory(context(user, memory), max_chars)
    whole = render_memory(context(user, memory), 10_000)
    if section is None:
        assert whole is None or max_chars < len(whole)
        return
    assert len(section) <= max_chars
    if len(whole) <= max_chars:
        assert section == whole
    assert section.rpartition("[...truncated]\n")[2].strip("\n") in whole


@pytest.mark.parametrize("max_chars", range(60))
def test_a_cut_starts_at_the_start_of_a_line_when_a_line_fits(max_chars):
    section = render_memory(context(None, "aa\nbb\ncc\ndd"), max_chars)
    if section and "truncated" in section:
        tail = section.rpartition("[...truncated]\n")[2]
        assert tail in {"bb\ncc\ndd", "cc\ndd", "dd", "d"}
