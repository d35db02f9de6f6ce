"""Whatever a release left is brought up to date and read back (reliability, row 17).

The newest schema counts as released: its data directory is made here. The program that is to follow is this one with a
step more.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import SchemaTooNew, StoreUnavailable
from gateway.files.locks import hold
from gateway.ops.backup.restoring import restore
from gateway.ops.backup.taking import take_backup
from gateway.store.notes import SqlNotes
from gateway.store.sqlite.schema import Migration, migrate, migrations
from gateway.store.sqlite.search import register_functions
from gateway.store.stores import open_store
from tests.fake_channel import FakeChannel
from tests.released import HERE, VERSIONS, lay_out, next_program

NEWEST = migrations()[-1].version
ROOT = Path(__file__).parents[3]
STEP = """
ALTER TABLE messages ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';
CREATE TABLE moods (mood TEXT PRIMARY KEY, messages INTEGER NOT NULL) STRICT;
INSERT INTO moods SELECT mood, count(*) FROM messages GROUP BY mood;
"""


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the newest schema, made as it is made for a release."""
    directory = tmp_path_factory.mktemp("released")
    command = [sys.executable, "-m", "tests.released", directory]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return directory / f"{NEWEST:04}"


@pytest.fixture(params=[*(f"{version:04}" for version in VERSIONS), "newest"])
def release(request: pytest.FixtureRequest, newest: Path) -> Path:
    return newest if request.param == "newest" else HERE / request.param


@pytest.fixture(scope="module")
def following(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of the program that is to follow."""
    return next_program(tmp_path_factory.mktemp("following"), STEP)


def ethos(environment: Mapping[str, str], home: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway.cli", *words]
    where = {**environment, "ETHOS_HOME": str(home), "COLUMNS": "1000"}
    return subprocess.run(command, cwd=home, env=where, capture_output=True, text=True, timeout=60, check=False)


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def tables(path: Path) -> list[str]:
    rows = query(path, "SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    return [
        str(name)
        for name, sql in rows
        if not str(name).startswith(("sqlite_", "search_")) and "VIRTUAL" not in str(sql)
    ]


def dumped(path: Path) -> dict[str, list[tuple[object, ...]]]:
    return {table: sorted(query(path, f"SELECT * FROM {table}"), key=repr) for table in tables(path)}  # noqa: S608 (ours)


def test_every_schema_that_another_followed_has_a_data_directory() -> None:
    """The release that brings a schema makes it by `python -m tests.released`."""
    assert set(range(1, NEWEST)) <= set(VERSIONS)


def test_every_table_of_a_release_has_rows(tmp_path: Path, release: Path) -> None:
    database = lay_out(release, tmp_path / "home")
    # Those of a copy have rows only while one is on its way, and no gateway uses the database then.
    assert [table for table, rows in dumped(database).items() if not rows] == ["copy_state", "copy_progress"]
    assert query(database, "PRAGMA user_version") == [(int(release.name),)]
    states = {state for (state,) in query(database, "SELECT state FROM inbox UNION SELECT state FROM outbox")}
    assert {"done", "parked", "sent", "sending", "dead"} <= states


def test_the_schema_of_a_release_is_what_its_steps_still_make(tmp_path: Path, release: Path) -> None:
    """A step that was released must never be edited; a new one is added."""
    database = lay_out(release, tmp_path / "home")
    migrate(tmp_path / "made", prepare=register_functions, steps=migrations()[: int(release.name)])
    shape = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
    assert query(database, shape) == query(tmp_path / "made", shape)


async def test_row_17_a_released_database_is_brought_up_to_date_and_read_back(tmp_path: Path, release: Path) -> None:
    database = lay_out(release, tmp_path / "home")
    before = dumped(database)
    store = open_store(database)
    try:
        sessions = await store.sessions.list_sessions()
        assert {"My name is Ada", "The analytical engine is ready"} <= {session.title for session in sessions}
        [hit] = await store.sessions.search_messages("analytical", user_id=None, limit=1)
        assert "[analytical]" in hit.snippet
        texts = [message.text for one in sessions for message in await store.sessions.messages(one.id)]
        assert "Grüße, 世界" in texts
        [dead] = await store.deliveries.rows("outbox", chosen="dead")
        assert (dead.text, dead.error) == ("This one does not arrive.", "blocked by the user")
        [parked] = await store.deliveries.rows("inbox")
        assert (parked.text, parked.state) == ("Are you there?", "parked")
        assert await SqlNotes(store.engine, "fake").get("read until") == "17"
        history = await store.journal.entries("personalities/assistant/MEMORY.md", 10)
        assert [entry.request.content for entry in history] == ["The engine is ready."]
        assert await store.problems() == []
    finally:
        await store.close()
    assert query(database, "PRAGMA user_version") == [(NEWEST,)]
    after = dumped(database)
    assert {table: len(rows) for table, rows in before.items()} == {table: len(after[table]) for table in before}


async def test_a_gateway_goes_on_where_a_released_one_ended(tmp_path: Path, release: Path) -> None:
    """What waited is answered, what was remembered is known, and nothing is remembered twice."""
    home = tmp_path / "home"
    lay_out(release, home)
    memory = home / "personalities" / "assistant" / "MEMORY.md"
    then = memory.read_bytes()
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        await channel.until(lambda: any(one.conversation.conversation == "c4" for one in channel.sent))
        message = channel.message("What do you know about me?", user="1", id="new", event_id="new")
        await channel.deliver(message)
        assert "Ada" in (await channel.answers_to(message))[0]
        stop.set()
        await running
    assert memory.read_bytes() == then


def test_a_step_that_fails_in_the_middle_leaves_the_database_and_the_copy(tmp_path: Path, release: Path) -> None:
    version = int(release.name)
    database = lay_out(release, tmp_path / "home")
    before = dumped(database)
    script = "ALTER TABLE inbox ADD COLUMN later TEXT;\nDELETE FROM messages;\nINSERT INTO nowhere VALUES (1);"
    broken = [*migrations()[:version], Migration(version + 1, "broken.sql", script)]
    with pytest.raises(StoreUnavailable, match="no such table: nowhere"):
        migrate(database, prepare=register_functions, steps=broken)
    copy = database.with_name(f"ethos.sqlite.before-{version + 1}")
    assert dumped(database) == dumped(copy) == before
    assert query(database, "PRAGMA user_version") == [(version,)]
    migrate(copy, prepare=register_functions)
    migrate(database, prepare=register_functions)
    assert query(database, "PRAGMA integrity_check") == query(copy, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.slow
async def test_row_17_the_next_program_takes_the_database_over_and_this_one_then_refuses_it(
    tmp_path: Path, newest: Path, following: Mapping[str, str]
) -> None:
    home = tmp_path / "home"
    database = lay_out(newest, home)
    before = dumped(database)
    told = ethos(following, home, "doctor").stdout
    assert f"has schema version {NEWEST}; this program works with {NEWEST + 1}" in told
    assert query(database, "PRAGMA user_version") == [(NEWEST,)], "doctor changes nothing"

    done = ethos(following, home, "sessions", "list")
    assert done.returncode == 0, done.stderr
    assert "My name is Ada" in done.stdout
    copy = database.with_name(f"ethos.sqlite.before-{NEWEST + 1}")
    assert dumped(copy) == before
    after = dumped(database)
    assert after["moods"] == [("calm", len(before["messages"]))]
    assert {table: len(rows) for table, rows in before.items()} == {table: len(after[table]) for table in before}

    refused = rf"version {NEWEST + 1}, this program knows versions up to {NEWEST}\. Install .* {re.escape(copy.name)}"
    with pytest.raises(SchemaTooNew, match=refused):
        async with Gateway(home, load_config(home=home).config, is_served=False):
            pass
    assert dumped(database) == after
    for end in ("-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)
    copy.replace(database)
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        assert len(await gateway.store.sessions.list_sessions()) == len(before["sessions"])


@pytest.mark.slow
def test_no_command_of_the_next_program_changes_the_database_under_a_running_gateway(
    tmp_path: Path, newest: Path, following: Mapping[str, str]
) -> None:
    home = tmp_path / "home"
    database = lay_out(newest, home)
    before = dumped(database)
    lock = hold(home / ".gateway.lock")
    try:
        refused = ethos(following, home, "sessions", "list")
        told = ethos(following, home, "doctor").stdout
    finally:
        lock.release()
    assert refused.returncode == 75
    assert "Stop it first" in refused.stderr
    assert "Start the gateway (again)" in told
    assert dumped(database) == before
    assert query(database, "PRAGMA user_version") == [(NEWEST,)]


async def test_a_backup_of_a_released_directory_is_restored_into_the_present_schema(
    tmp_path: Path, release: Path
) -> None:
    home = tmp_path / "home"
    lay_out(release, home)
    taken = await take_backup(home, tmp_path)
    assert taken.contents.schema_version == int(release.name)
    done = restore(taken.path, tmp_path / "other")
    assert done.schema_version == NEWEST
    assert query(tmp_path / "other" / "ethos.sqlite", "PRAGMA user_version") == [(NEWEST,)]


async def test_the_next_program_restores_a_backup_of_this_one_and_this_one_none_of_the_next(
    tmp_path: Path, newest: Path, following: Mapping[str, str]
) -> None:
    home, later = tmp_path / "home", tmp_path / "later"
    lay_out(newest, home)
    taken = await take_backup(home, tmp_path)
    later.mkdir()
    restored = ethos(following, later, "restore", taken.path)
    assert f"from schema version {NEWEST} to {NEWEST + 1}." in restored.stdout, restored.stderr
    assert dumped(later / "ethos.sqlite")["moods"]
    assert not list(later.glob("*.before-*")), "the backup is the copy"

    newer = tmp_path / "newer.tar.gz"
    assert ethos(following, later, "backup", newer).returncode == 0
    with pytest.raises(SchemaTooNew, match=f"version {NEWEST + 1}, this program knows versions up to {NEWEST}"):
        restore(newer, tmp_path / "other")
    assert not (tmp_path / "other" / "ethos.sqlite").exists()


def test_no_release_names_a_machine(release: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in release.rglob("*.sql"))
    assert not re.search(r"/(home|root|tmp|work)/", text)
