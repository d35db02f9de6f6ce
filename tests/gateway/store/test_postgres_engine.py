"""The engine for PostgreSQL: values and rows, long texts in a pipeline, locks, and work that is run again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest

from gateway.errors import ClaimLost, StoreUnavailable
from gateway.store.engine import Connection, snapshot, statement
from gateway.store.postgres.engine import PostgresEngine
from gateway.store.postgres.statements import numbered
from gateway.store.postgres.threads import Threads
from gateway.store.postgres.together import MOST_TOGETHER
from tests.servers.postgres import PostgresServer
from tests.servers.silent_proxy import SilentProxy, silent_proxy

COUNT = "SELECT count(*) FROM adapter_notes"
NOTE = "INSERT INTO adapter_notes (channel, key, text) VALUES (?, ?, ?)"


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[PostgresEngine]:
    opened = PostgresEngine(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
async def watched(
    postgres_server: PostgresServer, postgres_url: str
) -> AsyncIterator[tuple[PostgresEngine, SilentProxy]]:
    """An engine that has asked before, and the proxy between it and the server."""
    with silent_proxy(postgres_server.port) as proxy:
        url = replace(postgres_server, port=proxy.port).url(postgres_url.rpartition("/")[2])
        opened = PostgresEngine(url, connections=1)
        await opened.row(COUNT)
        yield opened, proxy
        await opened.close()


def asking(sql: str, *values: Any) -> Any:
    """A question for the first column of the first row."""

    def ask(connection: Any) -> Any:
        rows = connection.execute(sql, values)
        return lambda: rows.fetchone()[0]

    return ask


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT ?, ?", ("SELECT $1, $2", ())),
        ("SELECT ?2, ?1, ?", ("SELECT $2, $1, $3", ())),
        ("SELECT :b, :a, :b", ("SELECT $1, $2, $1", ("b", "a"))),
        ("SELECT '?', 'it''s :a', \"?\", ? -- is it?\n, /* ?\n? */ ?::text", None),
    ],
)
def test_places_of_values_get_numbers_but_not_in_quotes_and_comments(sql: str, expected: Any) -> None:
    if expected is None:
        expected = ("SELECT '?', 'it''s :a', \"?\", $1 -- is it?\n, /* ?\n? */ $2::text", ())
    assert numbered(sql) == expected


async def test_what_was_to_be_prepared_behind_an_error_is_prepared_again(postgres_url: str) -> None:
    """psycopg prepares what it has sent five times; an error of the server in the same pipeline takes that back."""
    engine = PostgresEngine(postgres_url, connections=1)

    def work(divisor: int, connection: Connection) -> int:
        connection.execute("SELECT 1 / ?", (divisor,))
        asked = connection.execute("SELECT 41 + ?", (1,))
        return int(asked.fetchone()[0])

    def read(divisor: int, connection: Connection) -> int:
        with snapshot(connection):
            return work(divisor, connection)

    try:
        for run in (partial(engine.write, partial(work, 1)), partial(engine.read, partial(read, 1))):
            for good in (0, 5):  # the second error is behind a statement that is sent to be prepared
                for _ in range(good):
                    assert await run() == 42
                with pytest.raises(psycopg.errors.DivisionByZero):
                    await engine.write(partial(work, 0))
            assert await run() == 42
    finally:
        await engine.close()


async def test_values_come_back_as_they_went_in(engine: PostgresEngine) -> None:
    row = await engine.row(
        "SELECT :number::bigint AS number, :flag::boolean AS flag, :data::bytea AS data, :text::text AS text,"
        " :share::double precision AS share, :nothing::text AS nothing",
        {"number": 2**40, "flag": True, "data": b"\0\xff", "text": "\u00fc%\\'", "share": 0.1, "nothing": None},
    )
    assert dict(row) == {
        "number": 2**40, "flag": True, "data": b"\0\xff", "text": "\u00fc%\\'", "share": 0.1, "nothing": None,
    }  # fmt: skip
    assert row["number"] == row[0] == 2**40
    assert [*row] == [*row[:]]
    assert len(row) == 6
    assert [*row.keys()] == ["number", "flag", "data", "text", "share", "nothing"]


async def test_sums_are_numbers_of_python(engine: PostgresEngine) -> None:
    row = await engine.row("SELECT sum(x), avg(x), sum(x / 2.0) FROM (VALUES (1::bigint), (2), (-6)) AS numbers (x)")
    assert [*row] == [-3, -1.0, -1.5]
    assert [type(value) for value in row] == [int, float, float]


async def test_a_number_has_one_type_whatever_its_size(engine: PostgresEngine) -> None:
    """Else each size of it would be a statement of its own for the server."""
    for value in (1, 2**20, 2**40):
        assert [*await engine.row("SELECT pg_typeof(?)::text", (value,))] == ["bigint"]


async def test_of_two_columns_with_one_name_the_first_is_given(engine: PostgresEngine) -> None:
    assert (await engine.row("SELECT 1 AS x, 2 AS x"))["x"] == 1


async def test_a_nul_becomes_the_replacement_character(engine: PostgresEngine) -> None:
    assert [*await engine.row("SELECT ?::text", ("a\0b",))] == ["a\ufffdb"]


async def test_the_number_of_changed_rows_is_known_at_once(engine: PostgresEngine) -> None:
    def work(connection: Any) -> list[int]:
        added = connection.executemany(NOTE, [("c", "a", ""), ("c", "b", ""), ("c", "c", "")])
        changed = connection.execute("UPDATE adapter_notes SET text = 'x' WHERE key > ?", ("a",))
        none = connection.execute("DELETE FROM adapter_notes WHERE key = ?", ("z",))
        return [none.rowcount, added.rowcount, changed.rowcount]

    assert await engine.write(work) == [0, 3, 2]
    assert await engine.write(statement("DELETE FROM adapter_notes")) == 3


async def test_rows_are_given_in_every_way(engine: PostgresEngine) -> None:
    def work(connection: Any) -> None:
        cursor = connection.execute("SELECT x FROM generate_series(1, 6) AS numbers (x)")
        other = connection.execute("SELECT 'between' AS x")
        assert cursor.fetchone()["x"] == 1
        assert [row[0] for row in cursor.fetchmany(2)] == [2, 3]
        assert other.fetchone()[0] == "between"
        assert next(iter(cursor))[0] == 4
        assert [row[0] for row in cursor.fetchall()] == [5, 6]
        assert cursor.fetchone() is None
        cursor.close()

    await engine.write(work)
    await engine.read(work)


@pytest.mark.parametrize(("size", "times"), [(1_000_000, 3), (10, 300), (16_000, 300)])
async def test_any_amount_of_text_goes_through(engine: PostgresEngine, size: int, times: int) -> None:
    """A pipeline of psycopg waits for ever when it sends more than a socket takes."""

    def work(connection: Any) -> None:
        for number in range(times):
            connection.execute(NOTE, ("c", f"{number}", "\U0001f600" * size))
            connection.execute("UPDATE adapter_notes SET text = text || '' WHERE key = ?", (f"{number}",))

    async with asyncio.timeout(60):
        await engine.write(work)
        assert [*await engine.row("SELECT count(*), sum(length(text)) FROM adapter_notes")] == [times, times * size]


async def test_work_that_raises_takes_back_what_it_did(engine: PostgresEngine) -> None:
    def work(connection: Any) -> None:
        connection.execute(NOTE, ("c", "k", ""))
        raise ClaimLost("another has it")

    with pytest.raises(ClaimLost):
        await engine.write(work)
    assert [*await engine.row(COUNT)] == [0]
    assert await engine.problem() is None


async def test_a_fault_of_ours_stays_what_it_is(engine: PostgresEngine) -> None:
    for sql in ("SELECT nothing FROM adapter_notes", NOTE.replace("?, ?, ?", "'c', NULL, ''"), "SELECT 1 / 0"):
        with pytest.raises(psycopg.Error) as told:
            await engine.write(lambda connection, sql=sql: connection.execute(sql).close())
        assert told.value.sqlstate in ("42703", "23502", "22012")
    assert [*await engine.row(COUNT)] == [0]


async def test_an_error_that_was_passed_over_is_no_commit(engine: PostgresEngine) -> None:
    """PostgreSQL answers COMMIT with ROLLBACK then, and calls that no error."""

    def work(connection: Any) -> None:
        connection.execute(NOTE, ("c", "k", ""))
        try:
            connection.execute("SELECT 1 / 0").fetchone()
        except psycopg.Error:
            connection.settle()

    with pytest.raises(psycopg.Error):
        await engine.write(work)
    assert [*await engine.row(COUNT)] == [0]


async def test_all_that_is_read_in_a_snapshot_is_of_one_moment(engine: PostgresEngine) -> None:
    loop = asyncio.get_running_loop()

    def add() -> None:
        asyncio.run_coroutine_threadsafe(engine.write(statement(NOTE, ("c", "k", ""))), loop).result()

    def twice(connection: Any) -> list[int]:
        found = [connection.execute(COUNT).fetchone()[0]]
        add()
        return [*found, connection.execute(COUNT).fetchone()[0]]

    def in_snapshot(connection: Any) -> list[int]:
        with snapshot(connection):
            assert connection.in_transaction
            found = twice(connection)
        assert not connection.in_transaction
        return found

    assert await engine.read(in_snapshot) == [0, 0]
    await engine.write(statement("DELETE FROM adapter_notes"))
    assert await engine.read(twice) == [0, 1]


async def test_an_error_in_a_snapshot_leaves_a_good_connection(postgres_url: str) -> None:
    engine = PostgresEngine(postgres_url, connections=1)

    def work(connection: Any) -> None:
        with snapshot(connection):
            connection.execute("SELECT 1 / 0").fetchone()

    try:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await engine.read(work)
        assert [*await engine.row(COUNT)] == [0]
    finally:
        await engine.close()


async def test_what_is_asked_at_the_same_moment_shares_a_round_trip(
    watched: tuple[PostgresEngine, SilentProxy],
) -> None:
    engine, proxy = watched
    answers: list[Any] = []

    def two(connection: Any) -> Any:
        rows = [connection.execute("SELECT ?::bigint", (number,)) for number in (7, 8)]
        return lambda: [row.fetchone()[0] for row in rows]

    async def trips(*askings: Any) -> int:
        before = proxy.round_trips
        answers.extend(await asyncio.gather(*map(engine.ask, askings)))
        return proxy.round_trips - before

    text = "SELECT ?::text"
    assert await trips(two) == 1
    assert await trips(asking(text, "a"), two, asking(text, "b")) == 1
    assert answers == [[7, 8], "a", [7, 8], "b"]
    assert await trips(*[asking(text, "c")] * (MOST_TOGETHER + 1)) == 2, "a long row of them is cut"
    await trips(*[asking(text, "\U0001f600" * 1_000_000), asking(text, "d")] * 3)
    assert answers[-2:] == ["\U0001f600" * 1_000_000, "d"], "a socket takes less than that"


async def test_an_error_reaches_only_who_asked(watched: tuple[PostgresEngine, SilentProxy]) -> None:
    engine, _ = watched

    def broken(connection: Any) -> Any:
        rows = connection.execute("SELECT 1")
        return lambda: rows.fetchone()["nothing"]

    answers = await asyncio.gather(
        *map(engine.ask, (asking("SELECT 1"), asking("SELECT 1 / 0"), asking("SELECT 2"), broken, asking("SELECT 3"))),
        return_exceptions=True,
    )
    assert answers[::2] == [1, 2, 3]
    assert [type(error) for error in answers[1::2]] == [psycopg.errors.DivisionByZero, KeyError]
    assert await engine.problem() is None


async def test_what_is_written_along_is_one_transaction_with_what_is_asked(
    watched: tuple[PostgresEngine, SilentProxy],
) -> None:
    engine, proxy = watched
    await asyncio.gather(*(engine.write_along(asking(f"{NOTE} RETURNING key", "c", name, "")) for name in "ab"))
    before = proxy.round_trips
    found = await asyncio.gather(
        engine.ask(asking("SELECT pg_current_xact_id_if_assigned() IS NULL")),
        *(engine.write_along(asking(f"{NOTE} RETURNING pg_current_xact_id()::text", "c", name, "")) for name in "cd"),
        engine.ask(asking("SELECT pg_current_xact_id()::text")),
    )
    assert found[0] is True, "nothing was written before the first question"
    assert len({*found[1:]}) == 1
    assert proxy.round_trips - before == 1
    assert await engine.ask(asking(COUNT)) == 4


async def test_an_error_of_what_is_written_along_reaches_only_who_wrote(
    watched: tuple[PostgresEngine, SilentProxy],
) -> None:
    engine, _ = watched
    answers = await asyncio.gather(
        *(engine.write_along(asking(f"{NOTE} RETURNING key", "c", name, "")) for name in "aab"),
        engine.ask(asking("SELECT 1")),
        return_exceptions=True,
    )
    assert [str(each) for each in answers[::2]] == ["a", "b"]
    assert isinstance(answers[1], psycopg.errors.UniqueViolation)
    assert answers[3] == 1
    assert await engine.ask(asking(COUNT)) == 2


async def test_who_gives_up_asking_disturbs_nobody(watched: tuple[PostgresEngine, SilentProxy]) -> None:
    engine, proxy = watched
    ran: list[str] = []
    sent = threading.Event()

    def question(name: str) -> Any:
        def ask(connection: Any) -> Any:
            ran.append(name)
            sent.set()
            return asking("SELECT ?::text", name)(connection)

        return ask

    proxy.go_silent()
    callers = {name: asyncio.ensure_future(engine.ask(question(name))) for name in ("early", "late", "last")}
    await asyncio.sleep(0)  # each has asked, and nothing is sent
    callers["early"].cancel()
    await asyncio.to_thread(sent.wait, 30)
    callers["late"].cancel()
    proxy.go_on()
    assert await callers["last"] == "last"
    assert callers["early"].cancelled()
    assert callers["late"].cancelled()
    assert ran == ["late", "last"]
    assert await engine.ask(asking("SELECT 1")) == 1


async def test_what_was_asked_together_is_asked_again_when_the_connection_breaks(
    watched: tuple[PostgresEngine, SilentProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, proxy = watched
    broken = threading.Event()
    proxy.go_silent_at(1, broken.set)
    asked = asyncio.gather(*(engine.ask(asking("SELECT ?::text", name)) for name in "ab"))
    await asyncio.to_thread(broken.wait, 30)
    proxy.cut()
    proxy.go_on()
    assert await asked == ["a", "b"]
    monkeypatch.setattr("gateway.store.postgres.engine.PATIENCE_S", 0.2)
    proxy.refuse()
    proxy.cut()
    answers = await asyncio.gather(*(engine.ask(asking("SELECT 1")) for _ in "ab"), return_exceptions=True)
    assert {type(error) for error in answers} == {StoreUnavailable}


async def test_what_is_asked_last_is_answered_before_the_end(postgres_url: str) -> None:
    engine = PostgresEngine(postgres_url)
    asked = asyncio.ensure_future(engine.ask(asking("SELECT 1")))
    await asyncio.sleep(0)
    await engine.close()
    assert await asked == 1
    with pytest.raises(StoreUnavailable, match="is closed"):
        await engine.ask(asking("SELECT 1"))


async def test_writes_of_one_store_follow_one_another(engine: PostgresEngine) -> None:
    """A budget of 50, read and then spent by work that locks no row: never more is granted."""

    def spend(connection: Any) -> bool:
        if connection.execute(COUNT).fetchone()[0] >= 50:
            return False
        connection.execute("INSERT INTO adapter_notes SELECT 'c', gen_random_uuid()::text, ''")
        return True

    for view, alone in ((engine.of("usage"), None), (engine, None), (engine, ("a", "b"))):
        granted = await asyncio.gather(*(view.write(spend, alone=alone, is_durable=False) for _ in range(120)))
        assert granted.count(True) == 50
        await engine.write(statement("DELETE FROM adapter_notes"))


async def test_works_with_names_of_their_own_run_at_the_same_time(engine: PostgresEngine) -> None:
    meeting = threading.Barrier(3, timeout=30)
    works = [
        engine.of("usage").write(lambda _: meeting.wait(), alone=alone)
        for alone in ((), ("session:1",), ("session:2",))
    ]
    assert sorted(await asyncio.gather(*works)) == [0, 1, 2]


async def test_work_is_run_again_after_a_deadlock(engine: PostgresEngine) -> None:
    await engine.write(lambda connection: connection.executemany(NOTE, [("c", "a", ""), ("c", "b", "")]).close())
    meeting, runs = threading.Barrier(2), []

    def work(first: str, second: str, connection: Any) -> None:
        change = "UPDATE adapter_notes SET text = text || ? WHERE key = ?"
        connection.execute(change, (first, first)).rowcount  # noqa: B018 (waits for it)
        if len(runs) < 2:
            runs.append(first)
            meeting.wait(30)
        else:
            runs.append(first)
        connection.execute(change, (first, second))

    await asyncio.gather(*(engine.write(lambda c, x=x, y=y: work(x, y, c), alone=()) for x, y in ("ab", "ba")))
    assert len(runs) == 3, "one of the two ran twice"
    assert [len(row["text"]) for row in await engine.rows("SELECT text FROM adapter_notes")] == [2, 2]


async def test_work_that_must_not_be_repeated_is_not(engine: PostgresEngine) -> None:
    runs: list[int] = []

    def work(connection: Any) -> None:
        runs.append(1)
        connection.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$").rowcount  # noqa: B018 (waits for it)

    with pytest.raises(StoreUnavailable):
        await engine.write(work, is_repeatable=False)
    assert runs == [1]


async def test_the_durable_wait_for_the_disk_and_others_do_not(engine: PostgresEngine) -> None:
    async def level(*, is_durable: bool) -> str:
        read = "SELECT current_setting('synchronous_commit')"
        return str(await engine.write(lambda c: c.execute(read).fetchone()[0], is_durable=is_durable))

    [usual] = await engine.row("SELECT current_setting('synchronous_commit')")
    await engine.write(lambda connection: connection.execute("SET synchronous_commit = on").close())
    assert await level(is_durable=True) != "off" or usual == "off"
    assert await level(is_durable=False) == "off"


async def test_a_statement_that_takes_too_long_is_ended_but_not_in_long_work(postgres_url: str) -> None:
    engine = PostgresEngine(postgres_url, statement_timeout_s=0.2)
    sleep = "SELECT pg_sleep(0.5)"
    try:
        for ask in (engine.read, engine.write):
            with pytest.raises(StoreUnavailable, match="does not answer in time"):
                await ask(lambda connection: connection.execute(sleep).fetchone())
        await engine.write_long(lambda connection: connection.execute(sleep).fetchone())
        await engine.compact()
        with pytest.raises(StoreUnavailable):  # the limit is there again
            await engine.row(sleep)
        [idle] = await engine.row("SELECT current_setting('idle_in_transaction_session_timeout')")
        assert idle == "5s"
    finally:
        await engine.close()


async def test_what_finds_no_free_connection_in_time_fails(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.postgres.engine.PATIENCE_S", 0.5)
    engine = PostgresEngine(postgres_url, connections=2)
    go_on = threading.Event()
    try:
        busy = [asyncio.ensure_future(engine.read(lambda _: go_on.wait(60))) for _ in range(2)]
        await asyncio.sleep(0)  # they are asked for first
        with pytest.raises(StoreUnavailable, match="all 2 connections are busy"):
            await engine.write(statement(NOTE, ("c", "k", "")))
        go_on.set()
        await asyncio.gather(*busy)
        assert [*await engine.row(COUNT)] == [0], "what was refused is never done later"
        assert await engine.problem() is None, "a try showed that it can be written"
    finally:
        go_on.set()
        await engine.close()


async def test_connections_are_opened_when_they_are_needed(
    postgres_url: str, postgres_server: PostgresServer, engine: PostgresEngine
) -> None:
    def connections() -> int:
        with psycopg.connect(postgres_server.url()) as other:
            name = postgres_url.rpartition("/")[2]
            row = other.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", (name,)).fetchone()
            assert row
            return int(row[0])

    assert connections() == 0
    for _ in range(5):
        await engine.row("SELECT 1")
    assert connections() == 1
    await asyncio.gather(*(engine.row("SELECT pg_sleep(0.05)") for _ in range(40)))
    assert connections() == 8


async def test_the_servers_clock_is_set_for_tests(postgres_url: str) -> None:
    now_ms = 0
    engine = PostgresEngine(postgres_url, clock_ms=lambda: now_ms)
    try:
        for now_ms in (1_700_000_000_000, 1_700_086_400_000, 1_699_999_995_000):
            assert [row[0] for row in await engine.rows("SELECT now_ms()")] == [now_ms]
    finally:
        await engine.close()


async def test_a_closed_engine_says_so_and_finishes_what_was_asked(postgres_url: str) -> None:
    engine = PostgresEngine(postgres_url)
    asked = [asyncio.ensure_future(engine.write(statement(NOTE, ("c", f"{n}", "")))) for n in range(30)]
    await asyncio.sleep(0)
    await engine.close()
    await engine.close()
    assert await asyncio.gather(*asked) == [1] * 30
    with pytest.raises(StoreUnavailable, match="is closed"):
        await engine.row("SELECT 1")


async def test_a_plan_that_a_change_of_the_tables_made_useless_is_made_again(postgres_url: str) -> None:
    """Another worker may upgrade the schema while this one runs."""
    engine = PostgresEngine(postgres_url, connections=1)
    try:
        for _ in range(10):
            await engine.rows("SELECT * FROM adapter_notes")
        with psycopg.connect(postgres_url) as other:
            other.execute("ALTER TABLE adapter_notes ADD later bigint")
        assert await engine.rows("SELECT * FROM adapter_notes") == []
    finally:
        await engine.close()


async def test_broken_indexes_are_told(engine: PostgresEngine) -> None:
    assert await engine.faults() == []
    await engine.write(
        lambda c: c.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'inbox_open'::regclass").close()
    )
    assert await engine.faults() == ["the index inbox_open is not valid; run REINDEX INDEX inbox_open"]


async def test_foreign_commits_grow_with_time(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.postgres.engine.time.monotonic", lambda: 100.2)
    assert engine.foreign_commits == engine.of("people").foreign_commits == 100
    monkeypatch.setattr("gateway.store.postgres.engine.time.monotonic", lambda: 101.1)
    assert engine.foreign_commits == 101


async def test_a_thread_is_still_at_work_where_its_caller_was_cancelled() -> None:
    """What comes next does not wait for it longer than for any other."""
    threads = Threads(1, patience_s=0.3, busy=lambda: StoreUnavailable("all are busy"))
    is_running, may_end = threading.Event(), threading.Event()

    def hang(_slot: object) -> None:
        is_running.set()
        may_end.wait(20)

    caller = asyncio.create_task(threads.do(hang))
    try:
        await asyncio.to_thread(is_running.wait)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        with pytest.raises(StoreUnavailable, match="all are busy"):
            await asyncio.wait_for(threads.do(lambda _slot: None), 5)
    finally:
        may_end.set()
        await threads.close()


async def test_one_after_the_other_is_asked_on_one_connection_and_all_have_their_turn_when_there_is_more() -> None:
    """So the server has plans for the statements, and an idle worker costs it little."""
    threads = Threads(3, patience_s=20, busy=lambda: StoreUnavailable("all are busy"))
    meeting = threading.Barrier(3, timeout=20)

    def met(_slot: object) -> int:
        meeting.wait()
        return threading.get_ident()

    try:
        first = await threads.do(lambda _slot: threading.get_ident())
        assert [await threads.do(lambda _slot: threading.get_ident()) for _ in range(20)] == [first] * 20
        assert len(set(await asyncio.gather(*(threads.do(met) for _ in range(3))))) == 3
        last = await threads.do(lambda _slot: threading.get_ident())
        assert {await threads.do(lambda _slot: threading.get_ident()) for _ in range(20)} == {last}
        in_order: list[int] = []
        await asyncio.gather(*(threads.do(lambda _slot, n=number: in_order.append(n)) for number in range(200)))
        assert sorted(in_order) == list(range(200))
    finally:
        await threads.close()
