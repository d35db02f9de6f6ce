"""A trace store of one's own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.ingest import SqlIngestJobs
from gateway.traces.memory import TraceMemory, TurnCounts
from gateway.traces.personality_traits import IngestRules
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from tests.gateway.memory.traces.people import Clock
from tests.stores import opened_database


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def trace_store(tmp_path: Path, clock: Clock) -> AsyncIterator[TraceStore]:
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
