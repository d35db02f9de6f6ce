"""A process that writes into the memory of the kind `traces`, and may die at any statement of a write.

`python -m tests.gateway.memory.traces.writing_process STORE TURN COUNT [STATEMENT]`: it adds COUNT lines, a turn each;
with STATEMENT it kills itself before that statement of the first write.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.protocols import MemoryUpdate
from gateway.testing.memory import scope
from gateway.traces.provider import TraceMemoryProvider
from gateway.traces.trace_store import TraceStore, open_trace_store

UPDATES = [MemoryUpdate.remove("memory", "wrong"), MemoryUpdate.add("memory", "It is right.\nAnd it has two lines.")]


@asynccontextmanager
async def provider(path: str) -> AsyncGenerator[TraceMemoryProvider]:
    """The memory in a file."""
    async with open_trace_store(Path(path)) as trace_store:
        yield TraceMemoryProvider(trace_store)


async def _watch(trace_store: TraceStore, die_at: int) -> None:
    """Count the statements of the writer from now on; those that triggers make of one are one."""
    seen, last = 0, ""

    def count(statement: str) -> None:
        nonlocal seen, last
        if not statement.startswith("--") and statement != last:
            seen, last = seen + 1, statement
        if seen == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    await trace_store.database.outside(lambda connection: connection.set_trace_callback(count))


async def main(path: Path, turn: str, count: int, die_at: int | None) -> None:
    async with open_trace_store(path) as trace_store:
        memory = TraceMemoryProvider(trace_store)
        if die_at is not None:
            await _watch(trace_store, die_at)
            await memory.sync(scope(turn), UPDATES)
            return
        for number in range(count):
            await memory.sync(scope(f"{turn}-{number}"), [MemoryUpdate.add("memory", f"<{turn}-{number}>")])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if sys.argv[4:] else None))
