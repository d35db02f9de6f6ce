"""An SQLite store in a directory of its own, closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.stores import Stores, open_store
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
