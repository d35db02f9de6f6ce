"""The benchmark of memory providers runs, and prints its tables."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.providers", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.slow
def test_the_quick_form_prints_what_a_memory_costs_and_what_it_loses():
    done = run("--only", "markdown", "--only", "traces", "--samples", "5", "--updates", "80", "--kills", "1",
               "--hanging-turns", "2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["markdown", "traces"] * 2
    for name, cells in rows[2:]:
        kills, _, _, lost, doubled, left = (int(cell) for cell in cells.split("|"))
        assert (kills, lost, doubled, left) == (8, 0, 0, 0), name
    [hanging] = re.findall(r"turn by turn: (.*)", done.stdout)
    first, second = (float(each.removesuffix(" s")) for each in hanging.split(", "))
    assert 1.9 < first < 3
    assert second < 0.1
