"""Consolidation: what fades goes, what is the same becomes one, what is used together is linked; one at a time."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import FileError, ModelUnavailable
from gateway.files.locks import hold
from gateway.traces.consolidation import LOCK_NAME, Consolidation, ConsolidationReport
from gateway.traces.rows import insert
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from tests.gateway.memory.traces.people import ADA, BEN, Clock, of
from tests.gateway.memory.traces.shared import about_files

ON_BOTH = True


async def put(trace_store: TraceStore, *traces: Trace) -> None:
    """Insert as an import does, without interference."""

    def work(connection: sqlite3.Connection) -> None:
        for trace in traces:
            insert(connection, trace)

    await trace_store.database.write(work)


async def contents(trace_store: TraceStore, sql: str = "deleted_at IS NULL") -> list[str]:
    query = f"SELECT content FROM traces WHERE {sql} ORDER BY number"  # noqa: S608 (the test's own)
    return await trace_store.database.read(lambda connection: [row[0] for row in connection.execute(query)])


async def edges(trace_store: TraceStore) -> list[tuple[str, str, str, float]]:
    query = "SELECT kind, source, target, weight FROM edges ORDER BY 1, 2, 3"
    return await trace_store.database.read(lambda connection: [tuple(row) for row in connection.execute(query)])


async def test_what_has_faded_is_pruned_unless_a_feeling_or_a_tag_keeps_it(
    trace_store: TraceStore, clock: Clock
) -> None:
    old = clock.now - timedelta(days=91)  # e^-3.03 is 0.048
    for content, more in (
        ("faded", {}),
        ("felt", {"emotions": {"intensity": 0.3}}),
        ("nearly felt", {"emotions": {"intensity": 0.29}}),
        ("kept", {"tags": ("x", "keep")}),
        ("fresh enough", {"stability_ms": 31 * 86_400_000.0, "strength": 1.0}),
    ):
        await put(trace_store, of(ADA, content, created_at=old, last_accessed_at=old, **more))
    report = await Consolidation(trace_store).run(ADA)
    assert report.pruned == 2
    assert await contents(trace_store) == ["felt", "kept", "fresh enough"]


async def test_the_same_text_becomes_one_trace_and_each_owner_keeps_their_own(trace_store: TraceStore) -> None:
    await put(trace_store, *(of(ADA, "tea", tags=(str(number),), strength=0.5) for number in range(4)))
    await put(trace_store, of(ADA, "tea", type="semantic"), of(BEN, "tea"), of(BEN, "tea"))
    report = await Consolidation(trace_store).run(ADA)
    assert report.merged == 3
    mine = [hit.trace for hit in await trace_store.search(ADA, TraceQuery(query="tea"))]
    assert {(trace.type, trace.tags) for trace in mine} == {("episodic", ("0", "1", "2", "3")), ("semantic", ())}
    assert await trace_store.count(BEN) == 2  # not asked for
    assert (await Consolidation(trace_store).run()).merged == 1
    assert await trace_store.count(BEN) == 1
    assert await Consolidation(trace_store).run() == ConsolidationReport(duration_ms=pytest.approx(0, abs=10_000))


async def test_a_chain_of_near_identical_traces_is_merged_whole(trace_store: TraceStore) -> None:
    def vector(*parts: float) -> bytes:
        return struct.pack(f"<{len(parts)}e", *parts)

    # neighbours are alike to 0.97, the ends to 0.88
    chain = [vector(1.0, 0.0), vector(0.97, 0.2431), vector(0.8818, 0.4716)]
    await put(
        trace_store,
        *(
            of(ADA, f"the red barn {word}", embedding=each, embedding_model="m")
            for word, each in zip(("burned", "burnt", "was on fire"), chain, strict=True)
        ),
        of(ADA, "the red barn stands", embedding=vector(0.0, 1.0), embedding_model="m"),
    )
    assert (await Consolidation(trace_store).run(ADA)).merged == 2
    assert await contents(trace_store) == [
        "the red barn stands",
        "the red barn burned\nthe red barn burnt\nthe red barn was on fire",
    ]


async def test_use_together_becomes_an_edge_counted_once_and_never_above_one(trace_store: TraceStore) -> None:
    one, two, three = [await trace_store.add(ADA, of(ADA, text)) for text in ("alpha", "beta", "gamma")]
    await trace_store.offered(ADA, "q1", used=[one.id, two.id])
    for _ in range(2):
        await Consolidation(trace_store).run(ADA)
        pair = sorted([one.id, two.id])
        assert await edges(trace_store) == [("co_activated", *pair, pytest.approx(0.1))]
    for number in range(12):
        await trace_store.offered(ADA, f"more {number}", used=[one.id, two.id])
    await trace_store.offered(ADA, "q1", used=[three.id])  # a late word on the same query
    await Consolidation(trace_store).run(ADA)
    weights = {(source, target): weight for _, source, target, weight in await edges(trace_store)}
    assert weights[tuple(sorted([one.id, two.id]))] == 1.0
    assert weights[tuple(sorted([one.id, three.id]))] == pytest.approx(0.1)


async def test_what_was_used_often_a_week_ago_becomes_knowledge(trace_store: TraceStore, clock: Clock) -> None:
    week = clock.now - timedelta(days=7, seconds=1)
    await put(
        trace_store,
        of(ADA, "often", created_at=week, retrieval_count=3),
        of(ADA, "seldom", created_at=week, retrieval_count=2),
        of(ADA, "young", created_at=clock.now - timedelta(days=6), retrieval_count=9),
        of(ADA, "how", created_at=week, retrieval_count=9, type="procedural"),
    )
    assert (await Consolidation(trace_store).run(ADA)).compacted == 1
    assert await contents(trace_store, "type = 'semantic'") == ["often"]


async def test_a_cluster_becomes_an_insight_by_the_model_once(trace_store: TraceStore) -> None:
    seen: list[Sequence[Trace]] = []

    async def insight(traces: Sequence[Trace]) -> str:
        seen.append(traces)
        return "Ada loves her garden."

    await put(trace_store, *(of(ADA, f"Ada planted roses in the garden on day {number}") for number in range(5)))
    await put(trace_store, *(of(BEN, f"Ada planted roses in the garden on day {number}") for number in range(4)))
    await put(trace_store, of(ADA, "the tram was late"))
    report = await Consolidation(trace_store, insight=insight).run()
    assert report.derived == 1
    assert [sorted(trace.owner.id for trace in traces) for traces in seen] == [["u_ada"] * 5]
    [found] = [hit.trace for hit in await trace_store.search(ADA, TraceQuery(query="loves", type="semantic"))]
    assert (found.tags, found.owner, found.source) == (("derived", "insight"), ADA.owner("user"), "consolidation")
    assert found.strength == 0.7
    assert (await Consolidation(trace_store, insight=insight).run()).derived == 0
    assert len(seen) == 1


async def test_without_a_model_or_while_it_is_down_nothing_is_derived_and_the_rest_is_done(
    trace_store: TraceStore,
) -> None:
    async def down(_: Sequence[Trace]) -> str:
        raise ModelUnavailable("the model is down")

    await put(trace_store, *(of(ADA, f"Ada planted roses in the garden on day {number}") for number in range(5)))
    await put(trace_store, of(ADA, "tea"), of(ADA, "tea"))
    assert (await Consolidation(trace_store, insight=down).run()).merged == 1
    assert (await Consolidation(trace_store).run()).derived == 0


@about_files
async def test_one_that_is_cancelled_ends_so_though_its_lock_cannot_be_taken(
    trace_store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_taking, may_fail = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def cannot(_path: Path) -> None:
        loop.call_soon_threadsafe(is_taking.set)
        assert may_fail.wait(10)
        raise FileError("the disk is full")

    monkeypatch.setattr("gateway.traces.consolidation.hold", cannot)
    running = asyncio.create_task(Consolidation(trace_store).run(reason="test"))
    await is_taking.wait()
    running.cancel()
    may_fail.set()
    await asyncio.wait([running])
    assert running.cancelled()


@about_files
async def test_while_one_is_running_another_gives_all_zeros(trace_store: TraceStore) -> None:
    await put(trace_store, of(ADA, "tea"), of(ADA, "tea"))
    lock = await asyncio.to_thread(hold, trace_store.database.path.with_name(LOCK_NAME))
    assert await Consolidation(trace_store).run() == ConsolidationReport(is_running=True)
    lock.release()
    assert (await Consolidation(trace_store).run()).merged == 1


async def test_two_processes_at_once_merge_everything_once(tmp_path: Path, clock: Clock) -> None:
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock) as trace_store:
        await put(trace_store, *(of(ADA, f"fact {number % 200}") for number in range(1_000)))
    program = (
        "import asyncio, sys; from pathlib import Path; from gateway.traces.trace_store import open_trace_store; "
        "from gateway.traces.consolidation import Consolidation\n"
        "async def main():\n"
        "    async with open_trace_store(Path(sys.argv[1])) as store:\n"
        "        print((await Consolidation(store).run()).merged)\n"
        "asyncio.run(main())"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / TRACES_NAME)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    merged = sum(int(process.communicate(timeout=60)[0].split()[-1]) for process in processes)
    with closing(sqlite3.connect(tmp_path / TRACES_NAME)) as connection:
        left = connection.execute("SELECT count(*) FROM traces WHERE deleted_at IS NULL").fetchone()[0]
    assert left == 1_000 - merged
    assert left == 200


async def test_a_killed_consolidation_leaves_each_step_done_or_not_begun(tmp_path: Path, clock: Clock) -> None:
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock) as trace_store:
        await put(trace_store, *(of(ADA, f"fact {number % 1_500}") for number in range(3_000)))
    program = (
        "import asyncio, os, signal, sys; from pathlib import Path\n"
        "from gateway.traces import changes\n"
        "from gateway.traces.trace_store import open_trace_store\n"
        "from gateway.traces.consolidation import Consolidation\n"
        "merge, left = changes.merge, [int(sys.argv[2])]\n"
        "def dying(*a, **k):\n"
        "    left[0] -= 1\n"
        "    if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return merge(*a, **k)\n"
        "changes.merge = dying\n"
        "async def main():\n"
        "    async with open_trace_store(Path(sys.argv[1])) as trace_store: await Consolidation(trace_store).run()\n"
        "asyncio.run(main())"
    )
    for merges in (0, 1, 499, 700):
        process = subprocess.run([sys.executable, "-c", program, str(tmp_path / TRACES_NAME), str(merges)], check=False)
        assert process.returncode == -signal.SIGKILL
        with closing(sqlite3.connect(tmp_path / TRACES_NAME)) as connection:
            texts = [row[0] for row in connection.execute("SELECT content FROM traces WHERE deleted_at IS NULL")]
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert set(texts) == {f"fact {number}" for number in range(1_500)}
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock) as trace_store:
        await Consolidation(trace_store).run()
        assert await trace_store.count(ADA) == 1_500
    assert (tmp_path / LOCK_NAME).exists()


@about_files
async def test_no_step_of_a_consolidation_keeps_other_writers_waiting_for_all_traces(
    trace_store: TraceStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, one transaction changes some hundred rows at most, those of the index among them."""
    old = clock.now - timedelta(days=8)
    traces = [
        *(of(ADA, f"faded {number}", strength=0.01) for number in range(600)),
        *(of(ADA, f"twin {number // 2}", last_accessed_at=clock.now) for number in range(600)),
        *(of(ADA, f"used {n}", created_at=old, last_accessed_at=clock.now, retrieval_count=3) for n in range(600)),
    ]
    await trace_store.database.write(lambda connection: [insert(connection, trace) for trace in traces])
    changed: list[int] = []
    write = trace_store.database.write

    async def counted(work: Callable[[sqlite3.Connection], Any], **more: Any) -> Any:
        def counting(connection: sqlite3.Connection) -> Any:
            before = connection.total_changes
            result = work(connection)
            changed.append(connection.total_changes - before)
            return result

        return await write(counting, **more)

    monkeypatch.setattr(trace_store.database, "write", counted)
    report = await Consolidation(trace_store).run()
    assert (report.pruned, report.merged, report.compacted) == (600, 300, 600)
    assert max(changed) < 1_500
    assert sum(changed) > 5_000
