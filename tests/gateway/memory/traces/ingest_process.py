"""A process that does the ingest jobs of a data directory, and ends itself as by `kill -9` at a named step.

With the step `none` it ends when all is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.memory.ingest import IngestWorker
from gateway.store.stores import open_store
from gateway.traces.personality_traits import IngestRules
from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from gateway.traces.turn_facts import OfferedTraces, TurnFactExtractor

STEPS = ("said", "extract", "keep_facts", "keep", "end")


class Names:
    """A model that names one fact."""

    name = "names"

    def __init__(self, text: str) -> None:
        self._text = text

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        del request
        facts = [{"fact": self._text, "category": "knowledge", "importance": 0.9}]
        message = ChatMessage(role="assistant", text=json.dumps(facts))
        yield ModelReply(message=message, usage=ModelUsage(model=self.name, input_tokens=1, output_tokens=1))


class Mortal:
    """Does what another does, and dies after one of its steps."""

    def __init__(self, other: Any, step: str) -> None:
        self._other = other
        self._step = step

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._other, name)

        async def call(*args: Any, **keywords: Any) -> Any:
            result = await method(*args, **keywords)
            if name == self._step:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


def run(home: Path, fact: str, step: str) -> None:
    asyncio.run(_work(home, fact, step))


async def _work(home: Path, fact: str, step: str) -> None:
    store = open_store(home / "ethos.sqlite")
    async with open_trace_store(home / TRACES_NAME) as trace_store:
        rules = IngestRules()
        taker = TurnFactExtractor(
            trace_store, lambda: Names(fact), lambda _id: rules, store.proposals, offers=OfferedTraces()
        )
        worker = IngestWorker(Mortal(store.ingest, step), Mortal(taker, step))
        running = asyncio.create_task(worker.run())
        await worker.idle()
        running.cancel()
        await asyncio.wait([running])
    await store.close()
