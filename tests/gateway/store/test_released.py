"""Whatever an earlier release left is brought up to date and read back (reliability, row 17)."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import SchemaTooNew, StoreUnavailable
from gateway.ops.backup.restoring import restore
from gateway.ops.backup.taking import take_backup
from gateway.store.notes import SqliteNotes
from gateway.store.schema import Migration, migrate, migrations
from gateway.store.search_index import register_functions
from gateway.store.sqlite import open_store
from tests.fake_channel import FakeChannel
from tests.released import HERE, VERSIONS, lay_out

NEWEST = migrations()[-1].version
each_release = pytest.mark.parametrize("version", VERSIONS)


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
    every = "SELECT * FROM {} ORDER BY 1, 2"
    return {table: query(path, every.format(table)) for table in tables(path)}


def test_every_schema_has_a_data_directory() -> None:
    """One that is new gets it by `python -m tests.released`."""
    assert [step.version for step in migrations()] == VERSIONS


@each_release
def test_every_table_of_a_release_has_rows(tmp_path: Path, version: int) -> None:
    database = lay_out(version, tmp_path / "home")
    assert [table for table, rows in dumped(database).items() if not rows] == []
    assert query(database, "PRAGMA user_version") == [(version,)]
    states = {state for (state,) in query(database, "SELECT state FROM inbox UNION SELECT state FROM outbox")}
    assert {"done", "parked", "sent", "sending", "dead"} <= states


@each_release
def test_the_schema_of_a_release_is_what_its_steps_still_make(tmp_path: Path, version: int) -> None:
    """A step that was released must never be edited; a new one is added."""
    database = lay_out(version, tmp_path / "home")
    migrate(tmp_path / "made", prepare=register_functions, steps=migrations()[:version])
    shape = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
    assert query(database, shape) == query(tmp_path / "made", shape)


@each_release
async def test_row_17_a_released_database_is_brought_up_to_date_and_read_back(tmp_path: Path, version: int) -> None:
    database = lay_out(version, tmp_path / "home")
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
        note = await SqliteNotes(store.database, "fake").get("read until")
        assert note == ("17" if version >= 3 else None)
        history = await store.journal.entries("personalities/assistant/MEMORY.md", 10)
        assert [entry.ask.content for entry in history] == (["The engine is ready."] if version >= 2 else [])
        assert await store.problems() == []
    finally:
        await store.close()
    assert query(database, "PRAGMA user_version") == [(NEWEST,)]
    after = dumped(database)
    assert {table: len(rows) for table, rows in before.items()} == {table: len(after[table]) for table in before}
    if version < NEWEST:
        copy = database.with_name(f"ethos.sqlite.before-{NEWEST}")
        assert dumped(copy) == before


@each_release
async def test_a_gateway_goes_on_where_a_released_one_ended(tmp_path: Path, version: int) -> None:
    """What waited is answered, what was remembered is known, and nothing is remembered twice."""
    home = tmp_path / "home"
    lay_out(version, home)
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


@each_release
def test_a_step_that_fails_in_the_middle_leaves_the_database_and_the_copy(tmp_path: Path, version: int) -> None:
    database = lay_out(version, tmp_path / "home")
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


@each_release
async def test_a_newer_database_is_refused_and_left_as_it_is(tmp_path: Path, version: int) -> None:
    home = tmp_path / "home"
    database = lay_out(version, home)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"PRAGMA user_version = {NEWEST + 1}")
    before = dumped(database)
    with pytest.raises(
        SchemaTooNew, match=rf"version {NEWEST + 1}, this program knows versions up to {NEWEST}\. Install"
    ):
        async with Gateway(home, load_config(home=home).config, is_served=False):
            pass
    assert dumped(database) == before
    assert query(database, "PRAGMA user_version") == [(NEWEST + 1,)]


@each_release
async def test_a_backup_of_a_released_directory_is_restored_into_the_present_schema(
    tmp_path: Path, version: int
) -> None:
    home = tmp_path / "home"
    lay_out(version, home)
    taken = await take_backup(home, tmp_path)
    assert taken.contents.schema_version == version
    done = restore(taken.path, tmp_path / "other")
    assert done.schema_version == NEWEST
    assert query(tmp_path / "other" / "ethos.sqlite", "PRAGMA user_version") == [(NEWEST,)]


def test_no_release_names_a_machine() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in HERE.rglob("*.sql"))
    assert not re.search(r"/(home|root|tmp|work)/", text)
