"""`ethos doctor` says which tools are left out, and where programs of the agent run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cli.commands.conftest import Ethos

SECRET = "canary-of-tools"
Found = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def found(ethos: Ethos, home: Path) -> Found:
    """What the doctor says of tools and of the sandbox with this in the configuration."""
    before = (home / "config.yaml").read_text()

    def examine(text: str) -> list[dict[str, Any]]:
        (home / "config.yaml").write_text(f"{before}{text}\n")
        answer = ethos("doctor", "--json")
        assert SECRET not in answer.out
        return [one for one in answer.value if one["what"].startswith(("The sandbox", "No sandbox", "The tools of"))]

    return examine


def test_nothing_is_said_of_what_is_switched_off(found: Found) -> None:
    assert found("tools: {files: true}") == []


def test_the_sandbox_in_use_is_named(found: Found) -> None:
    [finding] = found("tools: {python: true}")
    assert finding["level"] == "note"
    assert finding["what"].startswith("The sandbox of programs that the agent writes is ")


def test_where_no_sandbox_works_it_says_which_was_tried_and_what_to_do(found: Found) -> None:
    [finding] = found("tools: {python: true}\nsandbox: {command: [no-such-program, '{workspace}']}")
    assert finding["level"] == "problem"
    assert finding["what"] == "No sandbox works here, so the agent has no tools that run programs."
    assert "no-such-program cannot be started" in finding["advice"]
    assert "correct the words of `sandbox.command`" in finding["advice"]
    [finding] = found("tools: {python: true}\nsandbox: {command: ['env']}")
    assert "a program gets out of it: " in finding["advice"]


def test_servers_of_tools_say_where_they_run(found: Found) -> None:
    server = "mcp: {servers: {notes: {command: [/bin/true]}}}"
    [note] = found(server)
    assert note["what"].startswith("The sandbox of servers of tools is ")
    broken = f"{server}\ntools: {{python: true}}\nsandbox: {{command: [no-such-program, '{{workspace}}']}}"
    problem, warning = found(broken)
    assert (problem["level"], warning["level"]) == ("problem", "warning")
    assert warning["what"].endswith("so servers of tools run as ordinary programs of your user.")
    assert "no-such-program cannot be started" in warning["advice"]


def test_a_package_that_is_left_out_is_named_with_its_remedy(found: Found) -> None:
    package = f"{{package: tests.tool_packages.failing, token: {SECRET}}}"
    [finding] = found(f"tools: {{packages: [{package}]}}")
    assert finding["what"].startswith("The tools of tests.tool_packages.failing are left out: `tools` of")
    assert "ethos plugins check tests.tool_packages.failing" in finding["advice"]
