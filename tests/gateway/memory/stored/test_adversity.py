"""What happens to databases: failovers, restarts, other settings, documents of others that nobody can use."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator

import psycopg
import pytest
from redis.asyncio import Redis

from gateway.errors import MemoryUnavailable
from gateway.memory.stored.memory import StoredMemory
from gateway.memory.stored.postgres import PostgresDocuments
from gateway.memory.stored.redis import RedisDocuments
from gateway.testing.memory import add, scope
from tests.gateway.memory.stored.conftest import PATIENT_S
from tests.servers import postgres, redis
from tests.servers.silent_proxy import silent_proxy


@pytest.fixture
async def closing() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as stack:
        yield stack


def is_read_only(server: postgres.PostgresServer) -> bool:
    """Whether it has read its settings again; older connections learn it at the same time."""
    with psycopg.connect(server.url()) as connection:
        row = connection.execute("SHOW default_transaction_read_only").fetchone()
    return row == ("on",)


async def test_redis_after_a_failover_under_the_same_name(closing):
    with redis.redis_server() as first, redis.redis_server() as second:
        ports = [int(each.url.rpartition(":")[2].partition("/")[0]) for each in (first, second)]
        proxy = closing.enter_context(silent_proxy(ports[0]))
        async with Redis.from_url(f"redis://127.0.0.1:{proxy.port}/0") as client:
            memory = StoredMemory(RedisDocuments(client, prefix="p", shown_url="redis://x"))
            await memory.sync(scope("t"), [add("memory", "Tea.")])
            proxy.target = ports[1]
            async with Redis.from_url(first.url) as one, Redis.from_url(second.url) as two:
                await two.replicaof("127.0.0.1", str(ports[0]))
                while (await two.info("replication")).get("master_link_status") != "up":
                    await asyncio.sleep(0.02)
                await two.replicaof("NO", "ONE")
                await one.replicaof("127.0.0.1", str(ports[1]))
            with contextlib.suppress(MemoryUnavailable):
                await memory.sync(scope("t2"), [add("memory", "Milk.")])
            await memory.sync(scope("t2"), [add("memory", "Milk.")])
            assert (await memory.prefetch(scope("t3"))).project_memory == "Tea.\n\nMilk.\n"


@pytest.mark.slow
async def test_postgres_after_a_failover_under_the_same_name(closing):
    with (
        postgres.postgres_server("fsync=off") as first,
        postgres.standby_of(first) as second,
        silent_proxy(first.port) as proxy,
    ):
        documents = PostgresDocuments(dataclasses.replace(first, port=proxy.port).url(), shown_url="x")
        closing.push_async_callback(documents.close)
        await documents.open()
        memory = StoredMemory(documents)
        await memory.sync(scope("t"), [add("memory", "Tea.")])
        with psycopg.connect(second.url(), autocommit=True) as connection:
            for _ in range(200):
                try:
                    if connection.execute("SELECT count(*) FROM ethos_documents").fetchone()[0]:
                        break
                except psycopg.Error:
                    pass
                await asyncio.sleep(0.02)
            connection.execute("SELECT pg_promote()")
        proxy.target = second.port
        with psycopg.connect(first.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            connection.execute("SELECT pg_reload_conf()")
        async with asyncio.timeout(20):
            while not is_read_only(first):
                await asyncio.sleep(0.02)
        with contextlib.suppress(MemoryUnavailable):
            await memory.sync(scope("t2"), [add("memory", "Milk.")])
        await memory.sync(scope("t2"), [add("memory", "Milk.")])
        assert (await memory.prefetch(scope("t3"))).project_memory == "Tea.\n\nMilk.\n"


@pytest.mark.slow
async def test_postgres_is_found_again_soon_after_it_was_away_for_long(closing):
    with postgres.postgres_server("fsync=off") as server:
        documents = PostgresDocuments(server.url(), shown_url="x", timeout_s=0.5)
        closing.push_async_callback(documents.close)
        await documents.open()
        memory = StoredMemory(documents)
        await memory.sync(scope("t"), [add("memory", "Tea.")])
        server.process.stop()
        deadline = time.monotonic() + 18
        while time.monotonic() < deadline:
            with contextlib.suppress(MemoryUnavailable):
                await memory.prefetch(scope("t2"))
            await asyncio.sleep(0.3)
        server.process.start()
        began = time.monotonic()
        while True:
            with contextlib.suppress(MemoryUnavailable):
                await memory.prefetch(scope("t2"))
                break
        took = time.monotonic() - began
        assert took < 2


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_postgres_with_another_isolation_by_default(postgres_url, closing, level):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = postgres_url.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    documents = PostgresDocuments(postgres_url, shown_url="x", timeout_s=PATIENT_S)
    closing.push_async_callback(documents.close)
    await documents.open()
    memory = StoredMemory(documents)
    await memory.sync(scope("t"), [add("memory", "Tea.")])
    await asyncio.gather(*(memory.sync(scope(f"t{n}"), [add("memory", f"{n}")]) for n in range(30)))
    found = (await memory.prefetch(scope("x"))).project_memory
    assert sorted(found.split(), key=str) == sorted(["Tea.", *map(str, range(30))])


async def test_a_document_that_is_too_long_does_not_keep_anybody_from_being_erased(postgres_url, closing):
    documents = PostgresDocuments(postgres_url, shown_url="x", timeout_s=PATIENT_S, max_bytes=1000)
    closing.push_async_callback(documents.close)
    await documents.open()
    memory = StoredMemory(documents)
    await memory.sync(scope("t", user="u_1"), [add("user", "Ada.")])
    await memory.sync(scope("t2", user="u_2"), [add("user", "Ben.")])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE ethos_documents SET content = repeat('x', 2000)")
    await memory.erase(["u_1"], {})
    assert await memory.keys() == ["users/u_2/USER.md"]


class Slow:
    def __init__(self, store):
        self._store = store
        self.running = 0
        self.slow_key = ""

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def change(self, key, keys, work):
        if key != self.slow_key:
            raise MemoryUnavailable("no")
        self.running += 1
        try:
            await asyncio.sleep(0.05)
            return await self._store.change(key, keys, work)
        finally:
            self.running -= 1


async def test_a_sync_that_fails_has_ended(redis_documents):
    store = Slow(redis_documents)
    store.slow_key = "users/u_1/USER.md"
    with pytest.raises(MemoryUnavailable):
        await StoredMemory(store).sync(scope("t", user="u_1"), [add("user", "Ada."), add("memory", "Tea.")])
    assert store.running == 0


async def test_a_question_that_finds_all_connections_in_use_says_just_that(postgres_url, closing):
    documents = PostgresDocuments(postgres_url, shown_url="x", timeout_s=4, connections=1)
    closing.push_async_callback(documents.close)
    await documents.open()
    memory = StoredMemory(documents)
    await memory.sync(scope("t"), [add("memory", "Tea.")])
    with psycopg.connect(postgres_url) as connection:
        connection.execute("LOCK TABLE ethos_documents")
        asked = (memory.prefetch(scope("t2")), memory.prefetch(scope("t3")))
        refused = await asyncio.gather(*asked, return_exceptions=True)
    assert "x has no connection to spare" in [str(each) for each in refused if isinstance(each, MemoryUnavailable)]
