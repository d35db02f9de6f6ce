import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.memory.in_memory_journal import InMemoryJournal
from gateway.memory.journal import MemoryJournal
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.store import memory_journal
from gateway.store.database import Database
from gateway.store.memory_journal import SqliteMemoryJournal

SCHEMA = Path(memory_journal.__file__).parent / "migrations" / "0002_memory_journal.sql"


def prepare_database(path: Path) -> Path:
    """A database with the journal's table only."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA.read_text())
    return path


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(prepare_database(tmp_path / "journal.db"))
    yield database
    await database.close()


@pytest.fixture(params=["sqlite", "in-memory"])
def journal(request: pytest.FixtureRequest) -> MemoryJournal:
    if request.param == "in-memory":
        return InMemoryJournal()
    return SqliteMemoryJournal(request.getfixturevalue("database"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    root.mkdir(mode=0o700)
    return root


@pytest.fixture
async def markdown(root: Path, journal: MemoryJournal) -> AsyncIterator[Callable[..., MarkdownFileMemoryProvider]]:
    """Makes providers on one directory and one journal, and closes them."""
    made: list[MarkdownFileMemoryProvider] = []

    def make(**settings: object) -> MarkdownFileMemoryProvider:
        made.append(MarkdownFileMemoryProvider(root, journal, **settings))
        return made[-1]

    yield make
    for provider in made:
        await provider.close()
