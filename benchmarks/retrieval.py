"""How well the trace memory finds what a question is about: no model, the same numbers at every run.

    python -m benchmarks.retrieval                   # beside plain FTS5, some seconds

The data are the 870 evidence turns and 470 questions of LongMemEval (MIT, see data/LICENSE), in one pool. The search
was tuned on them, so they show that a change makes it no worse; they do not show how good it is on other conversations.
Another pool of the same form is measured with --data: what counts is one that was not tuned on.
Recall is the share of a question's turns among the first k, averaged over the questions; MRR is 1 / the rank of the
first of them within twenty.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import re
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.memory.traces.brain import BRAIN_NAME, open_brain
from gateway.memory.traces.rows import insert
from gateway.memory.traces.search import Wanted
from gateway.memory.traces.trace import Trace, Viewer

DATA = Path(__file__).parent / "data" / "longmemeval_evidence.json.xz"
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


async def with_brain(pool: Mapping[str, Any], root: Path, ask: Callable[[Search], Awaitable[None]]) -> None:
    """Our memory: who said it, when and where goes beside the text."""
    async with open_brain(root / BRAIN_NAME) as brain:
        traces = [trace_of(document) for document in pool["docs"]]
        await brain.database.write(lambda connection: [insert(connection, trace) for trace in traces])

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
    arguments = parser.parse_args()
    pools = load(arguments.data)
    turns, questions = (sum(len(pool[name]) for pool in pools) for name in ("docs", "queries"))
    print(f"{arguments.data.name}: {turns} turns, {questions} questions, {len(pools)} pool(s)\n")
    print(f"{'':24}{''.join(f'recall@{depth:<6}' for depth in DEPTHS)}{'MRR':8}{'p50':>9}{'p95':>11}")
    for name, way in (("FTS5 alone", with_fts5), ("traces, words alone", with_brain)):
        score = await measured(pools, way)
        recall = "".join(f"{score.recall[depth]:<13.4f}" for depth in DEPTHS)
        print(f"{name:24}{recall}{score.mrr:<8.4f}{score.p50_ms:>6.2f} ms{score.p95_ms:>8.2f} ms")


if __name__ == "__main__":
    asyncio.run(main())
