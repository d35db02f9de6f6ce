"""A store of each engine, empty and of today's schema, whose clock a test can put forward."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.store.stores import Stores, open_postgres, open_store
from tests.conformance.stores import House


@pytest.fixture
async def sqlite_house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(lambda now_ms: open_store(tmp_path / "ethos.db", now_ms=now_ms))
    yield made
    await made.store.close()


@pytest.fixture
async def postgres_house(postgres_url: str) -> AsyncIterator[House]:
    def opened(now_ms: Callable[[], int]) -> Stores:
        return open_postgres(postgres_url, clock_ms=now_ms)

    made = House(opened)
    yield made
    await made.store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest) -> House:
    made: House = request.getfixturevalue(f"{request.param}_house")
    return made
