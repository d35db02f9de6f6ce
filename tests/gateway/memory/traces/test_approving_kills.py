"""A yes to a fact, with the process killed anywhere in it: the fact is written once, or still waits for the yes."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.memory.fact_changes import FactChange
from gateway.memory.proposals import Proposal
from gateway.store.stores import open_store
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from tests import forks
from tests.conformance.proposals import SCOPE
from tests.gateway.memory.traces import approving_process
from tests.gateway.memory.traces.approving_process import STEPS

ADA = Viewer(user_id=SCOPE.user_id, personality_id=SCOPE.personality_id, session_id=SCOPE.session_id)


async def approve(home: Path, step: str) -> int:
    """Say yes in a process of its own; how it ended."""
    return await asyncio.to_thread(forks.ended, forks.start(approving_process.run, home, step))


async def contents(home: Path) -> list[str]:
    async with open_trace_store(home / TRACES_NAME) as trace_store:
        sql = "SELECT content FROM traces WHERE deleted_at IS NULL ORDER BY number"
        return await trace_store.database.read(lambda connection: [row[0] for row in connection.execute(sql)])


async def propose(home: Path, fact: FactChange) -> None:
    store = open_store(home / "ethos.sqlite")
    await store.proposals.add([Proposal(id=1, scope=SCOPE, store="traces", fact=fact, sources=("quoted mail",))])
    await store.close()


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_of_a_yes_loses_no_fact_and_writes_none_twice(tmp_path: Path, step: str) -> None:
    """Killed before the yes is committed, it was none, and can be said again."""
    await propose(tmp_path, FactChange(action="add", scope="user", content="Ada likes tea"))
    assert await approve(tmp_path, step) == -signal.SIGKILL
    assert await approve(tmp_path, "none") == 0
    is_decided = step != "before decide"
    assert await contents(tmp_path) == (["Ada likes tea"] if is_decided else [])
    assert await approve(tmp_path, "again") == 0
    assert await approve(tmp_path, "none") == 0
    assert await contents(tmp_path) == ["Ada likes tea"]


async def test_a_correction_that_was_written_is_not_written_over_a_later_one(tmp_path: Path) -> None:
    """The process died before it could say that it is written; meanwhile somebody else corrected the fact again."""
    async with open_trace_store(tmp_path / TRACES_NAME) as trace_store:
        kept = await trace_store.add(ADA, Trace(content="Rex is a dog", owner=ADA.owner("user")))
    await propose(tmp_path, FactChange(action="update", scope="user", trace_ids=(kept.id,), content="Rex is a cat"))
    assert await approve(tmp_path, "before fact_is_written") == -signal.SIGKILL
    assert await contents(tmp_path) == ["Rex is a cat"]
    async with open_trace_store(tmp_path / TRACES_NAME) as trace_store:
        assert await trace_store.update(replace(ADA), kept.id, content="Rex is a wolf")
    assert await approve(tmp_path, "none") == 0
    assert await contents(tmp_path) == ["Rex is a wolf"]
