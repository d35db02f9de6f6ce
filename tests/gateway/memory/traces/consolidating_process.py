"""A process that consolidates a trace store, or shortens its old traces, with a model that says the same every time.

`python -m tests.gateway.memory.traces.consolidating_process BRAIN WORK`, where WORK is `consolidate` or `shorten`;
`ETHOS_FAILPOINTS` says where it dies.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.traces.archive import shorten_old
from gateway.traces.consolidation import Consolidation
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TraceStore, open_trace_store
from tests.gateway.memory.traces.people import Clock

INSIGHT = "The garden is full of roses"


async def insight(traces: Sequence[Trace]) -> str:
    """One sentence, whatever they are."""
    del traces
    return INSIGHT


async def gist(trace: Trace) -> str:
    """The first words."""
    return trace.content[:20]


async def work_on(trace_store: TraceStore, work: str) -> int:
    """Do it; how much was done."""
    if work == "shorten":
        return await shorten_old(trace_store, gist)
    report = await Consolidation(trace_store, insight=insight).run()
    return report.pruned + report.merged + report.derived + report.compacted


async def main(path: Path, work: str) -> None:
    async with open_trace_store(path, now=Clock()) as trace_store:
        sys.stdout.write(f"{await work_on(trace_store, work)}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
