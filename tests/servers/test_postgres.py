"""The server of many test files: databases from a template, restarts, and an end with those who started it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.servers import postgres
from tests.servers.postgres import PostgresServer, fresh_database

pytestmark = pytest.mark.skipif(postgres.MISSING is not None, reason=postgres.MISSING or "")
ROOT = Path(__file__).parents[2]
made: list[str] = []


def prepare(url: str) -> None:
    made.append(url)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE notes (text text)")


def databases(server: PostgresServer) -> set[str]:
    with psycopg.connect(server.url()) as connection:
        return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}


def test_each_database_has_the_schema_and_no_row_of_another_and_the_template_is_made_once(postgres_server):
    for _ in range(2):
        with fresh_database(postgres_server, prepare) as url, psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)
            connection.execute("INSERT INTO notes VALUES ('tea')")
            connection.commit()
    assert len(made) == 1


def test_a_database_that_was_used_is_the_next_one_with_the_rows_and_numbers_of_its_template(postgres_server):
    def with_a_row(url: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE words (id bigint GENERATED ALWAYS AS IDENTITY, word text)")
            connection.execute("INSERT INTO words (word) VALUES ('green'), ('black')")

    with fresh_database(postgres_server, with_a_row) as first, psycopg.connect(first) as connection:
        connection.execute("DELETE FROM words WHERE word = 'green'")
        connection.execute("INSERT INTO words (word) VALUES ('white')")
    with fresh_database(postgres_server, with_a_row) as second, psycopg.connect(second) as connection:
        assert connection.execute("SELECT * FROM words ORDER BY id").fetchall() == [(1, "green"), (2, "black")]
        assert connection.execute("INSERT INTO words (word) VALUES ('red') RETURNING id").fetchone() == (3,)
    assert second == first


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE more (text text)",
        "ALTER TABLE notes ADD COLUMN more text",
        "ALTER TABLE notes ALTER COLUMN text SET NOT NULL",
        "DROP TABLE notes",
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'pg_toast.pg_toast_2604_index'::regclass",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 128', current_database()); END $$",
    ],
)
def test_a_database_whose_tables_were_changed_is_dropped(postgres_server, change):
    with fresh_database(postgres_server, prepare) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(change)
    assert url.rpartition("/")[2] not in databases(postgres_server)


def test_a_database_is_left_in_use_and_also_after_a_failure(postgres_server):
    held = fresh_database(postgres_server, prepare)
    url = held.__enter__()
    still_open = psycopg.connect(url)
    failure = ZeroDivisionError()
    assert not held.__exit__(ZeroDivisionError, failure, None)
    with still_open, pytest.raises(psycopg.OperationalError):
        still_open.execute("SELECT 1")


def test_a_preparation_that_failed_is_made_again(postgres_server):
    failures = [ZeroDivisionError()]

    def fails_once(url: str) -> None:
        if failures:
            raise failures.pop()
        prepare(url)

    with pytest.raises(ZeroDivisionError), fresh_database(postgres_server, fails_once):
        pass
    with fresh_database(postgres_server, fails_once) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)


def test_a_shared_server_is_fast_and_one_for_faults_keeps_what_it_confirms(postgres_server):
    settings = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
    with psycopg.connect(postgres_server.url()) as connection:
        assert connection.execute(settings).fetchone() == ("off", "off")
    with postgres.postgres_server() as server, psycopg.connect(server.url()) as connection:
        assert connection.execute(settings).fetchone() == ("on", "on")


def test_a_restart_cuts_its_clients_off_and_keeps_port_and_rows():
    with postgres.postgres_server("fsync=off") as server, psycopg.connect(server.url(), autocommit=True) as old:
        old.execute("CREATE TABLE notes AS SELECT 'tea' AS text")
        before = server.process.pid
        server.restart()
        assert server.process.pid != before
        with pytest.raises(psycopg.OperationalError):
            old.execute("SELECT 1")
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SELECT text FROM notes").fetchone() == ("tea",)
        log = (server.root / "log").read_text()
    assert "received immediate shutdown request" in log
    assert "was not properly shut down" in log


STARTS_ONE = """
import signal
from tests.servers.postgres import FAST, postgres_server
with postgres_server(*FAST) as server:
    print(server.process.pid, server.root, flush=True)
    signal.pause()
"""


def test_the_server_ends_with_a_test_run_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", STARTS_ONE], cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        pid, root = run.stdout.readline().split()
        server = os.pidfd_open(int(pid))
        try:
            assert not select.select([server], [], [], 0)[0], "it runs"
            run.send_signal(signal.SIGKILL)
            assert select.select([server], [], [], 30)[0], "it has ended"
        finally:
            os.close(server)
            shutil.rmtree(root, ignore_errors=True)
