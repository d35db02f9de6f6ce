"""`ethos doctor` where workers share a PostgreSQL: what is wrong there, each time with what to do."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.app.workspaces import MARKER_NAME
from gateway.domain.root_secret import fingerprint
from gateway.errors import StoreUnavailable
from gateway.ops.doctor import server as doctor_server
from gateway.store.engine import statement
from gateway.store.postgres.engine import PostgresEngine
from gateway.store.postgres.schema import steps
from tests.faults.full_disk import Ballast
from tests.faults.process import small_disk_missing
from tests.gateway.cli.commands.conftest import Ethos
from tests.servers import pgbouncer as poolers
from tests.servers import postgres
from tests.servers.postgres import PostgresServer, fresh_database, of_version, standby_of
from tests.stores import make_tables

EX_UNAVAILABLE = 69
MUCH = """
    INSERT INTO adapter_notes (channel, key, text)
    SELECT 'web', 'much', string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 100000)
"""
SECRET = "".join(f"{number:02x}" for number in range(32))
Found = Callable[..., dict[str, list[str]]]
WORKER = (
    "INSERT INTO workers (id, name, version, config_hash, roles, turns, started_at, beat_at, is_draining)"
    " VALUES (%s, %s, %s, %s, 'turns', 0, 0, now_ms(), false)"
)


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all of this file."""
    with fresh_database(postgres_server, make_tables) as made:
        yield made


@pytest.fixture
def found(ethos: Ethos, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    """What the doctor says of the server, by level; `more` goes into the section `store`."""
    fresh_home.mkdir(mode=0o700)
    monkeypatch.setenv("ROOT", SECRET)

    def examine(url: str, more: str = "") -> dict[str, list[str]]:
        path = fresh_home / "config.yaml"
        path.write_text(f"web: {{port: 0}}\nsecret: ${{ROOT}}\nstore: {{url: '{url}'{more}}}\n")
        path.chmod(0o600)
        answer = ethos("doctor", "--json")
        by_level: dict[str, list[str]] = {"problem": [], "warning": [], "note": []}
        for finding in answer.value:
            assert bool(finding["advice"]) == (finding["level"] != "note"), finding
            by_level[finding["level"]].append(f"{finding['what']} → {finding['advice']}")
        return by_level

    return examine


def asked(url: str, sql: str, *values: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode(), values)


def has(findings: list[str], text: str) -> bool:
    return any(text in finding for finding in findings)


def test_the_directory_of_workspaces_is_looked_at_and_a_wrong_one_is_named(
    ethos: Ethos, fresh_home: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_home.mkdir(mode=0o700)
    monkeypatch.setenv("ROOT", SECRET)
    (place := tmp_path / "shared").mkdir()

    def examine(place: Path) -> dict[str, Any]:
        path = fresh_home / "config.yaml"
        path.write_text(
            f"web: {{port: 0}}\nsecret: ${{ROOT}}\nstore: {{url: '{url}'}}\n"
            f"tools: {{files: true, workspaces: '{place}'}}\n"
        )
        path.chmod(0o600)
        [one] = [one for one in ethos("doctor", "--json").value if "workspaces" in one["what"]]
        return dict(one)

    assert examine(place)["what"].endswith("shared, is empty; the first worker begins it.")
    assert not [*place.iterdir()], "a look begins nothing"
    missing = examine(tmp_path / "nowhere")
    assert (missing["level"], "there is no directory" in missing["what"]) == ("problem", True)
    (place / MARKER_NAME).write_text(json.dumps({"gateway": fingerprint(bytes.fromhex(SECRET)), "directory": "of all"}))
    assert examine(place)["what"].endswith("shared, is the one of all workers.")
    (other := tmp_path / "other").mkdir()
    wrong = examine(other)
    assert wrong["level"] == "problem"
    assert "is not the directory that the other workers use, or its disk is not mounted" in wrong["what"]


_OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


def test_a_server_in_use_is_told_from_a_good_one(found: Found, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(url)
    assert has(told["note"], "The database is on PostgreSQL 1")
    assert [finding.partition(":")[0] for finding in told["problem"]] == ["`fsync` of PostgreSQL is off"]
    assert [finding.partition(" ")[0] for finding in told["warning"]] == ["`synchronous_standby_names`"]

    monkeypatch.setattr(doctor_server, "OPEN_S", -1.0)
    monkeypatch.setattr(doctor_server, "CLOCK_S", -10.0)
    monkeypatch.setattr(doctor_server, "DEAD_ROWS", 0)
    monkeypatch.setattr(doctor_server, "_MOST_USED", 0.0)
    with psycopg.connect(url, autocommit=True) as alone:
        until_s = time.monotonic() + 60
        while alone.execute(_OTHERS).fetchone() != (0,):  # a connection counts its rows when it ends
            assert time.monotonic() < until_s, "a connection of an earlier test stays open"
            time.sleep(0.02)
        alone.execute("SELECT pg_stat_reset()")  # rows of earlier tests in this database are counted, too
    with psycopg.connect(url, application_name="a report") as left_open, psycopg.connect(url) as other:
        left_open.execute("SELECT 1")
        other.execute("INSERT INTO lanes (id, channel, conversation, thread, last_seq) VALUES (1, 'a', 'b', '', 0)")
        for _ in range(3):
            other.execute("UPDATE lanes SET last_seq = last_seq + 1")
        other.execute("SELECT pg_stat_force_next_flush()")
        other.commit()
        told = found(url)
    assert has(told["warning"], "A transaction of a report (user ethos, process ")
    assert has(told["warning"], "is idle in transaction: no dead row can be removed")
    assert has(told["warning"], "This machine's clock is ")
    assert has(told["warning"], "The table `lanes` has 3 dead rows and 1 living ones")
    assert has(told["warning"], " of the 97 connections of PostgreSQL are in use. → Raise `max_connections`")


def test_workers_that_differ_and_connections_that_do_not_suffice(found: Found, url: str) -> None:
    asked(url, WORKER, "w1", "one", "0.1.0", "aaaa")
    asked(url, WORKER, "w2", "two", "0.2.0", "bbbb")
    asked(url, WORKER, "w0", "gone", "0.0.1", "cccc")
    asked(url, "UPDATE workers SET beat_at = beat_at - 60000 WHERE id = 'w0'")
    told = found(url)
    assert has(told["warning"], "The workers have different versions: 0.1.0, 0.2.0. → During a rolling restart")
    assert has(told["warning"], "The workers have different configurations: aaaa, bbbb. →")
    for number in range(3, 9):
        asked(url, WORKER, f"w{number}", "more", "0.2.0", "bbbb")
    told = found(url)
    assert has(told["warning"], "8 workers may use 80 connections, and PostgreSQL has 97. → Put a pooler in front")
    for number in range(9, 11):
        asked(url, WORKER, f"w{number}", "more", "0.2.0", "bbbb")
    assert has(found(url)["problem"], "10 workers may use 100 connections, and PostgreSQL has 97. → Put a pooler")
    asked(url, "DELETE FROM workers")


def test_a_server_that_no_worker_can_use(found: Found, url: str, postgres_server: PostgresServer) -> None:
    name = url.rpartition("/")[2]
    asked(postgres_server.url(), f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    [problem] = found(url)["problem"]
    assert "it is read-only; give the address of the primary" in problem
    asked(postgres_server.url(), f"ALTER DATABASE {name} RESET default_transaction_read_only")

    asked(url, "UPDATE schema SET version = 99, oldest_program = 99")
    [problem] = found(url)["problem"]
    assert "has schema version 99" in problem
    asked(url, "UPDATE schema SET version = %s, oldest_program = 1", steps()[-1].version)

    empty = found(postgres_server.url())["problem"]
    assert has(empty, "has no tables of ours, and this program works with version")
    assert len(empty) == 1
    [problem] = found("postgresql://ada:s3cret@127.0.0.1:1/ethos")["problem"]
    assert "cannot be used now" in problem
    assert "s3cret" not in problem


@pytest.mark.slow
def test_a_standby_is_named_and_not_served_from(
    found: Found, ethos: Ethos, url: str, postgres_server: PostgresServer
) -> None:
    with standby_of(postgres_server) as standby:
        [problem] = found(standby.url(url.rpartition("/")[2]))["problem"]
        assert "is a standby, which can only be read. → Give the address of the primary, or all hosts and" in problem
        assert "`target_session_attrs=read-write`" in problem
        refused = ethos("serve", "--no-chat")
    assert refused.code == EX_UNAVAILABLE
    assert "is a standby, which can only be read; give the address of the primary" in refused.err


def test_a_server_that_is_too_old_is_named_and_nothing_is_made_there(
    found: Found, ethos: Ethos, postgres_server: PostgresServer
) -> None:
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    with of_version(postgres_server, 140_011) as old:
        [problem] = found(old.url())["problem"]
        refused = ethos("serve", "--no-chat")
    assert problem.endswith(" is PostgreSQL 14, which is too old. → Use 15 or newer.")
    assert refused.code == EX_UNAVAILABLE
    assert "is PostgreSQL 14, which is too old; use 15 or newer. Nothing was changed." in refused.err
    with psycopg.connect(postgres_server.url()) as connection:
        assert connection.execute(tables).fetchall() == []


@pytest.mark.skipif(os.geteuid() != 0 or small_disk_missing() is not None, reason="root alone makes a small disk")
def test_a_server_whose_disk_is_full_is_told_until_there_is_room(found: Found) -> None:
    with postgres.postgres_server(disk_mb=60) as server:
        make_tables(server.url())
        ballast = Ballast(Path(f"/proc/{server.process.pid}/root{server.root}/data"))
        ballast.fill(0)
        [problem] = found(server.url())["problem"]
        assert "has no room left; make room on its disk" in problem
        while_full, afterwards = asyncio.run(_problems(server.url(), ballast))
        assert "has no room left" in str(while_full)
        assert afterwards is None
        assert found(server.url())["problem"] == []


async def _problems(url: str, ballast: Ballast) -> tuple[str | None, str | None]:
    """What a worker says that could not write: while the disk is full, and when there is room again."""
    engine = PostgresEngine(url)
    try:
        with pytest.raises(StoreUnavailable, match="no room left"):
            await engine.write(statement(MUCH))
        while_full = await engine.problem()
        ballast.empty()
        return while_full, await engine.problem()
    finally:
        await engine.close()


@pytest.mark.slow
@pytest.mark.skipif(poolers.MISSING is not None, reason=poolers.MISSING or "")
def test_the_mode_of_a_pooler_is_tried(found: Found, url: str, postgres_server: PostgresServer) -> None:
    def through(pooler: poolers.Pooler) -> str:
        return url.replace(f":{postgres_server.port}/", f":{pooler.port}/")

    with poolers.pgbouncer(postgres_server) as pooler:
        if poolers.version() < poolers.FOLLOWS_STATEMENTS:
            told = found(through(pooler), f", listen_url: '{url}'")
            assert has(told["problem"], "does not follow prepared statements. → Use pgbouncer 1.21 or newer")
        told = found(through(pooler), f", listen_url: '{url}', prepared_statements: false")
        assert has(told["note"], "A pooler is in front of PostgreSQL, in transaction mode.")
        assert len(told["problem"]) == 1, told["problem"]
        told = found(through(pooler), ", prepared_statements: false")
        assert has(told["problem"], "A pooler in transaction mode hands none on: give the address of the server")
        told = found(through(pooler), ", prepared_statements: false, listen_url: 'off'")
        assert has(told["note"], "`store.listen_url` is off")
    with poolers.pgbouncer(postgres_server, pool_mode="session") as pooler:
        assert has(found(through(pooler))["note"], "A pooler is in front of PostgreSQL, in session mode.")
    with poolers.pgbouncer(postgres_server, pool_mode="statement") as pooler:
        told = found(through(pooler), ", prepared_statements: false")
        assert has(told["problem"], "statement mode")
