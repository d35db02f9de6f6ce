"""A trace store of one's own for each test: a file, and in the modules that say `ON_BOTH` also tables of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.store.ingest import SqlIngestJobs
from gateway.traces.memory import TraceMemory, TurnCounts
from gateway.traces.personality_traits import IngestRules
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from tests.gateway.memory.traces.people import Clock
from tests.gateway.memory.traces.shared import emptied_trace_store
from tests.servers.postgres import PostgresServer, fresh_database
from tests.stores import make_tables, opened_database


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of such a module on both engines, but for those that are about files, or take hundreds of tries."""
    is_on_both = getattr(metafunc.module, "ON_BOTH", False) and "trace_store" in metafunc.fixturenames
    if is_on_both and not any(hasattr(metafunc.function, name) for name in ("hypothesis", "is_about_files")):
        metafunc.parametrize("trace_store", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(scope="module")
def traces_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database for the tests of a module."""
    with fresh_database(postgres_server, make_tables) as url:
        yield url


@pytest.fixture
async def trace_store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[TraceStore]:
    if getattr(request, "param", "sqlite") == "postgres":
        async with emptied_trace_store(request.getfixturevalue("traces_url"), clock) as trace_store:
            yield trace_store
        return
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock) as trace_store:
        yield trace_store


@pytest.fixture
async def counts(tmp_path: Path) -> AsyncIterator[TurnCounts]:
    """How many turns each person had, in a database."""
    async with opened_database(tmp_path / "ethos.sqlite") as database:
        yield SqlIngestJobs(database)


@pytest.fixture
def memory(trace_store: TraceStore, counts: TurnCounts) -> TraceMemory:
    """What a turn asks of the trace store; nothing is ingested or consolidated."""
    return TraceMemory(trace_store, rules=lambda _id: IngestRules(), counts=counts, ingest=None, schedule=None)
