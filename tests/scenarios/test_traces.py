"""A person talks, the process is killed as soon as it has answered, and what they said is recalled afterwards."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from tests.scenarios.process import PATIENCE_S, Ethos

TRACED = "web: {port: 0}\nmemory: {traces: {enabled: true}}\n"


def facts(ethos: Ethos, amount: int) -> list[str]:
    """All facts, once there are so many."""
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        with closing(sqlite3.connect(ethos.home / "traces.sqlite")) as trace_store:
            found = [str(row[0]) for row in trace_store.execute("SELECT content FROM traces ORDER BY number")]
        if len(found) >= amount or time.monotonic() > ends_at:
            return found
        time.sleep(0.05)


@pytest.mark.slow
def test_what_a_turn_said_is_recalled_though_the_process_was_killed_right_after_its_answer(ethos: Ethos) -> None:
    ethos.configure(TRACED)
    ethos.serve()
    ethos.run("chat", "My dog is called Rex.")
    ethos.kill()
    ethos.serve()
    assert facts(ethos, 1) == ["They say: My dog is called Rex."]
    ethos.kill()
    ethos.serve()
    assert "Rex" in ethos.run("chat", "--conversation", "another", "what is my dog called?").stdout
    assert ethos.stop() == 0
    assert facts(ethos, 1) == ["They say: My dog is called Rex."]
