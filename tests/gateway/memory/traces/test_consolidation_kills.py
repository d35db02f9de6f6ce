"""A process that is killed in any step of a consolidation, before or after its commit, or that is not alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.runtime.failpoints import VARIABLE
from gateway.traces.consolidation import LOCK_NAME
from gateway.traces.rows import insert
from gateway.traces.trace import Viewer
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from tests.gateway.memory.traces.consolidating_process import INSIGHT, work_on
from tests.gateway.memory.traces.people import ADA, BEN, Clock, of

ROOT = Path(__file__).parents[4]
STEPS = ("prune", "merge", "link", "derive", "compact", "log")
WORK_LEFT = ("uncompared", "log")
"""What another run may leave in another way: which traces the next one compares, and how many runs there were."""
State = dict[str, Any]

_STATE = {
    "traces": """
        SELECT owner, one.content, type, round(strength, 6) AS strength, tags, retrieval_count,
            deleted_at IS NOT NULL AS is_hidden,
            (SELECT content FROM traces AS other WHERE other.id = one.merged_into) AS merged_into
        FROM traces AS one ORDER BY number
    """,
    "edges": """
        SELECT kind, one.content, other.content, round(weight, 6) FROM edges
        JOIN traces AS one ON one.id = edges.source JOIN traces AS other ON other.id = target ORDER BY 1, 2, 3
    """,
    "uses": "SELECT query_id, content, is_counted FROM uses JOIN traces ON traces.id = trace ORDER BY 1, 2",
    "uncompared": "SELECT content FROM uncompared JOIN traces USING (number) ORDER BY number",
    "archive": "SELECT content, verbatim FROM archive JOIN traces ON traces.id = trace ORDER BY 1",
    "log": "SELECT count(*) FROM consolidation_log",
}


def state_of(path: Path) -> State:
    """All that a consolidation may change, by contents, because ids are chance."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
        return {name: connection.execute(sql).fetchall() for name, sql in _STATE.items()}


async def fill(trace_store: TraceStore, *viewers: Viewer) -> None:
    """Something to do for every step, for each of them the same."""
    now = trace_store.now()
    old = now - timedelta(days=200)
    for viewer in viewers:
        traces = [
            of(viewer, "faded long ago", strength=0.01),
            of(viewer, "Rex likes bones", tags=("a",), last_accessed_at=now),
            of(viewer, "Rex likes bones", tags=("b",), last_accessed_at=now),
            *(of(viewer, f"roses grow in the garden, row {n}", last_accessed_at=now) for n in range(5)),
            of(viewer, "the tram is often late", created_at=old, last_accessed_at=now, retrieval_count=3),
        ]
        used = [trace.id for trace in traces[-2:]]
        await trace_store.database.write(
            lambda connection, traces=traces: [insert(connection, each) for each in traces]
        )
        await trace_store.offered(viewer, f"q {viewer.user_id}", used=used)


def copied(template: Path, to: Path) -> Path:
    to.mkdir()
    return Path(shutil.copy(template, to / TRACES_NAME))


async def run(path: Path, work: str = "consolidate", *, killed_at: str = "") -> tuple[int, str]:
    """In a process of its own; how it ended, and what it said."""
    program = [sys.executable, "-m", "tests.gateway.memory.traces.consolidating_process", str(path), work]
    environment = {**os.environ, VARIABLE: f"kill {killed_at}" if killed_at else ""}
    pipe, ignored = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*program, cwd=ROOT, env=environment, stdout=pipe, stderr=ignored)
    async with asyncio.timeout(120):
        said, _ = await process.communicate()
    return process.returncode or 0, said.decode().strip()


async def states_after_each_commit(path: Path, work: str) -> list[State]:
    """Of an undisturbed run: first what was there before."""
    states = [state_of(path)]
    async with open_trace_store(path, now=Clock()) as trace_store:
        write = trace_store.database.write

        async def watched(*arguments: Any, **more: Any) -> Any:
            result = await write(*arguments, **more)
            states.append(state_of(path))
            return result

        trace_store.database.write = watched  # type: ignore[method-assign]
        await work_on(trace_store, work)
    return states


@pytest.fixture
async def template(tmp_path: Path) -> Path:
    path = tmp_path / "template.sqlite"
    async with open_trace_store(path, now=Clock()) as trace_store:
        await fill(trace_store, ADA)
    return path


async def killed_everywhere(template: Path, root: Path, work: str, states: list[State]) -> None:
    """Before each commit the trace store is as before the step, after it as after it; and another run ends the same."""

    async def once(point: str, step: int, expected: State) -> None:
        path = copied(template, root / f"{point} {step}")
        code, _ = await run(path, work, killed_at=f"{point} {step}")
        assert code == -signal.SIGKILL, f"{point} {step}"
        assert state_of(path) == expected, f"{point} {step}"
        async with open_trace_store(path, now=Clock()) as trace_store:
            await work_on(trace_store, work)
        assert {name: rows for name, rows in state_of(path).items() if name not in WORK_LEFT} == end, f"{point} {step}"

    end = {name: rows for name, rows in states[-1].items() if name not in WORK_LEFT}
    for step in range(1, len(states)):
        await once("database.committing", step, states[step - 1])
        await once("database.committed", step, states[step])


@pytest.mark.slow
async def test_a_kill_in_each_step_leaves_it_done_or_not_begun_and_the_next_run_ends_the_same(
    template: Path, tmp_path: Path
) -> None:
    states = await states_after_each_commit(copied(template, tmp_path / "undisturbed"), "consolidate")
    assert len(states) == 1 + len(STEPS)
    by_step = dict(zip(STEPS, pairwise(states), strict=True))
    assert all(before != after for before, after in by_step.values()), "each step has something to do"
    ends = states[-1]["traces"]
    assert sum(row[1] == INSIGHT for row in ends) == 1
    assert sum(row[1] == "Rex likes bones" and not row[6] for row in ends) == 1
    await killed_everywhere(template, tmp_path, "consolidate", states)


async def test_a_kill_while_old_traces_are_shortened_loses_no_word_of_them(tmp_path: Path) -> None:
    template = tmp_path / "template.sqlite"
    clock = Clock()
    old = clock.now - timedelta(days=90)
    texts = [f"{number} was told at great length " * 12 for number in range(2)]
    async with open_trace_store(template, now=clock) as trace_store:
        traces = [of(ADA, text, created_at=old, last_accessed_at=old, strength=0.5) for text in texts]
        await trace_store.database.write(lambda connection: [insert(connection, each) for each in traces])
    states = await states_after_each_commit(copied(template, tmp_path / "undisturbed"), "shorten")
    assert len(states) == 3
    for state in states:
        whole = {row[1] for row in state["traces"]} | {verbatim for _, verbatim in state["archive"]}
        assert set(texts) <= whole
    await killed_everywhere(template, tmp_path, "shorten", states)


async def test_two_processes_at_once_do_everything_once_and_each_person_keeps_their_own(tmp_path: Path) -> None:
    path = tmp_path / TRACES_NAME
    async with open_trace_store(path, now=Clock()) as trace_store:
        await fill(trace_store, ADA, BEN)
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(run(path)) for _ in range(2)]
    assert [task.result()[0] for task in both] == [0, 0]
    done = sorted(int(task.result()[1].splitlines()[-1]) for task in both)
    assert done == [0, 8], "for each of the two people one pruned, merged, derived and compacted; once"
    state = state_of(path)
    for number in (1, 2):
        mine = [row[1] for row in state["traces"] if row[0] == number and not row[6]]
        assert sorted(mine) == sorted(
            ["Rex likes bones", "the tram is often late", INSIGHT]
            + [f"roses grow in the garden, row {n}" for n in range(5)]
        )
    with closing(sqlite3.connect(path)) as connection:
        (crossing,) = connection.execute(
            "SELECT count(*) FROM edges JOIN traces AS one ON one.id = edges.source"
            " JOIN traces AS other ON other.id = target WHERE one.owner <> other.owner"
        ).fetchone()
    assert crossing == 0
    assert path.with_name(LOCK_NAME).exists()
