"""Two edits of one text are united, and nothing that either of them wrote is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.merging import BETWEEN_MARK, MINE_MARK, THEIRS_MARK, Merged, has_marks, merge

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
        assert new <= merged
