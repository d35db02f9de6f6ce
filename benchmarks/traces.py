"""How fast the trace memory takes in, finds, tidies and hands out, and how that grows with what is in it.

    python -m benchmarks.traces                           # 1 000 and 10 000 traces, about a minute
    python -m benchmarks.traces --traces 1000 100000      # some minutes
    python -m benchmarks.traces --traces 100000 1000000   # long: leave it alone for an hour

The facts are made up: words with the frequencies of real ones (Zipf), one in twenty a duplicate. All are one person's,
which is the worst case. Growth is the exponent b of time = a * n^b between two sizes: 1 is proportional, 2 quadratic.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from gateway.agent.embeddings import Embedded
from gateway.agent.model import Spender
from gateway.logs import configure_logs
from gateway.memory.traces.brain import BRAIN_NAME, Brain, open_brain
from gateway.memory.traces.consolidation import Consolidation
from gateway.memory.traces.query_vectors import QueryVectors
from gateway.memory.traces.search import Wanted
from gateway.memory.traces.trace import Trace, Viewer
from gateway.memory.traces.transfer.bounds import OfPerson
from gateway.memory.traces.transfer.exporting import export_traces
from gateway.memory.traces.transfer.importing import import_traces
from gateway.memory.traces.vectors import as_blob

PERSON = Viewer(user_id="u", personality_id="assistant", session_id=None)
WORDS = 20_000
SAMPLES = 200
DUPLICATES = 0.05
CONSOLIDATED_AGAIN = "consolidate again"
SEARCH_WITH_VECTORS = "with vectors p95"
DIMENSIONS = 384  # as MiniLM's
CHUNK = 5_000


class Facts:
    """Sentences of some dozen words."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        letters = "etaoinshrdlcumwfgypbvk"
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(3, 9))) for _ in range(WORDS)]
        self._sums = list(itertools.accumulate(1 / (rank + 1) for rank in range(WORDS)))

    def sentence(self, words: int | None = None) -> str:
        """One of so many words, or of eight to twenty-four."""
        count = words or self._random.randint(8, 24)
        return " ".join(self._random.choices(self._words, cum_weights=self._sums, k=count))

    def sentences(self, count: int) -> Iterator[str]:
        """So many, some of them twice in a row."""
        last = self.sentence()
        for _ in range(count):
            if self._random.random() > DUPLICATES:
                last = self.sentence()
            yield last


def write_file(path: Path, count: int, facts: Facts) -> None:
    """An export of some other program's."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"traces":[')
        for index, sentence in enumerate(facts.sentences(count)):
            file.write(",\n" if index else "\n")
            file.write(json.dumps({"id": f"mt_{index}", "content": sentence, "tags": ["made up"]}))
        file.write("]}\n")


async def measured(root: Path, count: int) -> Mapping[str, float]:
    """Seconds of each kind of work; of single calls the mean."""
    facts = Facts(count)
    source = root / "facts.json"
    write_file(source, count, facts)
    times: dict[str, float] = {}
    async with open_brain(root / BRAIN_NAME) as brain:
        times["import all"] = await timed(import_traces(brain, source, bounds=OfPerson(PERSON), dedup=False))
        times["add one"] = await timed(add(brain, facts)) / SAMPLES
        times["search p95"] = await search_p95_s(brain, facts)
        times[SEARCH_WITH_VECTORS] = await search_with_vectors_p95_s(brain, facts)
        times["consolidate all"] = await timed(Consolidation(brain).run())
        times[CONSOLIDATED_AGAIN] = await timed(Consolidation(brain).run())
        times["export json"] = await timed(export_traces(brain, root / "out.json", form="json"))
        times["export sqlite"] = await timed(export_traces(brain, root / "out.sqlite", form="sqlite"))
        times["import again"] = await timed(import_traces(brain, root / "out.json", bounds=OfPerson(PERSON)))
    return times


async def timed(work: object) -> float:
    began = time.perf_counter()
    await work  # type: ignore[misc]
    return time.perf_counter() - began


async def add(brain: Brain, facts: Facts) -> None:
    for _ in range(SAMPLES):
        await brain.add(PERSON, Trace(content=facts.sentence(), owner=PERSON.owner("user")))


async def search_p95_s(brain: Brain, facts: Facts) -> float:
    times = sorted([await timed(brain.search(PERSON, Wanted(query=facts.sentence(8)))) for _ in range(SAMPLES)])
    return times[int(SAMPLES * 0.95)]


class Chance:
    """Gives vectors without a meaning: what they cost to compare does not depend on it."""

    identity = "chance"

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """As many as there are texts."""
        del spender
        return Embedded(vectors=self._random.normal(size=(len(texts), DIMENSIONS)).tolist(), input_tokens=0)


async def search_with_vectors_p95_s(brain: Brain, facts: Facts) -> float:
    """Without the time of the endpoint. The vectors are taken away again, for what comes after."""
    chance = Chance()
    rows = await brain.database.read(lambda connection: connection.execute("SELECT number FROM traces").fetchall())
    numbers = [int(row[0]) for row in rows]
    for begin in range(0, len(numbers), CHUNK):
        chunk = numbers[begin : begin + CHUNK]
        vectors = (await chance.embed([""] * len(chunk), Spender())).vectors
        values = [(as_blob(vector), chance.identity, number) for vector, number in zip(vectors, chunk, strict=True)]
        sql = "UPDATE traces SET embedding = ?, embedding_model = ? WHERE number = ?"
        await brain.database.write(partial(_many, sql=sql, values=values))
    brain.meaning = QueryVectors(chance, timeout_s=60.0, least=0.25)
    found_s = await search_p95_s(brain, facts)
    brain.meaning = None
    sql = "UPDATE traces SET embedding = NULL, embedding_model = NULL"
    await brain.database.write(lambda connection: connection.execute(sql))
    return found_s


def _many(connection: sqlite3.Connection, *, sql: str, values: Sequence[tuple[object, ...]]) -> None:
    connection.executemany(sql, values)


def told(name: str, seconds: float, count: int) -> str:
    if name in ("add one", "search p95", SEARCH_WITH_VECTORS):
        return f"{seconds * 1e3:,.2f} ms"
    return f"{seconds:,.2f} s" + ("" if name == CONSOLIDATED_AGAIN else f" ({count / seconds:,.0f}/s)")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, nargs="+", default=[1_000, 10_000])
    sizes = sorted(parser.parse_args().traces)
    configure_logs("critical", "text")
    results = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as root:
            results.append(await measured(Path(root), size))
    print(f"{'':20}" + "".join(f"{f'{size:,} traces':>26}" for size in sizes) + f"{'growth':>10}")
    for name in results[0]:
        row = "".join(f"{told(name, result[name], size):>26}" for size, result in zip(sizes, results, strict=True))
        growth = ""
        if len(sizes) > 1:
            growth = f"{math.log(results[-1][name] / results[0][name]) / math.log(sizes[-1] / sizes[0]):.2f}"
        print(f"{name:20}{row}{growth:>10}")
    used = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert used is not None
    print(f"\nAt most {int(used[1]) / 1024:,.0f} MB of memory, Python and all.")


if __name__ == "__main__":
    asyncio.run(main())
