"""The table of traits in traces.md, row by row, with the edges between them."""

from __future__ import annotations

import pytest

from gateway.domain.personalities.files import Traits
from gateway.traces.personality_traits import ALWAYS, IngestRules, apply_traits

BASE = IngestRules()


def test_nobody_in_particular_changes_nothing() -> None:
    assert apply_traits(BASE, {}) == BASE
    for edge in (0.4, 0.5, 0.6):
        assert apply_traits(BASE, dict.fromkeys(Traits.model_fields, edge)) == BASE


@pytest.mark.parametrize(
    ("openness", "threshold", "most"),
    [(0.61, 0.356, 4), (0.8, 0.28, 4), (1.0, 0.2, 4), (0.39, 0.444, 2), (0.2, 0.52, 2), (0.0, 0.6, 2)],
)
def test_openness_moves_the_threshold_and_the_number(openness: float, threshold: float, most: int) -> None:
    rules = apply_traits(BASE, {"openness": openness})
    assert rules.threshold == pytest.approx(threshold, abs=5e-10)
    assert rules.most == most
    assert ("emotional_context" in rules.categories) == (openness > 0.6)


def test_openness_stays_within_its_bounds_whatever_is_configured() -> None:
    open_minded = apply_traits(IngestRules(threshold=0.25, most=5), {"openness": 1})
    assert (open_minded.threshold, open_minded.most) == (0.2, 5)
    closed = apply_traits(IngestRules(threshold=0.69, most=1), {"openness": 0})
    assert (closed.threshold, closed.most) == (0.7, 1)


def test_conscientiousness_asks_for_what_is_to_be_done() -> None:
    rules = apply_traits(BASE, {"conscientiousness": 0.7})
    assert rules.categories == (*ALWAYS, "action_item")
    assert rules.gains == {"goal": 0.1, "action_item": 0.15}
    assert (rules.duplicate_from, rules.consolidate_every_turns) == (0.92, 30)


def test_agreeableness_cares_for_preferences_and_recalls_more() -> None:
    rules = apply_traits(BASE, {"agreeableness": 0.7})
    assert (rules.gains, rules.recall_chars) == ({"user_preference": 0.15}, 28_000)


def test_emotionality_notes_feelings() -> None:
    rules = apply_traits(BASE, {"emotionality": 0.7})
    assert rules.notes_sentiment
    assert rules.gains == {"episodic": 0.1, "emotional_context": 0.1}


def test_honesty_takes_corrections_and_sees_duplicates_sooner() -> None:
    rules = apply_traits(BASE, {"honesty_humility": 0.7})
    assert (rules.gains, rules.duplicate_from) == ({"correction": 0.2}, 0.75)
    assert apply_traits(BASE, {"honesty_humility": 0.7, "conscientiousness": 0.7}).duplicate_from == 0.85


def test_what_the_configuration_says_is_the_base() -> None:
    rules = apply_traits(IngestRules(threshold=0.5, most=2, recall_chars=5_000), {"openness": 0.8, "agreeableness": 1})
    assert rules.threshold == pytest.approx(0.38, abs=5e-10)
    assert (rules.most, rules.recall_chars) == (3, 7_000)
