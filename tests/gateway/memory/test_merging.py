"""Two edits of one text are united, and nothing that either of them wrote is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.merging import (
    BETWEEN_MARK,
    MINE_MARK,
    THEIRS_MARK,
    Merged,
    both,
    has_marks,
    merge,
    merge_edit,
    merge_for_mine,
)

BASE = "# Ada\n\n- likes tea\n- lives in Paris\n"
LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d", "é\n"]), max_size=12).map("".join)


def test_changes_in_different_places_are_both_kept() -> None:
    mine = BASE.replace("tea", "green tea")
    theirs = BASE + "- has a dog\n"
    assert merge(BASE, mine, theirs) == Merged("# Ada\n\n- likes green tea\n- lives in Paris\n- has a dog\n", 0)


def test_what_both_added_at_one_place_is_all_kept_without_a_question() -> None:
    merged = merge(BASE, BASE + "- sings\n", BASE + "- has a dog\n")
    assert merged == Merged(BASE + "- has a dog\n- sings\n", 0)


def test_one_line_changed_in_two_ways_stands_there_twice_between_marks() -> None:
    merged = merge(BASE, BASE.replace("Paris", "Rome"), BASE.replace("Paris", "Oslo"))
    assert merged.conflicts == 1
    marked = f"{MINE_MARK}\n- lives in Rome\n{BETWEEN_MARK}\n- lives in Oslo\n{THEIRS_MARK}\n"
    assert merged.text == "# Ada\n\n- likes tea\n" + marked
    assert has_marks(merged.text)
    assert not has_marks(BASE)


def test_lines_beside_each_other_are_no_conflict_where_each_side_changed_another() -> None:
    merged = merge(BASE, BASE.replace("tea", "green tea"), BASE.replace("Paris", "Rome"))
    assert merged == Merged("# Ada\n\n- likes green tea\n- lives in Rome\n", 0)


def test_what_one_removed_and_the_other_left_alone_is_gone() -> None:
    assert merge(BASE, BASE.replace("- likes tea\n", ""), BASE).text == "# Ada\n\n- lives in Paris\n"


def test_a_last_line_without_an_end_does_not_swallow_the_next() -> None:
    assert merge("a", "a\nmine", "a\ntheirs").text == "a\ntheirs\nmine"


@given(LINES, LINES)
def test_against_no_change_the_other_wins_whole(base: str, changed: str) -> None:
    assert merge(base, changed, base) == Merged(changed, 0)
    assert merge(base, base, changed) == Merged(changed, 0)


@given(LINES, LINES)
def test_the_same_change_twice_is_one(base: str, changed: str) -> None:
    assert merge(base, changed, changed) == Merged(changed, 0)


@given(LINES, LINES, LINES)
def test_a_line_that_somebody_added_is_there_afterwards(base: str, mine: str, theirs: str) -> None:
    merged = {line.rstrip("\n") for line in merge(base, mine, theirs).text.splitlines()}
    for side in (mine, theirs):
        new = set(side.splitlines()) - set(base.splitlines())
        assert new - {""} <= merged


def test_changes_that_touch_each_other_are_no_conflict() -> None:
    theirs = BASE.replace("- likes tea\n", "")
    assert merge(BASE, BASE.replace("Paris", "Rome"), theirs) == Merged("# Ada\n\n- lives in Rome\n", 0)
    mine = BASE.replace("tea\n", "tea\n- sings\n")
    assert (
        merge(BASE, mine, BASE.replace("tea", "coffee")).text == "# Ada\n\n- likes coffee\n- sings\n- lives in Paris\n"
    )


def test_a_line_that_both_added_is_there_once() -> None:
    assert merge(BASE, BASE + "- sings\n", BASE + "- sings\n- has a dog\n").text == BASE + "- sings\n- has a dog\n"


def test_without_a_question_what_one_took_out_is_out_although_the_other_wrote_into_it() -> None:
    base = "1 one\n2 two\n3 three\n4 four\n"
    assert merge_for_mine(base, base.replace("3", "by hand\n3"), "1 one\n4 four\nours\n") == (
        "1 one\nby hand\n4 four\nours\n",
        [],
    )


def test_without_a_question_mine_stands_where_both_changed_a_line() -> None:
    mine, theirs = BASE.replace("Paris", "Rome"), BASE.replace("Paris\n", "Oslo\n- sings\n")
    assert merge_for_mine(BASE, mine, theirs) == (
        "# Ada\n\n- likes tea\n- sings\n- lives in Rome\n",
        ["- lives in Oslo"],
    )


@given(LINES, LINES, LINES)
def test_without_a_question_nothing_that_somebody_added_is_lost(base: str, mine: str, theirs: str) -> None:
    text, displaced = merge_for_mine(base, mine, theirs)
    for side in (mine, theirs):
        new = {line for line in set(side.splitlines()) - set(base.splitlines()) if line}
        assert new <= {*text.splitlines(), *displaced}


# ---- an edit that may have been brought in before -------------------------------------------------------------------

NOTES = "One.\n\nTwo.\n"


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        ("One.\n\nTwo.\n\nMine.\n", "Theirs.\n\nOne.\n\nTwo.\n"),
        ("Mine.\n\nOne.\n\nTwo.\n", "One.\n\nTwo.\n\nTheirs.\n"),
        ("One.\n", "One.\n\nTwo.\n\nTheirs.\n"),
        ("One, mine.\n\nTwo.\n", "One.\n\nTwo.\n\nTheirs.\n"),
        ("One.\n\nMine.\n\nTwo.\n", "One.\n\nTwo.\n"),
    ],
)
def test_an_edit_that_was_brought_in_is_not_brought_in_again(mine: str, others: str) -> None:
    once = merge_edit(NOTES, mine, others)
    assert once == merge(NOTES, mine, others)
    assert merge_edit(NOTES, mine, once.text) == once


def test_an_edit_of_blank_lines_alone_is_one() -> None:
    assert merge_edit(NOTES, "One.\n\n\nTwo.\n", NOTES).text == "One.\n\n\nTwo.\n"


def test_texts_that_have_no_beginning_in_common_stand_between_marks() -> None:
    merged = both("Mine.\n", "Theirs.\n")
    assert has_marks(merged.text)
    assert merged.conflicts == 1
