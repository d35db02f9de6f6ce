"""Facts in a database that many workers share: the same stems, one consolidation at a time, vectors paid for once."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import gateway.traces
from gateway.memory.tokenizer import words_of
from gateway.store.engine import Connection
from gateway.store.postgres.statements import numbered
from gateway.store.sqlite.schema import migrate, migrations
from gateway.traces.consolidation import Consolidation, ConsolidationReport
from gateway.traces.lexemes import expression, vector
from gateway.traces.search import TraceQuery
from gateway.traces.search_words import register_functions
from gateway.traces.stems import stem
from gateway.traces.trace_store import TRACES_NAME, TraceStore, shared_trace_store
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from gateway.traces.vectorizing import Vectorizing
from gateway.traces.vectors import QueryVector, as_blob
from tests.embedding_server import EmbeddingServer
from tests.gateway.memory.traces.people import ADA, BEN, Clock, of
from tests.gateway.memory.traces.shared import emptied_trace_store
from tests.gateway.memory.traces.transfer.corpora import EVERYTHING, all_of, new_trace_store
from tests.gateway.memory.traces.vectors_process import Unpaid

DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture
async def trace_store(traces_url: str, clock: Clock) -> AsyncIterator[TraceStore]:
    async with emptied_trace_store(traces_url, clock) as trace_store:
        yield trace_store


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


def test_words_have_the_stems_that_sqlite_gives_them() -> None:
    """So the same traces are found. All words of the documentation, with endings, and what is special."""
    told = {word for path in DOCS.rglob("*.md") for word in words_of(path.read_text(encoding="utf-8")).split()}
    ends = ("s", "ed", "ing", "ational", "iveness", "icate", "ement", "sion")
    special = {"eed", "ies", "sses", "as", "yes", "syzygy", "naïvely", "москве", "日", "x" * 70}
    words = sorted(told | {word[:5] + end for word in told for end in ends} | special)
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = 'porter ascii')")
        index.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (texts, instance)")
        index.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(words))
        theirs = dict(index.execute("SELECT doc, term FROM terms"))
    assert len(theirs) > 10_000
    assert [(word, stem(word), theirs[at]) for at, word in enumerate(words) if stem(word) != theirs[at]] == []


STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s")
# Of one engine alone; templates and tables of an erasure's own are run by other tests.
SQLITE_ONLY = re.compile(r"^gateway\.traces\.ranking\._|_NUMBERS?$|sqlite_format\._")
POSTGRES_ONLY = re.compile(r"^gateway\.traces\.lexemes\._|_SHARED_NUMBERS$")
NOT_HERE = re.compile(r"\{|\bgone|FROM links")


def statements() -> Iterator[tuple[str, str]]:
    """The constants of the trace memory's modules that are SQL, each with its name."""
    for found in pkgutil.walk_packages(gateway.traces.__path__, "gateway.traces."):
        for name, value in vars(importlib.import_module(found.name)).items():
            if isinstance(value, str) and STATEMENT.match(value) and not NOT_HERE.search(value):
                yield f"{found.name}.{name}", value


def test_every_statement_is_understood_by_both_engines(traces_url: str, tmp_path: Path) -> None:
    """Each is prepared, and none of them is run."""
    path, refused, count = tmp_path / TRACES_NAME, [], 0
    migrate(path, prepare=register_functions, steps=migrations("gateway.traces"))
    with closing(sqlite3.connect(path)) as ours, psycopg.connect(traces_url, autocommit=True) as theirs:
        register_functions(ours)
        for name, text in statements():
            count += 1
            sql, names = numbered(text)
            if not POSTGRES_ONLY.search(name):
                values = dict.fromkeys(names) if names else [None] * len(set(re.findall(r"\$\d+", sql)))
                try:
                    ours.execute(f"EXPLAIN {text}", values).close()
                except sqlite3.Error as error:
                    refused.append(f"{name}: SQLite: {error}")
            if POSTGRES_ONLY.search(name) or not SQLITE_ONLY.search(name):
                result = theirs.pgconn.prepare(b"", sql.encode())
                if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
                    refused.append(f"{name}: PostgreSQL: {result.error_message.decode().splitlines()[0]}")
    assert count > 60
    assert not refused, "\n".join(refused)


def test_an_expression_of_fts5_becomes_one_of_the_server() -> None:
    assert expression('"green tea" AND ("cups" OR "runni" *) NOT "noon"') == (
        "('green' <-> 'tea') & ( 'cup' | 'runni':* ) & ! 'noon'"
    )
    assert expression('"green tea"', "A") == "('green':A <-> 'tea':A)"


def test_the_longest_of_texts_has_a_vector() -> None:
    row = {"owner": 7, "speaker": "Ada", "created_at": 0, "content": " ".join(f"word{n:036d}" for n in range(30_000))}
    words, size = vector(row)  # type: ignore[arg-type]
    assert words.startswith("'@7' 'ada':1 ")
    assert 900_000 < len(words.encode()) < 1_500_000
    assert size > 30_000


async def test_one_worker_consolidates_at_a_time(trace_store: TraceStore) -> None:
    for _ in range(2):
        await trace_store.add(ADA, of(ADA, "tea"))
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def insight(_: object) -> str:
        asked.set()
        await may_answer.wait()
        return "They show nothing"

    for number in range(6):
        await trace_store.add(ADA, of(ADA, f"the harbour froze in winter and ships waited, note {number}"))
    first = asyncio.create_task(Consolidation(trace_store, insight=insight).run())
    await asked.wait()
    other = shared_trace_store(trace_store.database, now=trace_store.now)
    assert await Consolidation(other).run() == ConsolidationReport(is_running=True)
    may_answer.set()
    assert (await first).derived == 1
    assert not (await Consolidation(other).run()).is_running


async def test_one_worker_makes_vectors_at_a_time(trace_store: TraceStore, server: EmbeddingServer) -> None:
    await trace_store.add(ADA, of(ADA, "green tea"))
    embedder = Unpaid(server.url)
    try:
        workers = [Vectorizing(trace_store, embedder) for _ in range(2)]
        running = [asyncio.create_task(each.run()) for each in workers]
        await asyncio.gather(*(asyncio.wait_for(each.idle(), 60) for each in workers))
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        assert len(server.requests) == 1
        assert await workers[0].lacking() == 0
    finally:
        await embedder.wire.close()


async def test_what_another_worker_has_embedded_meanwhile_is_not_paid_for_again(
    trace_store: TraceStore, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trace_store.add(ADA, of(ADA, "green tea"))
    embedder = Unpaid(server.url)
    try:
        first, late = (Vectorizing(trace_store, embedder) for _ in range(2))
        has_read, is_ours = asyncio.Event(), late._is_ours

        async def after_the_first() -> bool:
            has_read.set()
            await asyncio.wait_for(first.idle(), 60)
            return await is_ours()

        monkeypatch.setattr(late, "_is_ours", after_the_first)
        running = [asyncio.create_task(late.run())]
        await asyncio.wait_for(has_read.wait(), 60)
        running.append(asyncio.create_task(first.run()))
        await asyncio.wait_for(late.idle(), 60)
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        assert len(server.requests) == 1
    finally:
        await embedder.wire.close()


async def test_what_is_rare_is_counted_among_the_owners_traces(trace_store: TraceStore) -> None:
    """However many others have a word: it says as much about hers as if she were alone."""
    await trace_store.add(ADA, of(ADA, "green tea"))
    await trace_store.add(ADA, of(ADA, "green cups of milk"))
    [before] = [each for each in await trace_store.search(ADA, TraceQuery(query="tea")) if each]
    for number in range(20):
        await trace_store.add(BEN, of(BEN, f"tea number{number}"))
    [after] = await trace_store.search(ADA, TraceQuery(query="tea"))
    assert (after.trace, after.score) == (before.trace, before.score)


@pytest.mark.parametrize("form", ["sqlite", "json", "obsidian"])
async def test_facts_go_to_a_file_of_one_machine_and_come_back(
    trace_store: TraceStore, tmp_path: Path, form: str
) -> None:
    """The way between the two engines: nothing of a fact differs."""
    for number in range(3):
        fact = of(ADA, f"note {number} nul\0", tags=("a", "b\0"), metadata={"why\0": [number]}, speaker="Ada\0")
        await trace_store.add(ADA, fact)
    before = await all_of(trace_store)
    assert await export_traces(trace_store, tmp_path / "out", form=form, with_embeddings=True) == 3  # type: ignore[arg-type]
    async with new_trace_store(tmp_path) as on_one_machine:
        assert (await import_traces(on_one_machine, tmp_path / "out", bounds=EVERYTHING)).imported == 3
        assert await all_of(on_one_machine) == before
        await export_traces(on_one_machine, tmp_path / "back", form=form, with_embeddings=True)  # type: ignore[arg-type]
    again = await import_traces(trace_store, tmp_path / "back", bounds=EVERYTHING)
    assert (again.imported, again.skipped, again.errors) == (0, 3, [])
    assert await all_of(trace_store) == before


_CROWD = """
    INSERT INTO signatures SELECT 1 + n % 50, 'minilm', n, CAST(repeat('01', 192) AS bit varying)
    FROM generate_series(1, 20000) AS n
"""
_READ = "SELECT seq_scan + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'signatures'"


async def test_a_search_reads_the_signatures_of_its_owners_alone(trace_store: TraceStore, traces_url: str) -> None:
    """And these out of the index, where the facts of one owner lie side by side."""
    with psycopg.connect(traces_url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")  # else it may not yet be known that all may see the rows
        connection.execute(_CROWD)
        connection.execute("VACUUM ANALYZE signatures")
    question = QueryVector("minilm", as_blob([1.0] * 384), least=0.25)

    def searched(connection: Connection) -> int:
        before = connection.execute(_READ).fetchone()[0]
        question.compare(connection, (1, 2), None, ())
        return int(connection.execute(_READ).fetchone()[0] - before)

    assert await trace_store.database.write(searched) == 0
