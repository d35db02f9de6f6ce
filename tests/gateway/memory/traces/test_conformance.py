"""The trace memory, asked by a scope, does what every memory that can be searched must do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gateway.protocols import MemoryScope
from gateway.traces.memory import TraceMemory
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TraceStore
from gateway.traces.turn_facts import viewer_of
from tests.conformance.searchable_memory import SearchableMemoryConformance

ON_BOTH = True


class TestSearchOfTraces(SearchableMemoryConformance):
    @pytest.fixture
    def searchable(
        self, memory: TraceMemory, trace_store: TraceStore
    ) -> tuple[TraceMemory, Callable[[MemoryScope, str], Awaitable[None]]]:
        async def put(at: MemoryScope, text: str) -> None:
            viewer = viewer_of(at)
            await trace_store.add(viewer, Trace(content=text, owner=viewer.owner("user")))

        return memory, put
