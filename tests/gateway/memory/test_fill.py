"""A memory that is too long for its room: what the question needs and the newest of it, and never more than fits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.memory.fill import GAP, Filler
from gateway.memory.render import render_memory
from gateway.protocols import MemoryContext

ENTRIES = [f"Entry {number}: nothing much happened." for number in range(900)]
DIARY = "\n\n".join(["# Notes", "The boiler's serial number is 4471-K.", *ENTRIES])
NEEDED = "The boiler's serial number is 4471-K."


def section(question: str, max_chars: int = 20_000, *, memory: str = DIARY) -> str:
    filler = Filler()
    context = MemoryContext(user_memory="Ada", project_memory=memory)
    return render_memory(context, max_chars, fill=lambda text, room: filler.fill(text, question, room)) or ""


def test_what_the_question_needs_is_there_though_it_is_the_oldest_and_the_newest_is_there_too() -> None:
    shown = section("what is the serial number of our boiler?")
    assert NEEDED in shown
    assert "Entry 899: nothing much happened." in shown
    assert len(shown) <= 20_000
    assert len(shown) > 19_900
    assert shown.index(NEEDED) < shown.index("Entry 899")


def test_a_question_without_a_match_gets_the_newest_and_the_plain_rule_has_no_eye_for_the_question() -> None:
    shown = section("xyzzy")
    assert NEEDED not in shown
    assert shown.endswith("Entry 899: nothing much happened.")
    assert GAP in shown
    context = MemoryContext(user_memory="Ada", project_memory=DIARY)
    assert NEEDED not in (render_memory(context, 20_000) or "")


def test_a_memory_that_fits_is_shown_whole() -> None:
    assert section("boiler", memory="one\n\ntwo") == "## About You\n\nAda\n\n## Memory\n\none\n\ntwo"


def test_of_a_long_paragraph_the_lines_that_are_needed_are_shown() -> None:
    lines = "\n".join(f"- item {number} is in the attic" for number in range(400))
    shown = section("where is the ladder?", 2_000, memory=f"- the ladder is at Ben's\n{lines}")
    assert "- the ladder is at Ben's" in shown
    assert "- item 399 is in the attic" in shown


@settings(max_examples=60)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=120), max_size=30).map("\n\n".join),
    st.text(max_size=40),
    st.integers(1, 900),
)
def test_it_is_never_longer_than_the_room_and_every_line_is_of_the_memory(text: str, question: str, room: int) -> None:
    filled = Filler().fill(text, question, room)
    if filled is not None:
        assert len(filled) <= room
        for part in filled.split(GAP):
            assert part.strip("\n") in text
