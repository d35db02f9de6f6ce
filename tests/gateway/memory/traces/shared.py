"""A trace store in a database of a server, empty at the beginning of each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from gateway.store.postgres.engine import PostgresEngine
from gateway.traces.trace_store import TraceStore, shared_trace_store
from tests.gateway.memory.traces.people import Clock

Test = TypeVar("Test", bound=Callable[..., object])

_EMPTY = """
    TRUNCATE owners, traces, search, signatures, unembeddable, edges, uses, uncompared, consolidation_log, archive,
        archive_reads, records, approved_changes, trace_documents, trace_document_history, leases RESTART IDENTITY
"""


@asynccontextmanager
async def emptied_trace_store(url: str, clock: Clock) -> AsyncIterator[TraceStore]:
    """The tables at this address."""
    engine = PostgresEngine(url, connections=2)
    try:
        await engine.write(lambda connection: connection.execute(_EMPTY).rowcount)
        yield shared_trace_store(engine, now=clock)
    finally:
        await engine.close()


def about_files(test: Test) -> Test:
    """The test is about a file, or about what SQLite does."""
    test.is_about_files = True  # type: ignore[attr-defined]
    return test
