"""The formulas of traces.md, section Strength, with their values to nine digits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.traces.strength import after_doubt, after_use, current, interference, is_contradicted, is_quoted
from gateway.traces.trace import DAY_MS, STABILITY_MS

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("strength", "days", "expected"),
    [
        (1.0, 0, 1.0),
        (1.0, 30, 0.367879441),
        (1.0, 7, 0.791889566),
        (0.5, 60, 0.067667642),
        (0.8, 1, 0.773772880),
        (1.0, -5, 1.0),
        (1.7, 0, 1.0),
    ],
)
def test_strength_fades_to_one_over_e_in_the_time_of_its_stability(
    strength: float, days: float, expected: float
) -> None:
    found = current(strength, STABILITY_MS, NOW - timedelta(days=days), NOW)
    assert found == pytest.approx(expected, abs=5e-10)


@pytest.mark.parametrize(
    ("strength", "uses", "intensity", "expected_strength", "expected_factor"),
    [
        (1.0, 0, 0.0, 1.0, 1.7),
        (0.5, 0, 0.0, 0.6, 2.5),
        (0.5, 3, 0.0, 0.6, 1.923076923),
        (0.2, 10, 0.5, 0.3, 1.7825),
        (0.95, 1, 1.0, 1.0, 2.009090909),
    ],
)
def test_a_use_strengthens_and_what_was_nearly_forgotten_most(
    strength: float, uses: int, intensity: float, expected_strength: float, expected_factor: float
) -> None:
    grown, stability_ms = after_use(strength, STABILITY_MS, uses, intensity)
    assert grown == pytest.approx(expected_strength, abs=5e-10)
    assert stability_ms / STABILITY_MS == pytest.approx(expected_factor, abs=5e-10)


@pytest.mark.parametrize("uses", [8, 30, 1_000])
def test_a_fact_that_is_used_daily_never_fades_sooner_for_that(uses: int) -> None:
    assert after_use(1.0, STABILITY_MS, uses) == (1.0, STABILITY_MS)


@pytest.mark.parametrize(("stability_days", "expected_days"), [(30, 15), (14, 7), (10, 7), (1, 7)])
def test_what_the_person_contradicts_fades_but_keeps_a_week(stability_days: float, expected_days: float) -> None:
    faded, left_ms = after_doubt(0.8, stability_days * DAY_MS)
    assert faded == pytest.approx(0.72, abs=5e-10)
    assert left_ms == expected_days * DAY_MS


@pytest.mark.parametrize(
    ("content", "correction", "expected"),
    [
        ("my dog is called rex", "the dog is called max", True),
        ("i live in turin", "ada lives in rome", False),
        ("dog rex", "dog rex", False),
        ("", "dog", False),
    ],
)
def test_a_correction_is_about_what_shares_half_of_its_words(content: str, correction: str, expected: bool) -> None:
    told = [
        [word for word in text.split() if word not in {"my", "is", "the", "in", "i"}] for text in (content, correction)
    ]
    assert is_contradicted(*told) is expected


@pytest.mark.parametrize(
    ("similar", "olds", "new"),
    [
        ([], [], 0.0),
        ([(0.7, 1.0)], [0.0], 0.0),
        ([(0.85, 0.8)], [0.075], 0.04),
        ([(1.0, 1.0)], [0.15], 0.1),
        ([(1.0, 1.0)] * 5, [0.15] * 5, 0.3),
    ],
)
def test_similar_traces_weaken_each_other_and_the_new_one_by_thirty_percent_at_most(
    similar: list[tuple[float, float]], olds: list[float], new: float
) -> None:
    losses, own_loss = interference(similar)
    assert losses == pytest.approx(olds, abs=5e-10)
    assert own_loss == pytest.approx(new, abs=5e-10)


@given(st.floats(0, 1), st.floats(1, 1e12), st.integers(0, 10_000), st.floats(0, 1))
def test_strength_stays_between_0_and_1_whatever_happens(
    strength: float, stability_ms: float, uses: int, intensity: float
) -> None:
    for after, stability_after in (
        after_use(strength, stability_ms, uses, intensity),
        after_doubt(strength, stability_ms),
    ):
        assert 0 <= after <= 1
        assert stability_after > 0
        assert 0 <= current(after, stability_after, NOW, NOW + timedelta(days=1)) <= after


def test_a_trace_is_quoted_when_more_than_three_tenths_of_its_long_words_are_in_the_answer() -> None:
    content = "Grace keeps seventeen striped beetles under glass in Antwerp harbour since winter".lower().split()
    assert not is_quoted(content, ["grace", "keeps", "three"])  # 2 of 10
    assert not is_quoted(content, ["grace", "keeps", "seventeen"])  # 3 of 10 is not more than 30 %
    assert is_quoted(content, ["grace", "keeps", "seventeen", "antwerp"])
    assert not is_quoted(["i", "am", "in", "on", "it"], ["i", "am", "in"])
    assert is_quoted(["i", "like", "tea"], ["you", "like", "tea"])  # no word of over four letters
    assert not is_quoted(["i", "like", "tea"], ["i", "like", "coffee"])
    assert not is_quoted(["tea"], ["tea"])
