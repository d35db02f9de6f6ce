"""How fast the trace memory takes in, finds, tidies and hands out, and how that grows with what is in it.

    python -m benchmarks.traces                           # 1 000 and 10 000 traces, about a minute
    python -m benchmarks.traces --traces 1000 100000      # some minutes
    python -m benchmarks.traces --traces 100000 1000000   # long: leave it alone for an hour
    python -m benchmarks.traces --traces 1000000 --samples 20 --no-vectors   # a quarter of an hour
    python -m benchmarks.traces --traces 100000 --postgres postgresql://…   # searches a copy in an empty database, too
    python -m benchmarks.traces --agentos ~/agentos   # beside AgentOS, where its package and Node are (see agentos.mjs)
    python -m benchmarks.traces --chatgpt-mb 2000 --directory /var/tmp   # reads a made-up export of ChatGPT's

The facts are made up: words with the frequencies of real ones (Zipf), one in twenty a duplicate. All are one person's,
which is the worst case. Growth is the exponent b of time = a * n^b between two sizes: 1 is proportional, 2 quadratic.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import math
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gateway.agent.model import Spender
from gateway.agent.providers.embeddings import Embedded
from gateway.ops.moving_facts import copy_facts
from gateway.runtime.logs import configure_logs
from gateway.store.stores import open_postgres
from gateway.traces import changes
from gateway.traces.consolidation import Consolidation
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store, shared_trace_store
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from gateway.traces.vectors import QueryVectors, as_blob

PERSON = Viewer(user_id="u", personality_id="assistant", session_id=None)
WORDS = 20_000
SAMPLES = 200
DUPLICATES = 0.05
SEARCH = "search p95"
CONSOLIDATED_AGAIN = "consolidate again"
SEARCH_WITH_VECTORS = "with vectors p95"
SERVER, SERVER_WITH_VECTORS = "on a server p95", "its vectors p95"
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


@dataclass(frozen=True)
class Cost:
    """Of one kind of work: its time, of single calls the mean or the 95th percentile; and the memory at its highest."""

    seconds: float
    memory_mb: float


class Run:
    """One trace store, one kind of work after the other."""

    def __init__(self, root: Path, count: int, samples: int, *, postgres: str | None = None) -> None:
        self.root = root
        self.postgres = postgres
        self.count = count
        self.samples = samples
        self.facts = Facts(count)
        self.costs: dict[str, Cost] = {}

    async def all(self, *, with_vectors: bool) -> Mapping[str, Cost]:
        """Everything, in the order in which it is printed."""
        source, out = self.root / "facts.json", self.root / "out.json"
        write_file(source, self.count, self.facts)
        async with open_trace_store(self.root / TRACES_NAME) as trace_store:
            await self._note("import all", import_traces(trace_store, source, bounds=OfPerson(PERSON), dedup=False))
            source.unlink()
            await self._note("add one", add(trace_store, self.facts, self.samples), shared_by=self.samples)
            await self._note_p95(SEARCH, trace_store)
            if with_vectors:
                await give_vectors(trace_store)
                trace_store.meaning = QueryVectors(Chance(), timeout_s=60.0, least=0.25)
                await self._note_p95(SEARCH_WITH_VECTORS, trace_store)
                trace_store.meaning = None
                if self.postgres is not None:
                    await self._on_server(self.postgres)
                await take_vectors(trace_store)
            await self._note("consolidate all", Consolidation(trace_store).run())
            await self._note(CONSOLIDATED_AGAIN, Consolidation(trace_store).run())
            await self._note("export sqlite", export_traces(trace_store, self.root / "out.sqlite", form="sqlite"))
            (self.root / "out.sqlite").unlink()
            await self._note("export json", export_traces(trace_store, out, form="json"))
            await self._note("import again", import_traces(trace_store, out, bounds=OfPerson(PERSON)))
        return self.costs

    async def _on_server(self, url: str) -> None:
        """The same searches in a copy of the file."""
        store = await asyncio.to_thread(open_postgres, url)
        try:
            await copy_facts(self.root, url, lambda _table, _rows: None)
            await store.engine.compact()
            trace_store = shared_trace_store(store.engine)
            await self._note_p95(SERVER, trace_store)
            trace_store.meaning = QueryVectors(Chance(), timeout_s=60.0, least=0.25)
            await self._note_p95(SERVER_WITH_VECTORS, trace_store)
        finally:
            await store.close()

    async def _note(self, name: str, work: Awaitable[object], *, shared_by: int = 1) -> None:
        begin_peak()
        self._keep(name, await timed(work) / shared_by)

    async def _note_p95(self, name: str, trace_store: TraceStore) -> None:
        begin_peak()
        times = sorted(
            [
                await timed(trace_store.search(PERSON, TraceQuery(query=self.facts.sentence(8))))
                for _ in range(self.samples)
            ]
        )
        self._keep(name, times[int(self.samples * 0.95)])

    def _keep(self, name: str, seconds: float) -> None:
        self.costs[name] = Cost(seconds, peak_mb())
        sys.stderr.write(f"{self.count:,}: {told(name, self.costs[name], self.count)}  {name}\n")


def begin_peak() -> None:
    """Measure the highest use of memory from here on; see proc_pid_clear_refs(5)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_mb() -> float:
    """The most memory that was in use since."""
    used = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert used is not None
    return int(used[1]) / 1024


def write_chatgpt(path: Path, size_bytes: int, facts: Facts) -> int:
    """An export of ChatGPT's as it is, edits and calls of tools among its messages; how many pairs count.

    Its words are few and its sentences are used again: what a reader does for a byte is the same.
    """
    sentences = [facts.sentence(20) for _ in range(2_000)]
    rng, pairs = random.Random(1), 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number in itertools.count():
            turns = rng.randint(1, 40)
            file.write(("," if number else "") + json.dumps(_conversation(number, turns, sentences, rng)))
            pairs += turns
            if file.tell() >= size_bytes:
                break
        file.write("]")
    return pairs


def _conversation(number: int, turns: int, sentences: Sequence[str], rng: random.Random) -> dict[str, object]:
    mapping: dict[str, object] = {"root": {"id": "root", "parent": None, "message": None, "children": []}}
    last = "root"
    for turn in range(turns):
        asked = f"{number}.{turn} {rng.choice(sentences)}"
        said = (
            ("dropped", last, "user", "all", f"no, {asked}"),
            ("asked", last, "user", "all", asked),
            ("called", "asked", "assistant", "browser", rng.choice(sentences)),
            ("told", "called", "tool", "all", " ".join(rng.choices(sentences, k=5))),
            ("answered", "told", "assistant", "all", "\n".join(rng.choices(sentences, k=rng.randint(1, 12)))),
        )
        for name, parent, role, recipient, text in said:
            before = parent if parent == last else f"{parent} {turn}"
            message = {
                "id": f"{name} {turn}",
                "author": {"role": role, "name": None, "metadata": {}},
                "create_time": 1_700_000_000.25 + turn,
                "content": {"content_type": "text", "parts": [text]},
                "recipient": recipient,
                "weight": 1.0,
                "metadata": {"model_slug": "gpt-4o", "request_id": "0" * 36},
            }
            mapping[f"{name} {turn}"] = {"id": f"{name} {turn}", "parent": before, "message": message, "children": []}
        last = f"answered {turn}"
    known = {"title": f"Conversation {number}", "conversation_id": f"c{number}", "create_time": 1_700_000_000.0}
    return {**known, "mapping": mapping, "current_node": last}


async def chatgpt(root: Path, size_mb: int) -> None:
    """Make the file, then a dry run over it and the import itself."""
    path = root / "conversations.json"
    pairs = write_chatgpt(path, size_mb * 1_000_000, Facts(1))
    size = path.stat().st_size / 1e6
    print(f"conversations.json: {size:,.0f} MB, {pairs:,} questions with their answers")
    async with open_trace_store(root / TRACES_NAME) as trace_store:
        for name, is_dry_run in (("dry run", True), ("import", False)):
            begin_peak()
            began = time.perf_counter()
            result = await import_traces(trace_store, path, bounds=OfPerson(PERSON), is_dry_run=is_dry_run)
            seconds = time.perf_counter() - began
            assert (result.imported, result.errors) == (pairs, []), result
            rates = f"{size / seconds:,.1f} MB/s, {pairs / seconds:,.0f} traces/s"
            print(f"{name:10}{seconds:10,.1f} s   {rates}, at most {peak_mb():,.0f} MB of memory, Python and all")


async def beside_agentos(root: Path, directory: Path, count: int) -> None:
    """The same facts, added one by one and consolidated, by both in turn."""
    sentences = list(Facts(1).sentences(count))
    (root / "facts.txt").write_text("\n".join(sentences), encoding="utf-8")
    script = Path(__file__).with_name("agentos.mjs")
    program = ("node", str(script), str(directory.resolve()), str(root / "facts.txt"), str(root / "agentos.sqlite"))
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    theirs = json.loads(said.decode().strip().splitlines()[-1])
    ours = {}
    async with open_trace_store(root / TRACES_NAME) as trace_store:
        for is_durable in (False, True):
            ours[f"first, {is_durable}"] = await timed(add_all(trace_store, sentences[:1_000], is_durable=is_durable))
            ours[f"next, {is_durable}"] = (
                await timed(add_all(trace_store, sentences[1_000:1_200], is_durable=is_durable)) / 200
            )
            if is_durable:
                await add_all(trace_store, sentences[1_200:], is_durable=False)
                ours["consolidate"] = await timed(Consolidation(trace_store).run())
            else:
                await trace_store.database.write(lambda connection: connection.execute("DELETE FROM traces"))
    print(f"{'':34}{'this':>12}{'AgentOS':>12}")
    for name, key, key_of_theirs in (
        ("add 1 000, not waiting for the disk", "first, False", "first"),
        ("add the next, not waiting", "next, False", "next"),
        ("add 1 000, each on the disk", "first, True", None),
        ("add the next, each on the disk", "next, True", None),
        (f"consolidate {count:,}", "consolidate", "consolidate"),
    ):
        other = "" if key_of_theirs is None else f"{theirs[key_of_theirs] * 1e3:,.2f} ms"
        print(f"{name:34}{f'{ours[key] * 1e3:,.2f} ms':>12}{other:>12}")


async def add_all(trace_store: TraceStore, sentences: Sequence[str], *, is_durable: bool) -> None:
    for sentence in sentences:
        trace = Trace(content=sentence, owner=PERSON.owner("user"))
        work = partial(changes.add, trace=trace, now=trace_store.now())
        await trace_store.database.write(work, is_durable=is_durable)


async def timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def add(trace_store: TraceStore, facts: Facts, samples: int) -> None:
    for _ in range(samples):
        await trace_store.add(PERSON, Trace(content=facts.sentence(), owner=PERSON.owner("user")))


class Chance:
    """Gives vectors without a meaning: what they cost to compare does not depend on it."""

    identity = "chance"

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """As many as there are texts."""
        del spender
        return Embedded(vectors=self._random.normal(size=(len(texts), DIMENSIONS)).tolist(), input_tokens=0)


async def give_vectors(trace_store: TraceStore) -> None:
    """To every trace, in no time that is measured."""
    chance, after = Chance(), 0
    sql = "UPDATE traces SET embedding = ?, embedding_model = ? WHERE number = ?"
    while numbers := await trace_store.database.read(partial(_numbers, after=after)):
        vectors = (await chance.embed([""] * len(numbers), Spender())).vectors
        values = [(as_blob(vector), chance.identity, number) for vector, number in zip(vectors, numbers, strict=True)]
        await trace_store.database.write(partial(_many, sql=sql, values=values))
        after = numbers[-1]


async def take_vectors(trace_store: TraceStore) -> None:
    """Away again, for what comes after."""
    after = 0
    sql = "UPDATE traces SET embedding = NULL, embedding_model = NULL WHERE number = ?"
    while numbers := await trace_store.database.read(partial(_numbers, after=after)):
        await trace_store.database.write(partial(_many, sql=sql, values=[(number,) for number in numbers]))
        after = numbers[-1]


def _numbers(connection: sqlite3.Connection, *, after: int) -> Sequence[int]:
    sql = "SELECT number FROM traces WHERE number > ? ORDER BY number LIMIT ?"
    return [int(row[0]) for row in connection.execute(sql, (after, CHUNK))]


def _many(connection: sqlite3.Connection, *, sql: str, values: Sequence[tuple[object, ...]]) -> None:
    connection.executemany(sql, values)


def told(name: str, cost: Cost, count: int) -> str:
    """Time and memory, for people."""
    if name in ("add one", SEARCH, SEARCH_WITH_VECTORS, SERVER, SERVER_WITH_VECTORS):
        time_of = f"{cost.seconds * 1e3:,.2f} ms"
    else:
        rate = "" if name == CONSOLIDATED_AGAIN else f" ({count / cost.seconds:,.0f}/s)"
        time_of = f"{cost.seconds:,.2f} s{rate}"
    return f"{time_of}{cost.memory_mb:8,.0f} MB"


def print_table(sizes: Sequence[int], results: Sequence[Mapping[str, Cost]]) -> None:
    """A row for each kind of work."""
    print(f"{'':20}" + "".join(f"{f'{size:,} traces':>34}" for size in sizes) + f"{'growth':>10}")
    for name in results[0]:
        row = "".join(f"{told(name, result[name], size):>34}" for size, result in zip(sizes, results, strict=True))
        growth = ""
        if len(sizes) > 1:
            ratio = results[-1][name].seconds / results[0][name].seconds
            growth = f"{math.log(ratio) / math.log(sizes[-1] / sizes[0]):.2f}"
        print(f"{name:20}{row}{growth:>10}")
    most = max(cost.memory_mb for result in results for cost in result.values())
    print(f"\nAt most {most:,.0f} MB of memory, Python and all.")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--samples", type=int, default=SAMPLES, help="single calls of each kind")
    parser.add_argument("--no-vectors", action="store_true", help="search by words alone")
    parser.add_argument("--postgres", metavar="URL", help="of an empty database, in which a copy is searched, too")
    parser.add_argument("--chatgpt-mb", type=int, metavar="MB", help="read an export of ChatGPT's of that size instead")
    parser.add_argument(
        "--agentos", type=Path, metavar="DIRECTORY", help="compare with AgentOS, installed there by npm"
    )
    parser.add_argument("--directory", type=Path, help="where files are made for the time of the run")
    options = parser.parse_args()
    configure_logs("critical", "text")
    if options.chatgpt_mb is not None:
        with tempfile.TemporaryDirectory(prefix="ethos-traces-", dir=options.directory) as root:
            await chatgpt(Path(root), options.chatgpt_mb)
        return
    if options.agentos is not None:
        with tempfile.TemporaryDirectory(prefix="ethos-traces-", dir=options.directory) as root:
            await beside_agentos(Path(root), options.agentos, max(options.traces))
        return
    sizes, results = sorted(options.traces), []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="ethos-traces-", dir=options.directory) as root:
            run = Run(Path(root), size, options.samples, postgres=options.postgres)
            results.append(await run.all(with_vectors=not options.no_vectors))
    print_table(sizes, results)


if __name__ == "__main__":
    asyncio.run(main())
