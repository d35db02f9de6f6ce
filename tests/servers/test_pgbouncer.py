"""The pooler is one as operators have it: connections change hands between transactions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import psycopg
import pytest

from tests.servers import pgbouncer, postgres
from tests.servers.pgbouncer import FOLLOWS_STATEMENTS, Pooler, version
from tests.servers.silent_proxy import silent_proxy

MISSING = postgres.MISSING or pgbouncer.MISSING
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
BACKEND = "SELECT pg_backend_pid()"


def connect(pooler: Pooler) -> psycopg.Connection:
    """A client that prepares only what it is told to."""
    return psycopg.connect(pooler.url(), autocommit=True, prepare_threshold=1_000)


@pytest.fixture
def one_for_all(postgres_server) -> Iterator[Pooler]:
    """All clients share one connection to the server."""
    with pgbouncer.pgbouncer(postgres_server, pool_size=1) as pooler:
        yield pooler


def test_two_clients_share_a_connection_between_transactions(one_for_all):
    with connect(one_for_all) as first, connect(one_for_all) as second:
        assert first.execute(BACKEND).fetchone() == second.execute(BACKEND).fetchone()


def test_in_session_mode_each_client_has_its_own(postgres_server):
    with (
        pgbouncer.pgbouncer(postgres_server, pool_mode="session", pool_size=2) as pooler,
        connect(pooler) as first,
        connect(pooler) as second,
    ):
        assert first.execute(BACKEND).fetchone() != second.execute(BACKEND).fetchone()


def test_a_session_lock_is_granted_twice(one_for_all):
    with connect(one_for_all) as first, connect(one_for_all) as second:
        for client in (first, second):
            assert client.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (True,)


@pytest.mark.skipif(MISSING is not None or version() >= FOLLOWS_STATEMENTS, reason="this one follows them")
def test_before_1_21_a_prepared_statement_is_lost_with_its_connection(postgres_server):
    with (
        pgbouncer.pgbouncer(postgres_server, pool_size=2) as pooler,
        connect(pooler) as first,
        connect(pooler) as second,
    ):
        assert first.execute("SELECT 1", prepare=True).fetchone() == (1,)
        with second.transaction():  # has the connection where it is prepared
            second.execute(BACKEND)
            with pytest.raises(psycopg.errors.InvalidSqlStatementName):
                first.execute("SELECT 1", prepare=True)


@pytest.mark.skipif(MISSING is not None or version() >= FOLLOWS_STATEMENTS, reason="this one follows them")
def test_before_1_21_two_clients_cannot_prepare_under_one_name(one_for_all):
    with connect(one_for_all) as first, connect(one_for_all) as second:
        first.execute("SELECT 1", prepare=True)
        with pytest.raises(psycopg.errors.DuplicatePreparedStatement):
            second.execute("SELECT 2", prepare=True)


def test_prepared_statements_are_followed_where_it_can_and_else_it_says_from_when_on(postgres_server):
    if version() < FOLLOWS_STATEMENTS:
        with (
            pytest.raises(ValueError, match=r"has no max_prepared_statements, which came with 1\.21: leave it out"),
            pgbouncer.pgbouncer(postgres_server, max_prepared_statements=100),
        ):
            pass
        return
    with (
        pgbouncer.pgbouncer(postgres_server, pool_size=1, max_prepared_statements=100) as pooler,
        connect(pooler) as first,
        connect(pooler) as second,
    ):
        for number, client in enumerate((first, second)):
            assert client.execute(f"SELECT {number}", prepare=True).fetchone() == (number,)


def test_options_reach_it_and_its_console_answers(postgres_server):
    with (
        pgbouncer.pgbouncer(postgres_server, "query_wait_timeout=7", pool_size=3) as pooler,
        psycopg.connect(pooler.url("pgbouncer"), autocommit=True) as console,
    ):
        shown = console.pgconn.exec_(b"SHOW CONFIG")  # the console has no extended protocol
        told = {shown.get_value(row, 0): shown.get_value(row, 1) for row in range(shown.ntuples)}
    chosen = {b"pool_mode": b"transaction", b"default_pool_size": b"3", b"query_wait_timeout": b"7"}
    assert {name: told[name] for name in chosen} == chosen
    assert told[b"listen_addr"] == b"127.0.0.1"


def test_a_proxy_can_stand_between_it_and_the_server(postgres_server):
    with (
        silent_proxy(postgres_server.port) as proxy,
        pgbouncer.pgbouncer(dataclasses.replace(postgres_server, port=proxy.port)) as pooler,
        connect(pooler) as client,
    ):
        assert client.execute("SELECT 1").fetchone() == (1,)
        client.execute("BEGIN")
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
