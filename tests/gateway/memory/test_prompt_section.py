"""A memory that is too long for its room: what the question needs and the newest of it, and never more than fits."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import excerpt
from benchmarks.retrieval import DATA, load
from gateway.memory.prompt_section import GAP, LATER_GAP, Filler, render_memory
from gateway.protocols import MemoryContext

ENTRIES = [f"Entry {number}: nothing much happened." for number in range(900)]
DIARY = "\n\n".join(["# Notes", "The boiler's serial number is 4471-K.", *ENTRIES])
NEEDED = "The boiler's serial number is 4471-K."
TODAY = date(2026, 11, 18)


def section(question: str, max_chars: int = 20_000, *, memory: str = DIARY) -> str:
    filler = Filler()
    context = MemoryContext(user_memory="Ada", project_memory=memory)
    return render_memory(context, max_chars, fill=lambda text, room: filler.fill(text, question, room, TODAY)) or ""


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
    filled = Filler().fill(text, question, room, TODAY)
    if filled is not None:
        assert len(filled) <= room
        for part in filled.replace(GAP, LATER_GAP).split(LATER_GAP):
            assert part.strip("\n") in text


def test_what_stands_beside_a_match_and_the_heading_above_it_are_shown_and_nothing_of_the_next_heading() -> None:
    trip = "## Trip to Lisbon\n\nWho has the tickets?\n\nBen has them, in the blue folder."
    memory = "\n\n".join(["## Garden\n\nRoses need water.", trip, "## Work\n\nThe report is late.", *ENTRIES])
    shown = section("tickets", 4_000, memory=memory)
    assert trip in shown
    assert "The report is late." not in shown
    assert "Roses" not in shown


def test_an_answer_outranks_what_has_fewer_of_the_words_and_no_room_goes_to_what_is_beside_those() -> None:
    others = [f"Somebody asked about tickets, entry {number}.\n\nThe weather was fine." for number in range(200)]
    asked = "Ada: Who keeps the tickets to Lisbon?\n\nBen: I do, in the blue folder."
    shown = section("Who keeps the tickets to Lisbon?", 2_000, memory="\n\n".join([*others[:20], asked, *others[20:]]))
    assert asked in shown


def test_what_the_named_one_said_comes_before_what_others_said_of_the_same() -> None:
    said = [f"{name}: On trip {number} I liked the ferry." for number in range(200) for name in ("Ada", "**Ben**")]
    shown = section("Which ferry did Ben like?", 6_000, memory="\n\n".join([*said, *ENTRIES[:100]]))
    assert shown.count("Ben") > 60
    assert shown.count("Ada: ") < 5


def test_a_name_on_many_lines_leaves_room_for_what_is_said_later_in_the_talk_that_is_asked_about() -> None:
    others = "\n\n".join(f"## {number}\n\nAda: Good.\n\n" + "\n\n".join(ENTRIES[:4]) for number in range(300))
    asked = "Ben: Which instrument do you play at weekends?\n\n" + "\n\n".join(ENTRIES[:4])
    answer = "Ada: It is the violoncello, as you may have heard, and I have loved it since I was a child at school."
    memory = f"## Music\n\n{asked}\n\n{answer}\n\n{others}"
    assert answer in section("Which instrument does Ada play?", 4_000, memory=memory)


@pytest.mark.parametrize(
    "day", ["## 2026/11/03 (Tue) 14:47", "## November 3rd, 2026\n\n### In the evening", "- 2026-11-03: It rained."]
)
def test_what_was_noted_on_the_day_that_is_asked_for_is_shown_though_it_shares_no_word_with_it(day: str) -> None:
    sown = (
        "Twelve saplings are in the ground."
        if day.startswith("#")
        else "- 2026-11-03: Twelve saplings are in the ground."
    )
    memory = "\n\n".join(["# Diary", day, sown, "## 2026/11/09", *ENTRIES])
    question = "Which work did I do in the garden two weeks ago?"
    assert sown in section(question, 4_000, memory=memory)
    assert sown not in section(question.replace("two", "six"), 4_000, memory=memory)


def test_a_numbered_list_is_shown_whole_with_what_introduces_it_unless_it_is_too_long() -> None:
    steps = "\n".join(f"{number}. {word}" for number, word in enumerate(["Drain", "Wait", "Rinse"] * 30, start=1))
    recipe = f"How to descale the boiler:\n\n{steps}"
    others = [f"{number}. Something else entirely, at some length." for number in range(1, 200)]
    shown = section("What is step 57 to descale the boiler?", memory="\n\n".join([recipe, *ENTRIES]))
    assert recipe in shown
    shown = section("How is the boiler descaled?", memory="\n\n".join([recipe, *others, *ENTRIES]))
    assert shown.count("Something else") < 10


def test_the_first_gap_is_marked_in_full_and_each_later_one_shortly() -> None:
    ferries = ["\n\n".join([f"The ferry of day {number} was late.", *ENTRIES[:8]]) for number in range(50)]
    shown = section("ferry", 6_000, memory="\n\n".join([*ENTRIES[:9], *ferries, *ENTRIES]))
    assert shown.count(GAP) == 1
    assert shown.index(GAP) < shown.index(LATER_GAP)
    assert shown.count(LATER_GAP) > 20


@pytest.mark.parametrize(("name", "least"), [("longmemeval_evidence", 0.92), ("small_talk", 0.92)])
def test_what_is_shown_of_what_a_question_needs_does_not_get_less(name: str, least: float) -> None:
    """The floor under `benchmarks.excerpt`; nothing was tuned on the small talk."""
    assert excerpt.measured(excerpt.in_one(load(DATA / f"{name}.json.xz")), 20_000).evidence >= least


def test_the_newest_has_an_eighth_of_the_room_whatever_matches() -> None:
    memory = "\n\n".join([*(f"Ladder {number}, as long as a line of notes." for number in range(400)), *ENTRIES[:100]])
    shown = section("ladder", 4_000, memory=memory)
    newest = shown[shown.index("Entry") :]
    assert 300 < len(newest) < 600
    assert newest.endswith(ENTRIES[99])
