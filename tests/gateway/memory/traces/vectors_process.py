"""A process that makes the vectors of a trace store, until all have one.

`python -m tests.gateway.memory.traces.vectors_process BRAIN URL BATCH`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.agent.model import Spender
from gateway.agent.providers.embeddings import Embedded, WireEmbedder
from gateway.agent.providers.models import Endpoint
from gateway.traces.trace_store import open_trace_store
from gateway.traces.vectorizing import Vectorizing


class Unpaid:
    """A `MeteredEmbedder` that nobody pays, over a real wire; remembers on whose account it was asked."""

    def __init__(self, url: str, model: str = "minilm", *, dimensions: int | None = None) -> None:
        endpoint = Endpoint(
            name="embedder",
            provider="openai",
            model=model,
            api_key=None,
            base_url=url,
            prices_usd=None,
            read_timeout_s=30.0,
        )
        self.wire = WireEmbedder(endpoint, dimensions=dimensions)
        self.spenders: list[Spender] = []

    @property
    def identity(self) -> str:
        return self.wire.identity

    async def embed(self, texts: list[str], spender: Spender) -> Embedded:  # type: ignore[override]
        self.spenders.append(spender)
        return await self.wire.embed(texts)


async def main(path: Path, url: str, batch: int) -> None:
    embedder = Unpaid(url)
    async with open_trace_store(path) as trace_store:
        vectorizing = Vectorizing(trace_store, embedder, batch=batch)
        running = asyncio.create_task(vectorizing.run())
        await vectorizing.idle()
        running.cancel()
        await asyncio.wait([running])
    await embedder.wire.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
