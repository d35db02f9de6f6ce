"""The gateway's database for tests: the real one, a copy of an empty one that is made once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.schema import migrate
from gateway.store.sqlite.search import register_functions

_made: list[bytes] = []


def empty_database(path: Path) -> Path:
    """Put an empty database of today's schema there. The first is made, the others are copies of it."""
    if _made:
        path.touch(mode=0o600)
        path.write_bytes(_made[0])
    else:
        migrate(path, prepare=register_functions)
        _made.append(path.read_bytes())
    return path


@asynccontextmanager
async def opened_database(path: Path) -> AsyncIterator[SqliteEngine]:
    """An empty database, closed at the end of the block."""
    database = SqliteEngine(empty_database(path), prepare=register_functions)
    try:
        yield database
    finally:
        await database.close()


def make_tables(url: str) -> None:
    """Today's schema in an empty database of a server, for `tests.servers.postgres.fresh_database`."""
    from gateway.store.postgres.schema import upgrade

    upgrade(url)
