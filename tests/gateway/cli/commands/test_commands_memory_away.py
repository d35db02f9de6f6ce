"""The commands about a memory that is away: one line that says so, and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateway.cli.commands.conftest import Ethos
from tests.gateway.cli.commands.test_commands_status import held, left, stranger
from tests.servers import free_port

__all__ = ["held"]
UNAVAILABLE = 69
KINDS = {"redis": "redis", "postgresql": "postgres"}


@pytest.fixture(params=["redis", "postgresql"])
def away(home: Path, request: pytest.FixtureRequest) -> str:
    """The address of the memory of a gateway, where nobody listens."""
    url = f"{request.param}://127.0.0.1:{free_port()}/0"
    config = home / "config.yaml"
    config.write_text(f"{config.read_text()}\nmemory:\n  provider: {{kind: {KINDS[request.param]}, url: '{url}'}}\n")
    return url


def test_a_document_cannot_be_shown_and_the_line_says_why(ethos: Ethos, away: str) -> None:
    answer = ethos("memory", "show", "--user", "fake:1")
    assert (answer.code, answer.out) == (UNAVAILABLE, "")
    assert answer.err.count("\n") == 1
    assert answer.err.startswith(f"ethos: the memory at {away} cannot be used now: ")
    assert "refused" in answer.err or "Connect call failed" in answer.err
    assert ".;" not in answer.err


def test_a_running_gateway_says_the_same_and_is_asked_once(ethos: Ethos, held: Path) -> None:
    """As `tests/gateway/way/test_memory_away.py` has it from the API."""
    problem = {"type": "urn:ethos:problem:memory-unavailable", "title": "Temporarily unavailable", "status": 503}
    body = json.dumps({**problem, "detail": "the memory has not answered within 2 s"}).encode()
    with stranger(held, 503, body) as asked:
        left(held, None)
        answer = ethos("memory", "show", "--user", "fake:1")
    assert (answer.code, answer.out) == (UNAVAILABLE, "")
    assert "the memory has not answered within 2 s" in answer.err
    assert len([one for one in asked if "memory" in one]) == 1


@pytest.mark.parametrize(
    ("memory", "line"),
    [
        ({"state": "up", "late_turns": 0}, "Memory   redis, in use\n"),
        ({"state": "up", "late_turns": 1}, "Memory   redis, in use; the updates of 1 turn wait\n"),
        ({"state": "up", "error": "no line"}, "Memory   redis, in use, with the problem below\n"),
        (
            {"state": "down", "late_turns": 12},
            "messages are answered without it; the updates of 12 turns wait\n",
        ),
    ],
)
def test_the_status_says_in_one_line_how_the_memory_is(
    ethos: Ethos, held: Path, memory: dict[str, object], line: str
) -> None:
    health = {"status": "ok", "memory": {"kind": "redis", "since": "2026-11-23T10:00:00+00:00", **memory}}
    with stranger(held, 200, json.dumps(health).encode()):
        left(held, None)
        told = ethos("status")
        assert line in told.out
        assert told.out.count("wait") == (1 if memory.get("late_turns") else 0)
        assert ethos("status", "--json").value["memory"]["state"] == memory["state"]
