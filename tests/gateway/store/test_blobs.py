"""Files in the gateway's database, on both engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.store.blobs import SqlBlobs
from gateway.store.engine import Engine
from tests.conformance.blobs import BlobSuite
from tests.conformance.stores import House


class TestBlobs(BlobSuite):
    @pytest.fixture
    def engine(self, house: House) -> Engine:
        return house.store.engine

    @pytest.fixture
    def blobs(self, engine: Engine) -> SqlBlobs:
        return SqlBlobs(engine)

    @pytest.fixture
    def pass_ms(self, house: House) -> Callable[[int], None]:
        return lambda time_ms: house.wait(time_ms / 1000)
