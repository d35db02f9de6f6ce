"""A store of each engine, in a directory or a database of its own, closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.store.stores import Stores, open_postgres, open_store
from tests.conformance.stores import House


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ethos.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Stores]:
    opened = open_store(path)
    yield opened
    await opened.close()


@pytest.fixture
async def sqlite_house(path: Path) -> AsyncIterator[House]:
    made = House(lambda now_ms: open_store(path, now_ms=now_ms))
    yield made
    await made.store.close()


@pytest.fixture
async def postgres_house(postgres_url: str) -> AsyncIterator[House]:
    """Its server's clock shows what the house's shows."""

    def opened(now_ms: Callable[[], int]) -> Stores:
        return open_postgres(postgres_url, clock_ms=now_ms)

    made = House(opened)
    yield made
    await made.store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest) -> House:
    """A store of each engine with a clock that a test puts forward."""
    made: House = request.getfixturevalue(f"{request.param}_house")
    return made


@pytest.fixture(params=["sqlite", "postgres"])
async def stores(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Stores]:
    """All stores over an empty database of each engine."""
    is_server = request.param == "postgres"
    opened = open_postgres(request.getfixturevalue("postgres_url")) if is_server else open_store(path)
    yield opened
    await opened.close()
