"""Every promise of the gateway has a number, and a test that says which of them it shows: `Row 7: …`.

The promises stand, in the users' words, in `docs/reliability.md` and the pages beside it; the list here names them
shortly. A promise whose last test is deleted is no promise any more.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROMISES = {
    1: "a message is committed before the platform is told that we have it",
    2: "one event is one row, for ever",
    3: "one message of a conversation at a time, in order, and others are not delayed",
    4: "the effects of a turn are one commit",
    5: "an accepted message is answered, or ends in a visible error, or waits; never silence",
    6: "a reply is sent once; what is uncertain is resolved, or marked",
    7: "what fails always becomes a dead letter with its reason, and its conversation goes on",
    8: "on a full or failing disk nothing is acknowledged, it is said, and it goes on by itself",
    9: "an orderly end; one process for a data directory",
    10: "a clock that jumps harms nothing",
    11: "what was missed in an outage is fetched",
    12: "a flood is bounded, and delays others by one turn at most",
    13: "idle costs nothing",
    14: "no update of memory or identity is lost, from any number of tasks and processes",
    15: "a broken identity map makes nobody somebody else",
    16: "a broken configuration is told whole, and the last good one serves",
    17: "upgrades migrate whole or not at all",
    18: "a backup of a live gateway, restored, gives the same answers",
    19: "nobody talks to the agent who was not let in",
    20: "only ids that never change hands identify a person",
    21: "who a mail says it is from is a claim, which counts only when our own server has checked it",
    22: "linking needs proof from both sides",
    23: "a webhook takes only what was signed just now, and each once",
    24: "the web pages are the operator's alone",
    25: "no id becomes a path unchecked, and what is ours is closed to others",
    26: "no secret is in a log, an error, a prompt, an answer or an export",
    27: "budgets are hard, and a turn has a step limit",
    28: "one person's data never reaches another",
    29: "in a group only what is shared is used",
    30: "what was not the person's own voice cannot write memory by itself",
    31: "every memory write says where it comes from, and can be taken back",
    32: "who is erased does not come back",
    33: "what the model wrote is data: it calls nobody, loads nothing and runs nowhere",
}
_ROWS = re.compile(r"\brows?\s+(\d+(?:(?:,\s*|\s+and\s+)\d+)*)", re.IGNORECASE)


def told(path: Path) -> Iterator[str]:
    """What a file of tests says of them: the docstrings of its tests, and its own where it has tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tests = [node for node in functions if node.name.startswith("test_")]
    for node in (tree, *tests) if tests else ():
        yield ast.get_docstring(node) or ""


@cache
def shown() -> dict[int, list[str]]:
    """The files that show each promise."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for words in told(path) if path != Path(__file__) else ():
            for numbers in _ROWS.findall(words):
                for number in re.findall(r"\d+", numbers):
                    found.setdefault(int(number), []).append(str(path.relative_to(TESTS)))
    return found


def test_no_promise_is_left_out() -> None:
    assert list(PROMISES) == list(range(1, 34))


@pytest.mark.parametrize("number", PROMISES)
def test_a_promise_has_a_test_that_carries_its_number(number: int) -> None:
    assert shown().get(number), f"no test says `Row {number}: …`, of: {PROMISES[number]}"


def test_numbers_are_read_one_by_one_and_in_lists() -> None:
    assert _ROWS.findall("Rows 28, 29 and 30: nothing. It is row 7.") == ["28, 29 and 30", "7"]
    assert not _ROWS.findall("It has 7 rows, and arrows 8 wide.")
