"""How well the trace memory finds what a question is about, by words and with vectors: the same at every run.

    python -m benchmarks.retrieval                   # plain FTS5, words alone, with MiniLM's vectors; half a minute
    python -m benchmarks.retrieval --embeddings http://127.0.0.1:11434/v1 --model all-minilm   # vectors of a server

There are two sets, see data/LICENSE. On the first the search was tuned: the 870 evidence turns and 470 questions of
LongMemEval, in one pool. On the second nothing was tuned: small talk of two pairs of people, and 61 questions, which
name them. A question is asked on its day, where the set has one. Another set of the same form is measured with --data;
it needs --embeddings for the line with vectors.
MiniLM's vectors of these texts lie beside them, made once by sentence-transformers, so no model is needed to repeat it.
A search takes the vector of its question from them: its time is without the model's, which is a server's.

Recall is the share of a question's turns among the first k, averaged over the questions; MRR is 1 / the rank of the
first of them within twenty. The evidence is the share of those turns that stand before the model in a turn, in as many
characters as a configuration has by default, and how many of them are used. Times are of the processor.
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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from gateway.agent.model import Spender
from gateway.agent.providers.embeddings import Embedded, MeteredEmbedder, WireEmbedder
from gateway.agent.providers.models import Endpoint
from gateway.config import TracesConfig
from gateway.memory.recall import Recollection, recalled_section
from gateway.protocols import MemoryScope
from gateway.runtime.logs import configure_logs
from gateway.store.stores import open_store
from gateway.traces.memory import TraceMemory
from gateway.traces.personality_traits import IngestRules
from gateway.traces.rows import insert, merge_index
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from gateway.traces.vectorizing import Vectorizing
from gateway.traces.vectors import QueryVectors

DATA = Path(__file__).parent / "data"
SETS = {
    DATA / "longmemeval_evidence.json.xz": DATA / "longmemeval_minilm.int8.xz",
    DATA / "small_talk.json.xz": DATA / "small_talk_minilm.int8.xz",
}
"""Each with its vectors."""
DIMENSIONS = 384
LEAST = 0.25
"""As the configuration has it."""
DEPTHS = (5, 10, 20)
DEEPEST = 50
TIMED = 700
"""Traces among which searches are timed."""
ROOM_CHARS = TracesConfig().recall_chars
ASKER = Viewer(user_id="u", personality_id="assistant", session_id=None)

Search = Callable[[str], Awaitable[Sequence[str]]]
Offer = Callable[[str], Awaitable[Sequence[Recollection]]]


@dataclass
class Clock:
    """Says when a question is asked: on its day, where the set has one."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        """The time, for the memory."""
        return self.at


Ask = Callable[[Search, Offer | None, Clock], Awaitable[None]]


@dataclass
class Question:
    """What came of questions, one item each."""

    recalls: dict[int, list[float]] = field(default_factory=lambda: {depth: [] for depth in DEPTHS})
    ranks: list[float] = field(default_factory=list)
    evidence: list[float] = field(default_factory=list)
    used_chars: list[int] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)

    def time_ms(self, share: float) -> float:
        """What that share of the searches took at most."""
        return sorted(self.times_ms)[int(len(self.times_ms) * share)]

    def __str__(self) -> str:
        recalls = "".join(f"{fmean(each):<11.4f}" for each in self.recalls.values())
        evidence = f"{fmean(self.evidence):.4f} {fmean(self.used_chars):>8,.0f}" if self.evidence else ""
        times = f"{self.time_ms(0.5):.2f} ms {self.time_ms(0.95):>6.2f} ms"
        return f"{recalls}{fmean(self.ranks):<8.4f}{times}   {evidence}"


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


async def with_trace_store(
    pool: Mapping[str, Any],
    root: Path,
    ask: Ask,
    embedder: MeteredEmbedder | None = None,
    limit: int = DEEPEST,
) -> None:
    """Our memory: who said it, when and where goes beside the text."""
    clock = Clock()
    async with open_trace_store(root / TRACES_NAME, now=clock) as trace_store:
        traces = [trace_of(document) for document in pool["docs"]]
        await trace_store.database.write(lambda connection: [insert(connection, trace) for trace in traces])
        while await trace_store.database.write(partial(merge_index, pages=500)):
            pass  # as after an import; what a turn adds is merged with it
        if embedder is not None:
            vectorizing = Vectorizing(trace_store, embedder)
            running = asyncio.create_task(vectorizing.run())
            await vectorizing.idle()
            running.cancel()
            await asyncio.wait([running])
            assert not await vectorizing.lacking(), "the server did not answer"
            trace_store.meaning = QueryVectors(embedder, timeout_s=60.0, least=LEAST)

        async def search(question: str) -> Sequence[str]:
            found = await trace_store.search(ASKER, TraceQuery(query=question, limit=limit))
            return [each.trace.id for each in found]

        rules = IngestRules(recall_chars=ROOM_CHARS)
        store = open_store(root / "ethos.sqlite")
        memory = TraceMemory(trace_store, rules=lambda _id: rules, counts=store.ingest, ingest=None, schedule=None)
        scope = MemoryScope(user_id=ASKER.user_id, personality_id=ASKER.personality_id, session_id=None, turn_id="t")
        await ask(search, partial(memory.before_turn, scope, role="owner"), clock)
        await store.close()


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


async def with_fts5(pool: Mapping[str, Any], root: Path, ask: Ask) -> None:
    """What everybody has: FTS5 with its stemmer and BM25, any of the words."""
    database = sqlite3.connect(root / "fts5.sqlite")
    database.execute("CREATE VIRTUAL TABLE search USING fts5 (id UNINDEXED, text, tokenize = 'porter unicode61')")
    database.executemany("INSERT INTO search VALUES (?, ?)", [(each["id"], each["text"]) for each in pool["docs"]])
    sql = f"SELECT id FROM search WHERE search MATCH ? ORDER BY rank LIMIT {DEEPEST}"  # noqa: S608 (a constant)

    async def search(question: str) -> Sequence[str]:
        expression = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", question.lower())))
        return [row[0] for row in database.execute(sql, (expression,))]

    await ask(search, None, Clock())
    database.close()


async def measured(pools: Sequence[Mapping[str, Any]], way: Callable[..., Awaitable[None]]) -> Question:
    """Ask everything of one way to search."""
    asked = Question()
    for pool in pools:

        async def ask(
            search: Search, offer: Offer | None, clock: Clock, queries: Sequence[Mapping[str, Any]] = pool["queries"]
        ) -> None:
            for query in queries:
                clock.at = said_at(query.get("date") or "")
                began_s = time.process_time()
                found = list(dict.fromkeys(await search(query["text"])))
                asked.times_ms.append((time.process_time() - began_s) * 1e3)
                gold = set(query["gold"])
                for depth in DEPTHS:
                    asked.recalls[depth].append(len(gold & set(found[:depth])) / len(gold))
                asked.ranks.append(next((1 / rank for rank, each in enumerate(found[:20], 1) if each in gold), 0.0))
                if offer is not None:
                    offered = await offer(query["text"])
                    asked.evidence.append(len(gold & {each.id for each in offered}) / len(gold))
                    asked.used_chars.append(len(recalled_section(offered) or ""))

        with tempfile.TemporaryDirectory() as root:
            await way(pool, Path(root), ask)
    return asked


def ways_of(
    path: Path, pools: Sequence[Mapping[str, Any]], server: OfServer | None
) -> dict[str, MeteredEmbedder | None]:
    """How the trace memory is asked, by the name of the line."""
    if server is not None:
        return {"traces, words alone": None, f"and {server.identity}": server}
    if path in SETS:
        return {"traces, words alone": None, "traces, and vectors": Recorded(pools, SETS[path])}
    return {"traces, words alone": None}


async def print_set(path: Path, server: OfServer | None) -> None:
    """One set, and how long a search among `TIMED` of its traces takes."""
    pools = load(path)
    turns, questions = (sum(len(pool[name]) for pool in pools) for name in ("docs", "queries"))
    print(f"{path.name}: {turns} turns, {questions} questions, {len(pools)} pool(s)")
    heads = "".join(f"recall@{depth:<4}" for depth in DEPTHS)
    print(f"{'':22}{heads}{'MRR':8}{'p50':10}{'p95':9}evidence in {ROOM_CHARS:,} characters, used")
    print(f"{'FTS5 alone':22}{await measured(pools, with_fts5)}")
    embedders = ways_of(path, pools, server)
    for name, embedder in embedders.items():
        print(f"{name:22}{await measured(pools, partial(with_trace_store, embedder=embedder))}")
    if turns >= TIMED:
        some = {"docs": [each for pool in pools for each in pool["docs"]][:TIMED], "queries": pools[0]["queries"]}
        for name, embedder in embedders.items():
            asked = await measured([some], partial(with_trace_store, embedder=embedder, limit=10))
            times = f"p50 {asked.time_ms(0.5):.2f} ms, p95 {asked.time_ms(0.95):.2f} ms"
            print(f"{name}: ten traces among {TIMED}, {times}")
    print()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a file of pools, JSON, or packed by xz")
    parser.add_argument(
        "--embeddings",
        metavar="URL",
        help="a server that speaks OpenAI's embeddings; its key, if it wants one, in EMBEDDINGS_API_KEY",
    )
    parser.add_argument("--model", default="all-minilm", help="of that server")
    arguments = parser.parse_args()
    configure_logs("error", "text")
    server = None
    if arguments.embeddings is not None:
        server = OfServer(arguments.embeddings, arguments.model, os.environ.get("EMBEDDINGS_API_KEY"))
    for path in SETS if arguments.data is None else (arguments.data,):
        await print_set(path, server)


if __name__ == "__main__":
    asyncio.run(main())
