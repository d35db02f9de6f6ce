"""The writer: group commit, savepoints, cancellation, faults of the disk, closing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import StoreUnavailable
from gateway.store.engine import snapshot
from gateway.store.sqlite import engine as database_module
from gateway.store.sqlite import readers as readers_module
from gateway.store.sqlite.engine import SqliteEngine

PAGE_BYTES = 4096


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    opened = SqliteEngine(tmp_path / "d.db")
    await opened.write(lambda c: c.execute("CREATE TABLE t (x INTEGER UNIQUE)").close())
    yield opened
    await opened.close()


def insert(x: int):
    return lambda c: c.execute("INSERT INTO t VALUES (?)", (x,)).close()


async def rows(database: SqliteEngine) -> list[int]:
    return await database.read(lambda c: [row[0] for row in c.execute("SELECT x FROM t ORDER BY x")])


async def in_one_group(database: SqliteEngine, *works, durable: bool = True, once: object = None) -> list[object]:
    """Run the works in one transaction: they queue up behind a work that holds the writer. `once` is not repeatable."""
    holding, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(_: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(holding.set)
        assert go_on.wait(10)

    holder = asyncio.create_task(database.write(hold, is_durable=False))
    await holding.wait()
    tasks = [
        asyncio.create_task(database.write(work, is_durable=durable, is_repeatable=work is not once)) for work in works
    ]
    await asyncio.sleep(0)
    go_on.set()
    await holder
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_was_written_is_read_by_another_connection(database: SqliteEngine) -> None:
    assert await database.write(lambda c: c.execute("INSERT INTO t VALUES (7) RETURNING x").fetchall()[0][0]) == 7
    assert await rows(database) == [7]


async def test_a_snapshot_is_of_one_moment_and_ends_whatever_happens(database: SqliteEngine) -> None:
    await database.write(insert(1))
    other = database_module.connect(database.path)
    with contextlib.suppress(ZeroDivisionError), snapshot(other):
        assert len(other.execute("SELECT x FROM t").fetchall()) == 1
        await database.write(insert(2))
        assert len(other.execute("SELECT x FROM t").fetchall()) == 1
        raise ZeroDivisionError
    assert len(other.execute("SELECT x FROM t").fetchall()) == 2
    other.close()


async def test_those_who_wait_share_one_commit(database: SqliteEngine) -> None:
    commits = []
    await database.write(lambda c: c.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None))
    await asyncio.sleep(0)
    commits.clear()
    await in_one_group(database, *map(insert, range(50)))
    assert await rows(database) == list(range(50))
    assert len(commits) == 2, "the holder's own, and one for all who waited"


async def test_one_that_is_not_urgent_shares_the_next_commit_and_comes_before_it(
    database: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.sqlite.engine.PATIENCE_S", 3600.0)
    commits = []
    await database.write(lambda c: c.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None))
    commits.clear()
    patient = asyncio.create_task(database.write(insert(1), is_durable=False, is_urgent=False))
    await asyncio.sleep(0)
    before = await database.write(lambda c: c.execute("SELECT count(*) FROM t").fetchone()[0])
    await patient
    assert before == 1
    assert commits == ["COMMIT"]


async def test_a_crowd_lets_others_pass_and_keeps_its_own_order(database: SqliteEngine) -> None:
    holding, go_on = asyncio.Event(), threading.Event()
    loop, order = asyncio.get_running_loop(), []

    def hold(_: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(holding.set)
        assert go_on.wait(10)

    holder = asyncio.create_task(database.write(hold, is_durable=False))
    await holding.wait()
    crowd = [asyncio.create_task(database.write(lambda _, x=x: order.append(x), is_of_crowd=True)) for x in range(200)]
    await asyncio.sleep(0)
    other = asyncio.create_task(database.write(lambda _: order.append("other")))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(holder, other, *crowd)
    assert order.index("other") <= database_module.MAX_OF_CROWD
    assert [x for x in order if x != "other"] == list(range(200))


async def test_what_a_crowd_asked_for_before_closing_is_done(tmp_path: Path) -> None:
    database = SqliteEngine(tmp_path / "crowd.db")
    await database.write(lambda c: c.execute("CREATE TABLE t (x INTEGER UNIQUE)").close())
    crowd = [asyncio.create_task(database.write(insert(x), is_of_crowd=True)) for x in range(100)]
    await asyncio.sleep(0)
    await database.close()
    await asyncio.gather(*crowd)


async def test_one_that_is_not_urgent_is_committed_when_nothing_else_comes(database: SqliteEngine) -> None:
    async with asyncio.timeout(60):
        await database.write(insert(1), is_urgent=False)
    assert await rows(database) == [1]


async def test_one_that_is_not_urgent_is_committed_when_the_database_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.sqlite.engine.PATIENCE_S", 3600.0)
    database = SqliteEngine(tmp_path / "closed.db")
    await database.write(lambda c: c.execute("CREATE TABLE t (x INTEGER UNIQUE)").close())
    patient = asyncio.create_task(database.write(insert(1), is_urgent=False))
    await asyncio.sleep(0)
    await database.close()
    await patient
    again = SqliteEngine(tmp_path / "closed.db")
    try:
        assert await rows(again) == [1]
    finally:
        await again.close()


async def test_one_that_fails_takes_back_only_itself(database: SqliteEngine) -> None:
    def half_done(c: sqlite3.Connection) -> None:
        c.execute("INSERT INTO t VALUES (100)")
        raise ValueError("no")

    results = await in_one_group(database, insert(1), half_done, insert(1), insert(2))
    assert results[0] is results[3] is None
    assert isinstance(results[1], ValueError)
    assert isinstance(results[2], sqlite3.IntegrityError)
    assert await rows(database) == [1, 2]


async def test_of_a_group_in_which_one_fails_what_counts_runs_once(database: SqliteEngine) -> None:
    counted = []

    def failing(_: sqlite3.Connection) -> None:
        raise ValueError("no")

    def counting(c: sqlite3.Connection) -> None:
        counted.append("ran")
        insert(2)(c)

    results = await in_one_group(database, insert(1), counting, failing, once=counting)
    assert isinstance(results[2], ValueError)
    assert await rows(database) == [1, 2]
    assert counted == ["ran"]


async def test_another_process_that_commits_while_a_group_runs_again_is_seen(
    database: SqliteEngine, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / "d.db", isolation_level=None, check_same_thread=False)
    seen, rounds = database.foreign_commits, []

    def failing(_: sqlite3.Connection) -> None:
        raise ValueError("no")

    def looking(c: sqlite3.Connection) -> None:
        rounds.append([row[0] for row in c.execute("SELECT x FROM t")])

    roll_back = database._roll_back

    def rolled_back() -> None:
        roll_back()
        if len(rounds) == 1:
            other.execute("INSERT INTO t VALUES (7)")

    database._roll_back = rolled_back  # type: ignore[method-assign]
    await in_one_group(database, looking, failing)
    other.close()
    assert rounds == [[], [7]]
    assert database.foreign_commits == seen + 1


async def test_one_who_no_longer_waits_does_not_disturb_the_others(database: SqliteEngine) -> None:
    holding, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(_: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(holding.set)
        assert go_on.wait(10)

    holder = asyncio.create_task(database.write(hold))
    await holding.wait()
    gone = asyncio.create_task(database.write(insert(1)))
    stays = asyncio.create_task(database.write(insert(2)))
    await asyncio.sleep(0)
    gone.cancel()
    go_on.set()
    await asyncio.gather(holder, stays)
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await rows(database) == [1, 2], "what was asked is done; only the answer is not waited for"


async def test_a_full_disk_fails_the_whole_group_and_nothing_of_it_is_there(database: SqliteEngine) -> None:
    await database.write(insert(1))
    await database.write(lambda c: c.execute("CREATE TABLE big (b BLOB)").close())
    pages = await database.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    await database.write(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall())

    def fill(c: sqlite3.Connection) -> None:
        c.execute("INSERT INTO big VALUES (zeroblob(?))", (20 * PAGE_BYTES,))

    results = await in_one_group(database, insert(2), fill, insert(3))
    assert isinstance(results[1], StoreUnavailable)
    assert "SQLITE_FULL" in str(results[1])
    survivors = {x for x, result in ((2, results[0]), (3, results[2])) if result is None}
    assert set(await rows(database)) == {1, *survivors}, "who was told that it is there finds it, and nobody else"
    await database.write(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchall())
    await database.write(fill)
    await database.write(insert(4))
    assert {1, 4} <= set(await rows(database))


async def test_a_rollback_of_the_whole_group_fails_everybody_in_it(database: SqliteEngine) -> None:
    def roll_back_all(c: sqlite3.Connection) -> None:
        c.execute("INSERT OR ROLLBACK INTO t VALUES (1)")  # as a full disk or an I/O error may do

    await database.write(insert(1))
    results = await in_one_group(database, insert(2), roll_back_all, insert(3))
    assert all(isinstance(result, Exception) for result in results)
    assert await rows(database) == [1]
    await database.write(insert(2))


async def test_what_was_asked_before_closing_is_done_and_what_comes_after_is_refused(tmp_path: Path) -> None:
    database = SqliteEngine(tmp_path / "d.db")
    await database.write(lambda c: c.execute("CREATE TABLE t (x)").close())
    asked = [asyncio.create_task(database.write(insert(x))) for x in range(20)]
    await asyncio.sleep(0)
    await database.close()
    await asyncio.gather(*asked)
    await database.close()
    with pytest.raises(StoreUnavailable):
        await database.write(insert(99))
    with pytest.raises(StoreUnavailable):
        await database.read(lambda c: c.execute("SELECT 1").fetchone())
    reopened = SqliteEngine(tmp_path / "d.db")
    assert await rows(reopened) == list(range(20))
    await reopened.close()


async def test_closing_ends_the_threads(tmp_path: Path) -> None:
    before = threading.active_count()
    database = SqliteEngine(tmp_path / "d.db")
    await database.read(lambda c: c.execute("SELECT 1").fetchone())
    assert threading.active_count() > before
    await database.close()
    assert {thread.name for thread in threading.enumerate()}.isdisjoint({"store-writer", "store-reader_0"})


async def test_the_event_loop_runs_on_while_a_write_takes_its_time(database: SqliteEngine) -> None:
    go_on = threading.Event()
    loop = asyncio.get_running_loop()
    writing = asyncio.create_task(database.write(lambda _: go_on.wait(10)))
    ticked = asyncio.Event()
    loop.call_soon(ticked.set)
    await ticked.wait()
    go_on.set()
    assert await writing is True


# It ends without closing, which would checkpoint with fsyncs of its own.
_WRITES = """
import asyncio, os, sys
from pathlib import Path
from gateway.store.sqlite.engine import SqliteEngine

def add(connection):
    connection.execute("INSERT INTO t VALUES (1)").close()

async def main():
    d = SqliteEngine(Path(sys.argv[1]))
    await d.write(lambda c: c.execute("CREATE TABLE IF NOT EXISTS t (x)").close())
    PROGRAM
    os._exit(0)

asyncio.run(main())
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="fsyncs are counted with strace")
def test_a_relaxed_write_costs_no_fsync_and_durable_ones_that_wait_share_one(tmp_path: Path) -> None:
    def fsyncs(program: str) -> int:
        trace = tmp_path / "trace"
        code = _WRITES.replace("PROGRAM", program)
        command = ["strace", "-f", "-o", trace, "-e", "trace=fsync,fdatasync", sys.executable, "-c", code]
        ran = subprocess.run([*command, tmp_path / "s.db"], capture_output=True, text=True, check=False, timeout=60)
        if "PTRACE" in ran.stderr or "ptrace" in ran.stderr:
            pytest.skip("this machine does not let strace work")
        assert ran.returncode == 0, ran.stderr
        return len(re.findall(r"f(?:data)?sync\(", trace.read_text()))

    fsyncs("pass")
    base = fsyncs("pass")
    assert fsyncs("[await d.write(add, is_durable=False) for _ in range(20)]") == base
    one_by_one = fsyncs("[await d.write(add) for _ in range(20)]")
    assert base + 20 <= one_by_one <= base + 22, "one each, and the write-ahead log's own beginning"
    assert fsyncs("await asyncio.gather(*(d.write(add) for _ in range(20)))") <= base + 3


async def test_a_commit_that_does_not_come_back_is_a_problem_before_it_fails(
    database: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that hangs gives no error; who asks is told all the same, and no more once it is over."""
    monkeypatch.setattr(database_module, "HANGING_S", 0.0)
    hanging, may_end = threading.Event(), threading.Event()

    def hang(_connection: sqlite3.Connection) -> None:
        hanging.set()
        may_end.wait(20)

    writing = asyncio.create_task(database.write(hang))
    try:
        await asyncio.to_thread(hanging.wait, 20)
        assert "a commit has not come back for" in str(await database.problem())
    finally:
        may_end.set()
    await writing
    assert await database.problem() is None


async def test_what_another_connection_commits_is_noticed_with_the_next_commit_of_our_own(tmp_path: Path) -> None:
    one, other = SqliteEngine(tmp_path / "x.db"), SqliteEngine(tmp_path / "x.db")
    await one.write(lambda connection: connection.execute("CREATE TABLE a (x)").rowcount)
    seen = one.foreign_commits
    for _ in range(3):
        await one.write(lambda connection: connection.execute("INSERT INTO a VALUES (1)").rowcount)
    assert one.foreign_commits == seen, "our own do not count"
    await other.write(lambda connection: connection.execute("INSERT INTO a VALUES (2)").rowcount)
    assert one.foreign_commits == seen
    await one.write(lambda connection: connection.execute("INSERT INTO a VALUES (3)").rowcount)
    assert one.foreign_commits == seen + 1
    await one.close()
    await other.close()


async def test_a_quick_read_does_not_wait_for_slow_ones_and_threads_are_started_when_needed(
    database: SqliteEngine,
) -> None:
    def readers() -> int:
        return sum(thread.name.startswith("store-reader") for thread in threading.enumerate())

    before = readers()
    assert await rows(database) == []
    assert await rows(database) == []
    assert readers() == before + 1
    go_on = threading.Event()
    slow = [asyncio.create_task(database.read(lambda _: go_on.wait(10))) for _ in range(2)]
    await asyncio.sleep(0)
    assert await rows(database) == []
    go_on.set()
    assert await asyncio.gather(*slow) == [True, True]
    assert readers() == before + 3


async def test_many_quick_reads_at_once_take_one_thread(
    database: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers_module, "HELP_AFTER_S", 60.0)
    before = {thread.name for thread in threading.enumerate()}
    assert await asyncio.gather(*(rows(database) for _ in range(50))) == [[]] * 50
    assert {thread.name for thread in threading.enumerate()} - before == {"store-reader-0"}


async def test_a_read_that_fails_or_is_given_up_takes_nothing_from_the_others(database: SqliteEngine) -> None:
    go_on = threading.Event()
    given_up = [asyncio.create_task(database.read(lambda _: go_on.wait(10))) for _ in range(3)]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(rows(database)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in (*given_up, waiting[0]):
        task.cancel()
    go_on.set()
    failing = database.read(lambda c: c.execute("SELECT nothing FROM t"))
    with pytest.raises(sqlite3.OperationalError, match="nothing"):
        await failing
    assert await asyncio.gather(*waiting[1:]) == [[], []]


async def test_what_is_read_while_the_loop_is_busy_wakes_it_once(
    database: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, woken, read = asyncio.get_running_loop(), [0], threading.Semaphore(0)
    plain = loop.call_soon_threadsafe

    def counting(*args, **more):
        woken[0] += 1
        return plain(*args, **more)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    reading = [asyncio.create_task(database.read(lambda _: read.release())) for _ in range(20)]
    await asyncio.sleep(0)
    for _ in reading:
        assert read.acquire(timeout=60)
    await asyncio.gather(*reading)
    assert woken[0] <= 4


def test_the_process_ends_when_its_files_are_gone_though_it_cannot_say_why(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, pathlib\n"
        "from gateway.store.sqlite.engine import SqliteEngine\n"
        "async def main():\n"
        "    path = pathlib.Path(sys.argv[1])\n"
        "    database = SqliteEngine(path)\n"
        "    await database.write(lambda c: c.execute('CREATE TABLE t (x)').close())\n"
        "    path.unlink()\n"
        "    await database.write(lambda c: c.execute('INSERT INTO t VALUES (1)').close())\n"
        "asyncio.run(main())\n"
    )
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", script, str(tmp_path / "d.db")]
        ran = subprocess.run(command, stdout=full, stderr=full, check=False, timeout=60)
    assert ran.returncode == database_module.EXIT_IO_ERROR


async def test_work_that_raises_stop_iteration_takes_nothing_from_those_that_come_with_it(
    database: SqliteEngine,
) -> None:
    """A future takes none; a coroutine would raise a RuntimeError in its place."""

    def exhausted(_connection: sqlite3.Connection) -> object:
        return next(iter(()))

    written = asyncio.gather(database.write(exhausted), database.write(insert(1)), return_exceptions=True)
    read = asyncio.gather(database.read(exhausted), rows(database), rows(database), return_exceptions=True)
    async with asyncio.timeout(60):
        for results in (await written, await read):
            assert isinstance(results[0], RuntimeError)
            assert not any(isinstance(result, BaseException) for result in results[1:])
    assert await rows(database) == [1]
