"""A process that approves proposal 1 of a data directory, and ends itself as by `kill -9` at a named step.

With the step `none` it does what a gateway does at its start: it writes what was approved and may not be written.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.memory.proposals import Reviewer
from gateway.memory.review import MemoryReview
from gateway.memory.sync import MemorySync
from gateway.store.stores import open_store
from gateway.traces.approved import ApprovedFacts
from gateway.traces.trace_store import TRACES_NAME, open_trace_store

STEPS = ("before decide", "after decide", "before fact_is_written", "after fact_is_written")


class Mortal:
    """Does what another does, and dies before or after one of its steps."""

    def __init__(self, other: Any, step: str) -> None:
        self._other = other
        self._step = step

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._other, name)

        async def call(*args: Any, **keywords: Any) -> Any:
            if f"before {name}" == self._step:
                os.kill(os.getpid(), signal.SIGKILL)
            result = await method(*args, **keywords)
            if f"after {name}" == self._step:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


def run(home: Path, step: str) -> None:
    asyncio.run(_approve(home, step))


async def _approve(home: Path, step: str) -> None:
    store = open_store(home / "ethos.sqlite")
    proposals = Mortal(store.proposals, step)
    memory = MarkdownFileMemoryProvider(home, store.journal)
    async with open_trace_store(home / TRACES_NAME) as trace_store:
        facts = ApprovedFacts(trace_store, proposals)
        if step == "none":
            await facts.replay()
        else:
            review = MemoryReview(proposals, memory, MemorySync(memory, store.turns), facts)
            await review.approve(1, Reviewer(user_id=None))
    await memory.close()
    await store.close()
