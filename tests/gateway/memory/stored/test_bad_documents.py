"""What is in a database and is not as we left it: one clear error, and no update is lost or doubled."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from redis.asyncio import Redis

from gateway.errors import MemoryUnavailable
from gateway.memory.kinds import postgres as postgres_kind
from gateway.memory.kinds import redis as redis_kind
from gateway.memory.stored.memory import StoredMemory
from gateway.protocols import MemoryScope, MemoryServices, MemoryUpdate
from tests.servers import postgres

MAX_BYTES = 1 << 19
LONG = 50 * 1024 * 1024
DOCUMENT = "personalities/assistant/MEMORY.md"
HISTORY = f"log:{DOCUMENT}"


def scope(turn: str) -> MemoryScope:
    return MemoryScope(personality_id="assistant", user_id="u_1", session_id="s", turn_id=turn)


NOTE = (scope("t1"), [MemoryUpdate.add("memory", "Tea at four.")])


@contextlib.asynccontextmanager
async def opened(module, max_bytes: int = MAX_BYTES, **settings: object) -> AsyncIterator[StoredMemory]:
    services = MemoryServices(state_dir=Path("unused"), max_document_bytes=max_bytes)
    memory = module.provider(module.Config(**settings), services)
    await memory.open()
    try:
        yield memory
    finally:
        await memory.close()


async def refused(memory: StoredMemory, *words: str) -> None:
    """The update is not taken, with these words, and not a part of it is there."""
    with pytest.raises(MemoryUnavailable) as caught:
        await memory.sync(*NOTE)
    for word in words:
        assert word in str(caught.value)


async def taken_once(memory: StoredMemory, before: str = "") -> None:
    """What was refused is taken now, and asking for it again changes nothing."""
    assert (await memory.sync(*NOTE)).outcomes == ("applied",)
    assert (await memory.sync(*NOTE)).outcomes == ("replayed",)
    context = await memory.prefetch(scope("t2"))
    assert context is not None
    assert context.project_memory == f"{before}Tea at four.\n"
    assert len(await memory.log(scope("t2"))) == 1 + bool(before)


# ---- Redis ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def prefix() -> str:
    return f"ethos-{uuid4().hex[:8]}"


@pytest.fixture
async def client(redis_server) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_server.url) as client:
        yield client


@pytest.mark.parametrize("kind", [f"doc:{DOCUMENT}", f"done:{DOCUMENT}", HISTORY, "changes", "documents", "ids"])
async def test_a_key_of_another_type_in_redis(redis_server, client, prefix, kind):
    name = f"{{{prefix}}}:{kind}"
    await (client.lpush(name, "else") if kind != "ids" else client.sadd(name, "else"))
    async with opened(redis_kind, url=redis_server.url, prefix=prefix) as memory:
        await refused(memory, f"the key {name} is of another type; remove it, or set another `prefix`")
        await client.delete(name)
        await taken_once(memory)


async def test_a_hash_that_is_no_document(redis_server, client, prefix):
    name = f"{{{prefix}}}:doc:{DOCUMENT}"
    await client.hset(name, mapping={"position": "first", "content": "x"})
    async with opened(redis_kind, url=redis_server.url, prefix=prefix) as memory:
        await refused(memory, f"{name} holds no document of ours; remove it, or set another `prefix`")
        await client.delete(name)
        await taken_once(memory)


@pytest.mark.parametrize("gone", [("ids",), ("ids", "changes")])
async def test_counters_of_redis_that_somebody_removed(redis_server, client, prefix, gone):
    async with opened(redis_kind, url=redis_server.url, prefix=prefix) as memory:
        for number in range(3):
            await memory.sync(scope(f"before-{number}"), [MemoryUpdate.add("memory", f"Line {number}.")])
        await client.delete(*(f"{{{prefix}}}:{name}" for name in gone))
        await memory.sync(*NOTE)
        assert (await memory.sync(*NOTE)).outcomes == ("replayed",)
        context = await memory.prefetch(scope("t2"))
        assert context is not None
        assert str(context.project_memory).count("Tea at four.") == 1
        newest = (await memory.log(scope("t2")))[0]
        assert newest.content == "Tea at four."
        assert newest.id == 4


async def test_a_document_of_50_megabytes_in_redis(redis_server, client, prefix):
    name = f"{{{prefix}}}:doc:{DOCUMENT}"
    await client.hset(name, "content", b"x" * LONG)
    async with opened(redis_kind, url=redis_server.url, prefix=prefix, timeout_s=10) as memory:
        words = (name, "has 52,428,800 bytes and may have 2,097,152, so it is left as it is; shorten it")
        await refused(memory, *words)
        with pytest.raises(MemoryUnavailable, match="shorten it"):
            await memory.prefetch(scope("t0"))
        assert await client.hstrlen(name, "content") == LONG
        await client.hset(name, "content", b"By hand.\n")
        await taken_once(memory, "By hand.\n\n")


# ---- PostgreSQL -----------------------------------------------------------------------------------------------------


async def test_tables_of_another_shape(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE ethos_documents (key text, body text)")
        async with opened(postgres_kind, url=postgres_url) as memory:
            await refused(memory, "there are tables of these names with other columns; rename them")
            connection.execute("ALTER TABLE ethos_documents RENAME TO theirs")
            connection.execute("DROP TABLE IF EXISTS ethos_document_history")
    async with opened(postgres_kind, url=postgres_url) as memory:
        await taken_once(memory)


async def test_a_column_of_somebody_else_that_must_not_be_empty(postgres_url):
    async with opened(postgres_kind, url=postgres_url) as memory:
        assert await memory.prefetch(scope("t0")) is None
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("ALTER TABLE ethos_documents ADD COLUMN owner text NOT NULL")
            await refused(memory, "there are tables of these names with other columns")
            connection.execute("ALTER TABLE ethos_documents DROP COLUMN owner")
        await taken_once(memory)


async def test_a_document_of_50_megabytes_in_postgres(postgres_url):
    put = (
        "INSERT INTO ethos_documents (key, content, sha256, position, modified_at) VALUES (%s, %s, '', 0, now()) "
        "ON CONFLICT (key) DO UPDATE SET content = excluded.content"
    )
    async with opened(postgres_kind, url=postgres_url) as memory:
        assert await memory.prefetch(scope("t0")) is None
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(put, (DOCUMENT, "x" * LONG))
            await refused(memory, DOCUMENT, "has 52,428,800 bytes and may have 2,097,152", "shorten it")
            with pytest.raises(MemoryUnavailable, match="shorten it"):
                await memory.prefetch(scope("t0"))
            connection.execute(put, (DOCUMENT, "By hand.\n"))
        await taken_once(memory, "By hand.\n\n")


@pytest.mark.slow
async def test_a_disk_of_postgres_without_room():
    if postgres.MISSING:
        pytest.skip(postgres.MISSING)
    longest = 2 << 20
    update = [MemoryUpdate.add("memory", os.urandom(3 << 20).hex())]
    with postgres.postgres_server("fsync=off", max_file_bytes=longest) as server:
        async with opened(postgres_kind, max_bytes=8 << 20, url=server.url(), timeout_s=20) as memory:
            assert await memory.prefetch(scope("t0")) is None
            with pytest.raises(MemoryUnavailable, match="it has no room left; make room on its disk"):
                await memory.sync(scope("t1"), update)
            assert await memory.prefetch(scope("t0")) is None
            assert await memory.log(scope("t0")) == []
            server.process.stop()
            server.process.start(without=postgres.limit(longest))
            for _ in range(5):  # the connections from before are gone, and each says so once
                with contextlib.suppress(MemoryUnavailable):
                    await memory.sync(scope("t1"), update)
            assert (await memory.sync(scope("t1"), update)).outcomes == ("replayed",)
            assert len(await memory.log(scope("t0"))) == 1
