from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.memory.journal import MemoryJournal
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.store.documents import SqlDocuments
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.sqlite.engine import SqliteEngine
from tests.stores import opened_database


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with opened_database(tmp_path / "journal.db") as database:
        yield database


@pytest.fixture
def journal(database: SqliteEngine) -> MemoryJournal:
    return SqlMemoryJournal(database)


@pytest.fixture
def documents(database: SqliteEngine) -> SqlDocuments:
    return SqlDocuments(database, place="journal.db")


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
