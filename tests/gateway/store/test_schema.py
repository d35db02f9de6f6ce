"""Migrations: in one transaction, after a copy, never backwards; and files that are no database of ours."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.errors import SchemaTooNew, StoreUnavailable
from gateway.store.sqlite.schema import APPLICATION_ID, Migration, migrate, migrations
from gateway.store.sqlite.search import register_functions
from gateway.store.stores import open_store
from tests.conformance.stores import said

NEWEST = migrations()[-1].version
FIRST = Migration(1, "0001_first.sql", "CREATE TABLE a (x INTEGER) STRICT;\nINSERT INTO a VALUES (1);")
SECOND = Migration(
    2,
    "0002_second.sql",
    "CREATE TABLE b (x INTEGER) STRICT; -- with a trigger\n"
    "CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  INSERT INTO b VALUES (new.x);\n  SELECT 1;\nEND;\n"
    "INSERT INTO a VALUES (2);\n",
)


def up(path: Path, *steps: Migration) -> int:
    return migrate(path, prepare=register_functions, steps=steps)


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_the_migrations_are_numbered_without_gaps() -> None:
    assert [migration.version for migration in migrations()] == list(range(1, NEWEST + 1))


def test_every_table_is_strict(path: Path) -> None:
    migrate(path, prepare=register_functions)
    loose = query(path, "SELECT name FROM pragma_table_list WHERE type = 'table' AND NOT strict AND schema = 'main'")
    assert [name for (name,) in loose if not name.startswith(("sqlite_", "search"))] == []


def test_a_new_file_gets_the_newest_schema_without_a_copy(path: Path) -> None:
    assert up(path, FIRST, SECOND) == 2
    assert query(path, "SELECT x FROM b") == [(2,)]
    assert query(path, "PRAGMA user_version") == [(2,)]
    assert [file.name for file in path.parent.iterdir() if "before" in file.name] == []


def test_an_older_file_is_copied_and_then_brought_up_to_date(path: Path) -> None:
    up(path, FIRST)
    up(path, FIRST, SECOND)
    assert query(path, "SELECT x FROM a") == [(1,), (2,)]
    copy = path.with_name("ethos.db.before-2")
    assert query(copy, "SELECT x FROM a") == [(1,)]
    assert query(copy, "PRAGMA user_version") == [(1,)]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert up(copy, FIRST, SECOND) == 2, "the copy is a database like any other"


def test_a_step_that_fails_leaves_the_old_schema_and_its_rows(path: Path) -> None:
    up(path, FIRST)
    broken = Migration(2, "0002_broken.sql", "CREATE TABLE b (x);\nDELETE FROM a;\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(StoreUnavailable, match="no such table: nowhere"):
        up(path, FIRST, broken)
    assert query(path, "SELECT x FROM a") == [(1,)]
    assert query(path, "PRAGMA user_version") == [(1,)]
    assert up(path, FIRST, SECOND) == 2


def test_a_newer_schema_is_refused_with_both_versions_and_what_to_do(path: Path) -> None:
    up(path, FIRST, SECOND)
    with pytest.raises(SchemaTooNew, match=r"version 2.*up to 1\. Install.*ethos\.db\.before-2"):
        up(path, FIRST)
    assert query(path, "SELECT x FROM a") == [(1,), (2,)]


def test_many_openers_at_once_migrate_once(path: Path) -> None:
    up(path, FIRST)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: up(path, FIRST, SECOND), range(8))) == {2}
    assert query(path, "SELECT x FROM a") == [(1,), (2,)]


def test_many_processes_may_open_a_new_file_at_once(path: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from gateway.store.stores import open_store\n"
        "async def main(): await open_store(Path(sys.argv[1])).close()\n"
        "asyncio.run(main())"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, path], stderr=subprocess.PIPE) for _ in range(4)]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert query(path, "PRAGMA user_version") == [(NEWEST,)]


async def test_only_the_owner_may_read_the_files_whatever_they_were_before(path: Path) -> None:
    umask = os.umask(0)
    try:
        path.touch(mode=0o666)
        store = open_store(path)
        await store.inbox.add(said("a"), "t_a")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        await store.close()
    finally:
        os.umask(umask)
    assert modes == {"ethos.db": 0o600, "ethos.db-wal": 0o600, "ethos.db-shm": 0o600}


@pytest.mark.parametrize(
    "content", [b"hello, I am no database\n" * 100, b"\0" * 4096, b"SQLite format 3\0" + b"x" * 5000]
)
def test_a_file_that_is_no_database_is_left_as_it_is_and_the_way_out_is_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"ethos\.db is damaged, or not a database.*Move it away"):
        open_store(path)
    assert path.read_bytes() == content


async def test_a_database_whose_schema_is_damaged_is_refused(path: Path) -> None:
    await open_store(path).close()
    damaged = bytearray(path.read_bytes())
    damaged[100:4096] = b"\xff" * 3996
    path.write_bytes(damaged)
    with pytest.raises(StoreUnavailable, match="recover"):
        open_store(path)


async def test_a_damaged_page_is_found_by_the_check(path: Path) -> None:
    store = open_store(path)
    for i in range(200):
        await store.inbox.add(said(f"{i}", text="x" * 500), f"t_{i}")
    await store.close()
    damaged = bytearray(path.read_bytes())
    damaged[-3 * 4096 :] = b"\x05" * (3 * 4096)
    path.write_bytes(damaged)
    store = open_store(path)
    try:
        assert await store.problems() != []
    finally:
        await store.close()


def test_another_programs_database_is_not_touched(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE inbox (theirs)")
    connection.close()
    with pytest.raises(StoreUnavailable, match="another program"):
        open_store(path)
    assert query(path, "SELECT name FROM sqlite_master") == [("inbox",)]


def test_our_files_say_whose_they_are(path: Path) -> None:
    migrate(path, prepare=register_functions)
    assert query(path, "PRAGMA application_id") == [(APPLICATION_ID,)]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"missing/ethos\.db cannot be opened"):
        open_store(tmp_path / "missing" / "ethos.db")
