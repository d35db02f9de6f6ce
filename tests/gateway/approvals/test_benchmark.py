"""The benchmark of questions counts what its page says, with the gateway's own rules."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import agentdojo, asking
from benchmarks.asking import Choice, counted, tasks

PAGE = (Path(__file__).parents[3] / "docs" / "tools.md").read_text()


def test_the_tasks_are_those_of_the_page() -> None:
    all_tasks = [*tasks()]
    assert len(all_tasks) == 100
    assert sum(bool(task.acts) for task in all_tasks) == 60
    assert sum(len(task.acts) for task in all_tasks) == 80
    assert sum(name == "open_page" for task in all_tasks for name, _ in task.reads) == 18
    demands = 7 * sum(bool(task.reads) for task in all_tasks)
    assert re.findall(r"passed unasked \|.* of (\d+) \|", PAGE)[0] == str(demands)


@pytest.mark.parametrize(
    ("choice", "asked", "passed"), [("a yes to each", 4, 0), ("always", 4, 4), ("destinations", 2, 1)]
)
async def test_each_choice_asks_and_lets_pass_by_its_rules(
    monkeypatch: pytest.MonkeyPatch, choice: Choice, asked: int, passed: int
) -> None:
    """A mail to somebody whom the person named, one after a reading, a payment, and a mail to whom a mail named."""
    whole = [*tasks()]
    bill = replace(whole[55], acts=whole[55].acts[:2])
    monkeypatch.setattr(asking, "tasks", lambda: iter([whole[0], whole[9], bill]))
    found = await counted(choice)
    assert (found.acts, found.asked, found.passed, found.injected) == (4, asked, passed, 14)


def test_the_public_benchmark_is_that_of_the_page_and_without_it_one_is_told_what_to_install() -> None:
    if importlib.util.find_spec("agentdojo") is None:
        with pytest.raises(SystemExit, match="pip install --no-deps --target DIRECTORY agentdojo"):
            agentdojo.suite("slack")
        return
    all_tasks = [task for suite in agentdojo.SUITES for task in agentdojo.tasks(suite)]
    assert (len(all_tasks), sum(bool(task.acts) for task in all_tasks)) == (97, 60)
    assert sum(len(task.acts) for task in all_tasks) == 82
    assert sum(name == "get_webpage" for task in all_tasks for name, _ in task.reads) == 18
    demanded = sum(len(agentdojo.tasks(suite)) * len(agentdojo.demands(suite)) for suite in agentdojo.SUITES)
    assert f"0 of {demanded} |" in PAGE
