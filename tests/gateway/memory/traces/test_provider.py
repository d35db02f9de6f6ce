"""The memory of the kind `traces` does what every memory must do."""

from __future__ import annotations

import pytest

from gateway.testing.memory import (
    EditableMemorySuite,
    ErasableMemorySuite,
    HistoricMemorySuite,
    MemoryProviderSuite,
    UnionSuite,
)
from gateway.traces.provider import TraceMemoryProvider
from gateway.traces.trace_store import TraceStore


@pytest.fixture
def provider(trace_store: TraceStore) -> TraceMemoryProvider:
    return TraceMemoryProvider(trace_store)


class TestTraces(MemoryProviderSuite, EditableMemorySuite, HistoricMemorySuite, ErasableMemorySuite, UnionSuite):
    """All that a stored memory can."""
