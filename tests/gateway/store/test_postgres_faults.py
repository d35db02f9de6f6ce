"""The engine for PostgreSQL when the server restarts, the network is silent, the disk is full, a pooler is in front."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.cluster.leases import LEASE_S
from gateway.errors import ClaimLost, StoreUnavailable
from gateway.store.engine import require, snapshot, statement
from gateway.store.postgres.engine import PostgresEngine
from gateway.store.stores import open_postgres
from tests.servers import pgbouncer, postgres
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import PostgresServer
from tests.servers.silent_proxy import SilentProxy, silent_proxy
from tests.stores import make_tables

NOTE = "INSERT INTO adapter_notes (channel, key, text) VALUES (?, ?, ?)"
KEEP = f"{NOTE} ON CONFLICT (channel, key) DO UPDATE SET text = excluded.text"
KEYS = "SELECT key FROM adapter_notes"

pytestmark = [pytest.mark.skipif(postgres.MISSING is not None, reason=str(postgres.MISSING)), pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that keeps what it confirms, with our tables in its own database."""
    with postgres.postgres_server() as running:
        make_tables(running.url())
        yield running


@pytest.fixture
async def engine(server: PostgresServer) -> AsyncIterator[PostgresEngine]:
    opened = PostgresEngine(server.url())
    await opened.write(statement("DELETE FROM adapter_notes"))
    yield opened
    await opened.close()


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[SilentProxy]:
    with silent_proxy(server.port) as made:
        yield made


async def test_what_was_confirmed_outlives_restarts_and_calls_wait_for_the_server(
    server: PostgresServer, engine: PostgresEngine
) -> None:
    confirmed: set[str] = set()
    refused: set[str] = set()

    async def write(worker: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            key = f"{worker}-{number}"
            try:
                await engine.write(statement(KEEP, ("c", key, "")), alone=())
                confirmed.add(key)
            except StoreUnavailable as error:  # the server took longer than a call waits
                if "Nothing was committed" in str(error):
                    refused.add(key)

    over = asyncio.Event()
    writers = [asyncio.ensure_future(write(worker)) for worker in range(6)]
    for _ in range(3):
        before = len(confirmed)
        while len(confirmed) < before + 50:
            await asyncio.wait(writers, timeout=0.01)
        server.restart()
    over.set()
    await asyncio.gather(*writers)
    found = {row["key"] for row in await engine.rows(KEYS)}
    assert confirmed <= found
    assert not refused & found
    assert await engine.problem() is None


async def test_work_whose_commit_is_not_known_is_run_again_and_knows_it(
    proxy: SilentProxy, server: PostgresServer, engine: PostgresEngine
) -> None:
    other = PostgresEngine(replace(server, port=proxy.port).url())
    seen: list[tuple[bool, int]] = []

    def work(connection: Any) -> None:
        there = connection.execute("SELECT count(*) FROM adapter_notes").fetchone()[0]
        seen.append((connection.may_be_done, there))
        connection.execute(KEEP, ("c", "k", "")).rowcount  # noqa: B018 (the proxy has it)
        if len(seen) == 1:
            proxy.latency_s = 0.3  # COMMIT is on its way when the connection is cut
            loop.call_soon_threadsafe(loop.call_later, 0.45, proxy.cut)
            loop.call_soon_threadsafe(loop.call_later, 0.5, setattr, proxy, "latency_s", 0.0)

    loop = asyncio.get_running_loop()
    try:
        await other.write(work)
    finally:
        await other.close()
    assert seen == [(False, 0), (True, 1)]
    assert [row["key"] for row in await engine.rows(KEYS)] == ["k"]


async def test_work_that_must_not_be_repeated_says_that_it_is_not_known(
    proxy: SilentProxy, server: PostgresServer, engine: PostgresEngine
) -> None:
    other = PostgresEngine(replace(server, port=proxy.port).url())

    def work(connection: Any) -> None:
        connection.execute(KEEP, ("c", "k", "")).rowcount  # noqa: B018 (the proxy has it)
        proxy.latency_s = 0.3
        loop.call_soon_threadsafe(loop.call_later, 0.15, proxy.cut)

    loop = asyncio.get_running_loop()
    try:
        with pytest.raises(StoreUnavailable, match="not known whether it was committed"):
            await other.write(work, is_repeatable=False)
    finally:
        await other.close()


async def test_a_transaction_is_one_round_trip_and_asked_step_by_step_where_it_is_refused(
    proxy: SilentProxy, server: PostgresServer, engine: PostgresEngine
) -> None:
    other = PostgresEngine(replace(server, port=proxy.port).url(), connections=1)
    seen: list[bool] = []

    def work(key: str, is_good: bool, connection: Any) -> Any:
        seen.append(connection.is_at_once)
        connection.execute(KEEP, ("c", key, ""))
        if connection.is_at_once:
            require(connection, "SELECT 1 WHERE ?", (is_good,))
        elif not is_good:
            raise ClaimLost("it is another's")
        count = connection.execute("SELECT count(*) FROM adapter_notes")
        return lambda: count.fetchone()[0]

    try:
        for number in range(10):  # then all statements are prepared
            assert await other.write_at_once(partial(work, f"{number}", True)) == number + 1
        before = proxy.round_trips
        for _ in range(5):
            assert await other.write_at_once(partial(work, "again", True)) == 11
        assert proxy.round_trips - before == 5
        assert all(seen)
        seen.clear()
        with pytest.raises(ClaimLost):
            await other.write_at_once(partial(work, "refused", False))
        assert seen == [True, False]
        assert len(await engine.rows(KEYS)) == 11
    finally:
        await other.close()


async def test_nothing_is_sent_before_somebody_waits(
    proxy: SilentProxy, server: PostgresServer, engine: PostgresEngine
) -> None:
    """Else each statement is a packet, which wakes the server."""
    other = PostgresEngine(replace(server, port=proxy.port).url(), connections=1)
    sent: list[int] = []

    def work(connection: Any) -> Any:
        sent.append(proxy.pieces)
        for number in range(5):
            connection.execute(KEEP, ("c", f"{number}", ""))
        time.sleep(0.1)  # in which the proxy would have seen it
        sent.append(proxy.pieces)
        return lambda: None

    try:
        await other.row("SELECT 1")
        await other.write_at_once(work)
        assert sent[0] == sent[1]
        assert len(await engine.rows(KEYS)) == 5
    finally:
        await other.close()


async def test_what_a_worker_locked_before_its_network_went_silent_is_free_before_a_lease_is_over(
    proxy: SilentProxy, server: PostgresServer, engine: PostgresEngine
) -> None:
    await engine.write(statement(KEEP, ("c", "k", "before")))
    other = PostgresEngine(replace(server, port=proxy.port).url())
    is_locked = threading.Event()

    def work(connection: Any) -> None:
        connection.execute(KEEP, ("c", "k", "of the silent one")).rowcount  # noqa: B018 (the server has it)
        proxy.go_silent(is_deaf=True)
        is_locked.set()

    writing = asyncio.ensure_future(other.write(work, is_repeatable=False, alone=()))
    try:
        await asyncio.to_thread(is_locked.wait)
        async with asyncio.timeout(LEASE_S):
            await engine.write(statement(KEEP, ("c", "k", "of another")), alone=())
        proxy.go_on()
        with pytest.raises(StoreUnavailable):
            await writing
        assert await engine.rows("SELECT text FROM adapter_notes") == [("of another",)]
    finally:
        proxy.go_on()
        await other.close()


async def test_a_silent_network_is_noticed_and_over_at_once(
    proxy: SilentProxy, server: PostgresServer, engine: PostgresEngine
) -> None:
    other = PostgresEngine(replace(server, port=proxy.port).url(), connections=2)
    try:
        await other.row("SELECT 1")
        proxy.go_silent(is_deaf=True)
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailable, match="cannot be used now"):
            await other.write(statement(KEEP, ("c", "k", "")))
        assert 3 < time.monotonic() - began_s < 12
        assert "cannot be used now" in str(await other.problem())
        proxy.go_on()
        async with asyncio.timeout(20):
            while await other.problem() is not None:
                await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))], timeout=0.1)
        assert await other.row(KEYS) is None
    finally:
        proxy.go_on()
        await other.close()


async def test_a_server_that_can_only_be_read_is_told(
    server: PostgresServer, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.postgres.engine.PATIENCE_S", 0.5)
    other = PostgresEngine(f"{server.url()}?options=-cdefault_transaction_read_only%3Don")
    try:
        with pytest.raises(StoreUnavailable, match="it is read-only; give the address of the primary"):
            await other.write(statement(KEEP, ("c", "k", "")))
        assert await other.row(KEYS) is None
    finally:
        await other.close()


async def test_a_full_disk_is_told_and_nothing_is_half_done(tmp_path: Path) -> None:
    with postgres.postgres_server(max_file_bytes=2_000_000) as full:
        store = open_postgres(full.url())
        engine = store.engine
        text = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(20_000))  # which cannot be compressed
        try:
            written = 0
            with pytest.raises(StoreUnavailable, match="no room left; make room on its disk") as told:  # noqa: PT012
                while written < 200:
                    await engine.write(statement(KEEP, ("c", f"{written}", f"{written}{text}")))
                    written += 1
            assert "Nothing was committed" in str(told.value)
            assert len(await engine.rows(KEYS)) == written > 0
            await engine.write(statement("DELETE FROM adapter_notes"))
            assert await engine.problem() is None
        finally:
            await store.close()


async def test_what_cannot_be_reached_is_told_without_the_password(server: PostgresServer) -> None:
    port = server.port
    with silent_proxy(port) as proxy:
        proxy.refuse()
        for url, told in (
            (
                f"postgresql://ethos:s3cr3t-word@127.0.0.1:{proxy.port}/postgres",
                "look at `url`, and whether the server",
            ),
            (f"postgresql://ethos:s3cr3t-word@127.0.0.1:{port}/nowhere", 'database "nowhere" does not exist'),
            (f"postgresql://nobody:s3cr3t-word@127.0.0.1:{port}/postgres", 'role "nobody" does not exist'),
            (f"postgresql://ethos:s3cr3t-word@127.0.0.1:{port}/postgres?sslmode=require", "speaks no TLS"),
            ("postgresql://ethos:s3cr3t-word@nowhere.invalid/postgres", "look at `url`"),
        ):
            engine = PostgresEngine(url)
            try:
                with pytest.raises(StoreUnavailable) as caught:
                    await engine.row("SELECT 1")
            finally:
                await engine.close()
            assert told in str(caught.value)
            assert "s3cr3t-word" not in str(caught.value)
            with pytest.raises(StoreUnavailable) as caught:
                await asyncio.to_thread(open_postgres, url)
            assert told in str(caught.value)


async def test_a_wrong_password_is_told_at_once() -> None:
    with postgres.postgres_server() as strict:
        engine = PostgresEngine(strict.url())
        try:
            await engine.read(lambda c: c.execute("ALTER ROLE ethos PASSWORD 's3cr3t-word'").close())
            (strict.root / "data" / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
            await engine.row("SELECT pg_reload_conf()")
        finally:
            await engine.close()
        for password, told in (("wr0ng-word", "refuses the user name or the password"), ("s3cr3t-word", None)):
            other = PostgresEngine(strict.url().replace("ethos@", f"ethos:{password}@"))
            began_s = time.monotonic()
            try:
                if told is None:
                    assert [*await other.row("SELECT 1")] == [1]
                    continue
                with pytest.raises(StoreUnavailable, match=told) as caught:
                    await other.row("SELECT 1")
            finally:
                await other.close()
            assert time.monotonic() - began_s < 3
            assert password not in str(caught.value)


# ---- behind a pooler ------------------------------------------------------------------------------------------------


@pytest.fixture
def pooler(server: PostgresServer) -> Iterator[Pooler]:
    if pgbouncer.MISSING:
        pytest.skip(pgbouncer.MISSING)
    with pgbouncer.pgbouncer(server, pool_size=2) as running:
        yield running


async def test_everything_goes_through_a_pooler_in_transaction_mode(pooler: Pooler, engine: PostgresEngine) -> None:
    """Two connections to the server serve eight of ours, and no setting is left on them."""
    opened = await asyncio.to_thread(open_postgres, pooler.url(), prepared_statements=False)
    pooled = opened.engine

    def work(number: int, connection: Any) -> list[str]:
        assert connection.is_pooled
        connection.execute(KEEP, ("c", f"{number}", "x" * (40_000 if number % 10 == 0 else 10)))
        names = ("statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
        return [connection.execute("SELECT current_setting(?)", (name,)).fetchone()[0] for name in names]

    def look(connection: Any) -> int:
        with snapshot(connection):
            return int(connection.execute("SELECT count(*) FROM adapter_notes").fetchone()[0])

    try:
        for is_durable, level in ((True, "on"), (False, "off")):
            limits = await asyncio.gather(
                *(pooled.write(lambda c, n=n: work(n, c), is_durable=is_durable, alone=()) for n in range(100))
            )
            assert limits == [["30s", "5s", level]] * 100
        assert set(await asyncio.gather(*(pooled.read(look) for _ in range(40)))) == {100}
        [left] = await pooled.row("SELECT current_setting('statement_timeout')")
        assert left == "0", "a setting of the session would be another client's, too"
        await pooled.compact()
    finally:
        await opened.close()


@pytest.mark.skipif(
    pgbouncer.MISSING is not None or pgbouncer.version() >= pgbouncer.FOLLOWS_STATEMENTS,
    reason="this pgbouncer follows prepared statements",
)
async def test_statements_that_a_pooler_mixes_up_are_explained(pooler: Pooler) -> None:
    pooled = PostgresEngine(pooler.url())
    try:
        with pytest.raises(StoreUnavailable, match=r"use pgbouncer 1\.21 or newer, or `prepared_st"):  # noqa: PT012
            for _ in range(40):
                await asyncio.gather(*(pooled.write(statement(KEEP, ("c", "k", "")), alone=()) for _ in range(20)))
    finally:
        await pooled.close()
