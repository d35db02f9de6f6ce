"""Documents in Redis and in PostgreSQL do what every memory must do."""

import pytest

from gateway.memory.stored.memory import StoredMemory
from tests.conformance.memory import MemoryConformance


class TestRedis(MemoryConformance):
    @pytest.fixture
    def provider(self, redis_documents):
        return StoredMemory(redis_documents)


class TestPostgres(MemoryConformance):
    @pytest.fixture
    def provider(self, postgres_documents):
        return StoredMemory(postgres_documents)
