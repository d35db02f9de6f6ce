"""A tool that breaks five times within ten minutes rests for five, and then it is tried again."""

from gateway.tools.contract import Called
from gateway.tools.resting import MOST_FAULTS, RESTS_S, WITHIN_S, Resting

FAULT = Called(outcome="failed", text="Error: away", is_fault=True)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_tool_rests_after_faults_that_came_together_and_is_then_tried_again() -> None:
    clock = Clock()
    resting = Resting(clock)
    assert [resting.note("look", FAULT) for _ in range(MOST_FAULTS)] == [False] * (MOST_FAULTS - 1) + [True]
    refused = resting.refusal("look")
    assert refused is not None
    assert refused.outcome == "refused"
    assert "rests for 300 s more" in refused.text
    assert resting.refusal("other") is None
    clock.now_s += RESTS_S
    assert resting.refusal("look") is None
    assert not resting.note("look", FAULT), "it is counted from the beginning"


def test_faults_that_are_far_apart_and_calls_that_were_wrong_do_not_count() -> None:
    clock = Clock()
    resting = Resting(clock)
    for _ in range(3 * MOST_FAULTS):
        clock.now_s += WITHIN_S / (MOST_FAULTS - 1) + 1
        assert not resting.note("look", FAULT)
        assert not resting.note("look", Called(outcome="failed", text="Error: no such file"))
    assert resting.refusal("look") is None
