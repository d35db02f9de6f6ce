"""`ethos store copy`, killed at each of its steps and called again, ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.ops.moving import Place
from gateway.runtime.failpoints import COPY_POINTS
from gateway.store.engine import statement
from gateway.store.postgres.engine import PostgresEngine
from gateway.traces.trace_store import TRACES_NAME, open_trace_store, shared_trace_store
from tests.gateway.memory.traces.people import ADA, of
from tests.gateway.memory.traces.transfer.corpora import all_of
from tests.gateway.store.copying.conftest import Empty
from tests.gateway.store.copying.ends import digests, execute, filled, state

pytestmark = pytest.mark.slow


def ethos(home: Path, *arguments: object, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", "store", "copy", *map(str, arguments)],
        env={**os.environ, "ETHOS_HOME": str(home), "ETHOS_FAILPOINTS": failpoint},
        capture_output=True,
        text=True,
        check=False,
    )


def tried(home: Path, target: Place, point: str, number: int, *more: str) -> bool:
    """Whether the command was killed there, and not done before."""
    done = ethos(home, "--to", target, *more, failpoint=f"kill {point} {number}")
    assert done.returncode in (0, -9), done.stderr
    return done.returncode == -9


async def facts_of(place: Place, *, adds: int = 0) -> dict[str, Any]:
    """All facts of a place; of those that are added, one is still to be compared with others."""
    if not isinstance(place, Path):
        engine = PostgresEngine(place, connections=1)
        try:
            return await all_of(shared_trace_store(engine))
        finally:
            await engine.close()
    async with open_trace_store(place / TRACES_NAME) as trace_store:
        for fact in (of(ADA, f"tea of day {number}") for number in range(adds)):
            await trace_store.add(ADA, fact)
        await trace_store.database.write(statement("DELETE FROM uncompared WHERE number > 1"))
        return await all_of(trace_store)


@pytest.fixture
def home(empty: Empty) -> Path:
    made = empty("sqlite")
    assert isinstance(made, Path)
    asyncio.run(filled(made, messages=2_100))  # two batches
    for table in ("documents", "accounts", "tombstones"):  # on one machine these are files
        asyncio.run(execute(made, f"DELETE FROM {table}"))  # noqa: S608 (names of ours)
    (made / "users").mkdir(mode=0o700)
    (made / "users" / "identity-map.json").write_text("{}")
    assert tried(made, empty("postgres"), "copy.begun", 1)  # what its files say is in its tables
    return made


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_killed_after_every_batch_it_goes_on(engine: str, home: Path, empty: Empty) -> None:
    target = empty(engine)
    before = asyncio.run(digests(home))
    kills = sum(itertools.takewhile(bool, (tried(home, target, "copy.batch", 1) for _ in range(50))))
    assert kills >= len(before) + 1  # a kill for each batch: none was written twice
    assert asyncio.run(digests(target)) == before
    assert (asyncio.run(state(home)), asyncio.run(state(target))) == ("moved", "arrived")
    if isinstance(target, Path):
        assert (target / "users" / "identity-map.json").read_text() == "{}"


def test_killed_after_every_batch_of_facts_it_goes_on(home: Path, empty: Empty) -> None:
    target = empty("postgres")  # between directories they are a file
    facts = asyncio.run(facts_of(home, adds=2))
    kills = sum(itertools.takewhile(bool, (tried(home, target, "copy.facts", 1) for _ in range(50))))
    assert kills == 3, "one for each table that has rows: none was written twice"
    assert asyncio.run(facts_of(target)) == facts
    assert (asyncio.run(state(home)), asyncio.run(state(target))) == ("moved", "arrived")


ELSEWHERE = ("copy.facts", "copy.refilled", "copy.undoing")


@pytest.mark.parametrize("point", [point for point in COPY_POINTS if point not in ELSEWHERE])
def test_killed_at_a_step_it_never_leaves_two_that_are_served(point: str, home: Path, empty: Empty) -> None:
    target = empty("postgres")
    before = asyncio.run(digests(home))
    assert tried(home, target, point, 1)
    states = (asyncio.run(state(home)), asyncio.run(state(target)))
    assert states == (("moved" if point == "copy.moved" else None), "arriving")
    assert ethos(home, "--to", target).returncode == 0
    assert asyncio.run(digests(target)) == before
    assert (asyncio.run(state(home)), asyncio.run(state(target))) == ("moved", "arrived")


def test_killed_where_all_begins_again_it_begins_again(home: Path, empty: Empty) -> None:
    target = empty("postgres")
    assert tried(home, target, "copy.batch", 9)
    asyncio.run(execute(home, "DELETE FROM erased_events"))
    assert tried(home, target, "copy.refilled", 1)
    assert ethos(home, "--to", target).returncode == 0
    assert asyncio.run(digests(target)) == asyncio.run(digests(home))


def test_killed_while_it_is_taken_back_neither_is_served_and_the_next_call_takes_it_back(
    home: Path, empty: Empty
) -> None:
    target = empty("postgres")
    assert ethos(home, "--to", target).returncode == 0
    assert tried(home, target, "copy.undoing", 1, "--undo")
    assert (asyncio.run(state(home)), asyncio.run(state(target))) == ("moved", "arriving")
    assert ethos(home, "--to", target, "--undo").returncode == 0
    assert (asyncio.run(state(home)), asyncio.run(state(target))) == (None, "arriving")


@pytest.mark.parametrize("point", ["directory.synced 1", "database.committing 2", "database.committing 5"])
def test_killed_beside_its_own_steps_it_goes_on(point: str, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    name, number = point.split()
    assert tried(home, target, name, int(number))
    assert ethos(home, "--to", target).returncode == 0
    assert asyncio.run(digests(target)) == asyncio.run(digests(home))
    assert not [*target.glob(".ethos-backup-*")]
