"""Files in the gateway's database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.store.blobs import SqlBlobs
from gateway.store.engine import Engine
from gateway.store.stores import Stores, open_store
from tests.conformance.blobs import BlobSuite


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def pass_ms(self, time_ms: int) -> None:
        self.now_ms += time_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[Stores]:
    opened = open_store(path, now_ms=lambda: clock.now_ms)
    yield opened
    await opened.close()


class TestBlobs(BlobSuite):
    @pytest.fixture
    def engine(self, store: Stores) -> Engine:
        return store.engine

    @pytest.fixture
    def blobs(self, engine: Engine) -> SqlBlobs:
        return SqlBlobs(engine)

    @pytest.fixture
    def pass_ms(self, clock: Clock) -> Callable[[int], None]:
        return clock.pass_ms
