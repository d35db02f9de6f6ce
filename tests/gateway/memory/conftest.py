from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.memory.in_memory_journal import InMemoryJournal
from gateway.memory.journal import MemoryJournal
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.store.database import Database
from gateway.store.memory_journal import SqliteMemoryJournal
from gateway.store.schema import migrate
from gateway.store.search_index import register_functions


def prepare_database(path: Path) -> Path:
    """A database of today's schema."""
    migrate(path, prepare=register_functions)
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
