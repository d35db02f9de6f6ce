"""A person in a memory on a server: no key and no row tells of them afterwards, and others lose nothing for it."""

from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest
from redis.asyncio import Redis

from gateway.memory.stored.memory import StoredMemory
from gateway.protocols import MemoryUpdate
from gateway.testing.memory import scope, text_of
from tests.memories import memory

add = MemoryUpdate.add
MEMORY = "personalities/assistant/MEMORY.md"
Kept = tuple[StoredMemory, Callable[[], Awaitable[str]]]


async def all_of_redis(client: Redis) -> str:
    """Every key with what it holds."""
    readers = {b"hash": client.hgetall, b"stream": client.xrange, b"set": client.smembers, b"string": client.get}
    found = []
    for key in await client.keys():
        kind = await client.type(key)
        read = client.zrange(key, 0, -1) if kind == b"zset" else readers[kind](key)
        found.append((key, await read))
    return str(found)


@pytest.fixture
async def on_redis(redis_server, redis_documents) -> AsyncIterator[Kept]:
    async with Redis.from_url(redis_server.url) as client:
        await client.flushdb()
        yield StoredMemory(redis_documents), lambda: all_of_redis(client)


@pytest.fixture
async def on_postgres(postgres_url, postgres_documents) -> Kept:
    async def everything() -> str:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            documents = await (await connection.execute("SELECT * FROM ethos_documents")).fetchall()
            history = await (await connection.execute("SELECT * FROM ethos_document_history")).fetchall()
        return f"{documents} {history}"

    return StoredMemory(postgres_documents), everything


@pytest.fixture
async def on_traces(tmp_path) -> AsyncIterator[Kept]:
    async def everything() -> str:
        return "".join(path.read_bytes().decode("latin-1") for path in tmp_path.rglob("traces.sqlite*"))

    async with memory("traces", tmp_path / "home") as made:
        yield made, everything


@pytest.fixture(params=["on_redis", "on_postgres", "on_traces"])
def kept(request: pytest.FixtureRequest) -> Kept:
    """A memory, and all that its server has."""
    found: Kept = request.getfixturevalue(request.param)
    return found


async def test_no_key_and_no_row_tells_of_who_is_erased(kept: Kept) -> None:
    made, everything = kept
    await made.sync(scope("turn-of-ada"), [add("user", "kanarie 1"), add("memory", "kanarie 2")])
    await made.sync(scope("turn-of-ben", user="u_2"), [add("memory", "Ben's own")])
    await made.erase(["u_1"], {MEMORY: ["kanarie 2"]})
    left = await everything()
    assert [word for word in ("kanarie", "u_1", "turn-of-ada") if word in left] == []
    assert "turn-of-ben" in left


async def test_a_foreign_name_among_the_documents_holds_up_no_erasure(redis_server, redis_documents) -> None:
    made = StoredMemory(redis_documents)
    async with Redis.from_url(redis_server.url) as client:
        await client.flushdb()
        await made.sync(scope("t1"), [add("user", "Ada")])
        (documents,) = await client.keys("*:documents")
        await client.sadd(documents, b"users/u_1/\xff", b"../../etc/passwd")
        await made.erase(["u_1"], {})
    assert await made.export(["u_1"]) == {}


async def test_after_a_link_was_undone_the_words_of_one_are_not_in_the_history_of_the_other(kept: Kept) -> None:
    made, everything = kept
    await made.sync(scope("t1"), [add("user", "Ada")])
    await made.sync(scope("t2", user="u_2"), [add("user", "kanarie")])
    await made.sync(scope("t3", user="u_2", place="per-user"), [add("memory", "kanarie too")])
    await made.unite("link1", "u_1", "u_2")
    await made.sync(scope("t4"), [add("user", "Since")])
    await made.part("link1", "u_1", "u_2", ["u_1"])
    await made.erase(["u_2"], {})
    left = await everything()
    assert [word for word in ("kanarie", "u_2") if word in left] == []
    assert await text_of(made, "user") == "Ada\n\nSince\n"


async def test_what_others_wrote_elsewhere_can_still_be_undone(kept: Kept) -> None:
    made, _ = kept
    await made.sync(scope("t1"), [add("user", "Ada"), add("memory", "Ada's own")])
    await made.sync(scope("t2", user="u_2"), [add("user", "Ben")])
    await made.sync(scope("t3", user="u_2"), [add("user", "Wrong")])
    await made.erase(["u_1"], {MEMORY: ["Ada's own"]})
    newest, *_ = await made.log(scope("look", user="u_2"), "user")
    await made.undo(scope("t4", user="u_2"), newest.id)
    assert await text_of(made, "user", user="u_2") == "Ben\n"
    assert newest.content == "Wrong"
