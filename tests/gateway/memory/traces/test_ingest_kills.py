"""A process that is killed anywhere in the ingest of a turn: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from gateway.store.stores import open_store
from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from tests import forks
from tests.conformance.ingest import answered
from tests.conformance.stores import House
from tests.gateway.memory.traces import ingest_process
from tests.gateway.memory.traces.ingest_process import STEPS


async def do_jobs(home: Path, fact: str, step: str) -> int:
    """Do the jobs in a process of its own; how it ended."""
    return await asyncio.to_thread(forks.ended, forks.start(ingest_process.run, home, fact, step))


async def kept(home: Path) -> tuple[list[str], int]:
    """All facts, and how many jobs are left."""
    async with open_trace_store(home / TRACES_NAME) as trace_store:
        facts = await trace_store.database.read(
            lambda connection: [row[0] for row in connection.execute("SELECT content FROM traces ORDER BY number")]
        )
    store = open_store(home / "ethos.sqlite")
    backlog = await store.ingest.backlog()
    await store.close()
    return facts, backlog.waiting + backlog.given_up


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_after_any_step_loses_no_fact_and_doubles_none(tmp_path: Path, step: str) -> None:
    """The model says something else the second time: the person hears of it once, in one of the two wordings."""
    house = House(lambda _now_ms: open_store(tmp_path / "ethos.sqlite"))
    await answered(house, "tea")
    await house.store.close()
    assert await do_jobs(tmp_path, "Ada likes tea", step) == -signal.SIGKILL
    assert await do_jobs(tmp_path, "Tea is what Ada drinks", "none") == 0
    facts, jobs = await kept(tmp_path)
    is_written_down = step in ("keep_facts", "keep", "end")
    assert facts == ["Ada likes tea" if is_written_down else "Tea is what Ada drinks"]
    assert jobs == 0
