from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import psycopg
import pytest
from redis.asyncio import Redis

from gateway.memory.stored.postgres import PostgresDocuments
from gateway.memory.stored.redis import RedisDocuments
from tests.servers import postgres, redis

PATIENT_S = 30.0  # a busy machine may need seconds for a connection; a test of the limit chooses its own


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.RedisServer]:
    if redis.MISSING:
        pytest.skip(redis.MISSING)
    with redis.redis_server() as server:
        yield server


@pytest.fixture
async def redis_documents(redis_server: redis.RedisServer) -> AsyncIterator[RedisDocuments]:
    """Documents under a prefix of their own."""
    async with Redis.from_url(redis_server.url) as client:
        yield RedisDocuments(client, prefix=f"ethos-{uuid4().hex[:8]}", shown_url=redis_server.url)


@pytest.fixture
def postgres_url(postgres_server: postgres.PostgresServer) -> str:
    """A database of its own."""
    name = f"t{uuid4().hex[:12]}"
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres_server.url(name)


@pytest.fixture
async def postgres_documents(postgres_url: str) -> AsyncIterator[PostgresDocuments]:
    documents = PostgresDocuments(postgres_url, shown_url=postgres_url, timeout_s=PATIENT_S)
    await documents.open()
    yield documents
    await documents.close()
