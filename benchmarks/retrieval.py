"""How well the trace memory finds what a question is about, by words and with vectors: the same at every run.

    python -m benchmarks.retrieval                   # plain FTS5, words alone, with MiniLM's vectors; some seconds
    python -m benchmarks.retrieval --embeddings http://127.0.0.1:11434/v1 --model all-minilm   # vectors of a server

The data are the 870 evidence turns and 470 questions of LongMemEval (MIT, see data/LICENSE), in one pool. The search
was tuned on them, so they show that a change makes it no worse; they do not show how good it is on other conversations.
Another pool of the same form is measured with --data: what counts is one that was not tuned on.
MiniLM's vectors of these texts lie beside them, made once by sentence-transformers, so no model is needed to repeat it.
A search takes the vector of its question from them: its time is without the model's, which is a server's.
Another pool needs --embeddings for the last line.
Recall is the share of a question's turns among the first k, averaged over the questions; MRR is 1 / the rank of the
first of them within twenty.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gateway.agent.embedding_wire import WireEmbedder
from gateway.agent.embeddings import Embedded, PaidEmbedder
from gateway.agent.model import Spender
from gateway.agent.models import Endpoint
from gateway.logs import configure_logs
from gateway.memory.traces.brain import BRAIN_NAME, open_brain
from gateway.memory.traces.query_vectors import QueryVectors
from gateway.memory.traces.rows import insert
from gateway.memory.traces.search import Wanted
from gateway.memory.traces.trace import Trace, Viewer
from gateway.memory.traces.vectorizing import Vectorizing

DATA = Path(__file__).parent / "data" / "longmemeval_evidence.json.xz"
VECTORS = DATA.with_name("longmemeval_minilm.int8.xz")
DIMENSIONS = 384
LEAST = 0.25
"""As the configuration has it."""
DEPTHS = (5, 10, 20)
DEEPEST = 50
ASKER = Viewer(user_id="u", personality_id="assistant", session_id=None)

Search = Callable[[str], Awaitable[Sequence[str]]]


@dataclass(frozen=True)
class Score:
    """Of one way to search, over all questions."""

    recall: Mapping[int, float]
    mrr: float
    p50_ms: float
    p95_ms: float


def load(path: Path) -> Sequence[Mapping[str, Any]]:
    """The pools of a file: each has `docs` and `queries`."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    pools: Sequence[Mapping[str, Any]] = json.loads(data)["namespaces"]
    return pools


class Recorded:
    """Gives the vectors that were made before."""

    identity = "all-MiniLM-L6-v2"

    def __init__(self, pools: Sequence[Mapping[str, Any]], path: Path) -> None:
        numbers = np.frombuffer(lzma.decompress(path.read_bytes()), np.int8).reshape(-1, DIMENSIONS)
        texts = [each["text"] for name in ("docs", "queries") for pool in pools for each in pool[name]]
        self._vectors = dict(zip(texts, numbers, strict=True))

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """Look them up."""
        del spender
        return Embedded(vectors=[self._vectors[text].tolist() for text in texts], input_tokens=0)


class OfServer:
    """Asks a server; nobody pays."""

    def __init__(self, url: str, model: str, key: str | None) -> None:
        endpoint = Endpoint(
            name="embeddings",
            provider="openai",
            model=model,
            api_key=key,
            base_url=url,
            prices_usd=None,
            read_timeout_s=120.0,
        )
        self._wire = WireEmbedder(endpoint)
        self.identity = self._wire.identity

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """Ask the server."""
        del spender
        return await self._wire.embed(texts)


async def with_brain(
    pool: Mapping[str, Any],
    root: Path,
    ask: Callable[[Search], Awaitable[None]],
    embedder: PaidEmbedder | None = None,
) -> None:
    """Our memory: who said it, when and where goes beside the text."""
    async with open_brain(root / BRAIN_NAME) as brain:
        traces = [trace_of(document) for document in pool["docs"]]
        await brain.database.write(lambda connection: [insert(connection, trace) for trace in traces])
        if embedder is not None:
            vectorizing = Vectorizing(brain, embedder)
            running = asyncio.create_task(vectorizing.run())
            await vectorizing.idle()
            running.cancel()
            await asyncio.wait([running])
            assert not await vectorizing.lacking(), "the server did not answer"
            brain.meaning = QueryVectors(embedder, timeout_s=60.0, least=LEAST)

        async def search(question: str) -> Sequence[str]:
            found = await brain.search(ASKER, Wanted(query=question, limit=DEEPEST))
            return [each.trace.id for each in found]

        await ask(search)


def trace_of(document: Mapping[str, Any]) -> Trace:
    return Trace(
        id=document["id"],
        content=document["text"],
        owner=ASKER.owner("user"),
        speaker=document.get("speaker") or None,
        conversation=document.get("session") or None,
        position=document.get("idx"),
        created_at=said_at(document.get("date") or ""),
    )


def said_at(date: str) -> datetime:
    """`2023/04/10 (Mon) 14:47`, or the time being."""
    found = re.match(r"(\d{4})\D(\d\d)\D(\d\d)(?:.*?(\d\d):(\d\d))?", date)
    return datetime(*(int(part or 0) for part in found.groups()), tzinfo=UTC) if found else datetime.now(UTC)  # type: ignore[arg-type]


async def with_fts5(pool: Mapping[str, Any], root: Path, ask: Callable[[Search], Awaitable[None]]) -> None:
    """What everybody has: FTS5 with its stemmer and BM25, any of the words."""
    database = sqlite3.connect(root / "fts5.sqlite")
    database.execute("CREATE VIRTUAL TABLE search USING fts5 (id UNINDEXED, text, tokenize = 'porter unicode61')")
    database.executemany("INSERT INTO search VALUES (?, ?)", [(each["id"], each["text"]) for each in pool["docs"]])
    sql = f"SELECT id FROM search WHERE search MATCH ? ORDER BY rank LIMIT {DEEPEST}"  # noqa: S608 (a constant)

    async def search(question: str) -> Sequence[str]:
        expression = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", question.lower())))
        return [row[0] for row in database.execute(sql, (expression,))]

    await ask(search)
    database.close()


async def measured(pools: Sequence[Mapping[str, Any]], way: Callable[..., Awaitable[None]]) -> Score:
    """Ask everything of one way to search."""
    recalls: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    ranks: list[float] = []
    times_ms: list[float] = []

    for pool in pools:

        async def ask(search: Search, queries: Sequence[Mapping[str, Any]] = pool["queries"]) -> None:
            for query in queries:
                began = time.perf_counter()
                found = list(dict.fromkeys(await search(query["text"])))
                times_ms.append((time.perf_counter() - began) * 1e3)
                gold = set(query["gold"])
                for depth in DEPTHS:
                    recalls[depth].append(len(gold & set(found[:depth])) / len(gold))
                ranks.append(next((1 / rank for rank, each in enumerate(found[:20], 1) if each in gold), 0.0))

        with tempfile.TemporaryDirectory() as root:
            await way(pool, Path(root), ask)

    times_ms.sort()
    return Score(
        recall={depth: sum(each) / len(each) for depth, each in recalls.items()},
        mrr=sum(ranks) / len(ranks),
        p50_ms=times_ms[len(times_ms) // 2],
        p95_ms=times_ms[int(len(times_ms) * 0.95)],
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="a file of pools, JSON, or packed by xz")
    parser.add_argument(
        "--embeddings",
        metavar="URL",
        help="a server that speaks OpenAI's embeddings; its key, if it wants one, in EMBEDDINGS_API_KEY",
    )
    parser.add_argument("--model", default="all-minilm", help="of that server")
    arguments = parser.parse_args()
    configure_logs("error", "text")
    pools = load(arguments.data)
    turns, questions = (sum(len(pool[name]) for pool in pools) for name in ("docs", "queries"))
    print(f"{arguments.data.name}: {turns} turns, {questions} questions, {len(pools)} pool(s)\n")
    print(f"{'':24}{''.join(f'recall@{depth:<6}' for depth in DEPTHS)}{'MRR':8}{'p50':>9}{'p95':>11}")
    ways: dict[str, Callable[..., Awaitable[None]]] = {"FTS5 alone": with_fts5, "traces, words alone": with_brain}
    if arguments.embeddings is not None:
        server = OfServer(arguments.embeddings, arguments.model, os.environ.get("EMBEDDINGS_API_KEY"))
        ways[f"and {arguments.model}"] = partial(with_brain, embedder=server)
    elif arguments.data == DATA:
        ways["traces, and vectors"] = partial(with_brain, embedder=Recorded(pools, VECTORS))
    for name, way in ways.items():
        score = await measured(pools, way)
        recall = "".join(f"{score.recall[depth]:<13.4f}" for depth in DEPTHS)
        print(f"{name:24}{recall}{score.mrr:<8.4f}{score.p50_ms:>6.2f} ms{score.p95_ms:>8.2f} ms")


if __name__ == "__main__":
    asyncio.run(main())
