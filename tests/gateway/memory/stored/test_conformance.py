"""Documents in Redis and in PostgreSQL do what every memory must do."""

import pytest

from gateway.memory.stored.memory import StoredMemory
from gateway.testing.memory import (
    EditableMemorySuite,
    ErasableMemorySuite,
    HistoricMemorySuite,
    MemoryProviderSuite,
    UnionSuite,
)


class Suites(MemoryProviderSuite, EditableMemorySuite, HistoricMemorySuite, ErasableMemorySuite, UnionSuite):
    """All that a stored memory can."""


class TestRedis(Suites):
    @pytest.fixture
    def provider(self, redis_documents):
        return StoredMemory(redis_documents)


class TestPostgres(Suites):
    @pytest.fixture
    def provider(self, postgres_documents):
        return StoredMemory(postgres_documents)
