"""Many processes, kills, and a person at the database's own client: nothing is lost and nothing doubled."""

from uuid import uuid4

import psycopg
from redis.asyncio import Redis

from gateway.testing.hammer import hammer

FACTORY = "tests.gateway.memory.stored.making:provider"
DOCUMENT = "personalities/shared/MEMORY.md"
APPEND = "redis.call('HSET', KEYS[1], 'content', (redis.call('HGET', KEYS[1], 'content') or '') .. ARGV[1])"


async def test_redis(redis_server):
    prefix = f"ethos-{uuid4().hex[:8]}"
    async with Redis.from_url(redis_server.url) as client:

        async def edit(line: str) -> None:
            await client.eval(APPEND, 1, f"{{{prefix}}}:doc:{DOCUMENT}", f"\n{line}\n")

        arguments = {"kind": "redis", "url": redis_server.url, "prefix": prefix}
        report = await hammer(FACTORY, arguments, updates=1_000, edit=edit)
    assert report.is_clean, report
    assert report.edits
    print(report)


async def test_postgres(postgres_url):
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:

        async def edit(line: str) -> None:
            sql = "UPDATE ethos_documents SET content = content || %s WHERE key = %s"
            while not (await connection.execute(sql, (f"\n{line}\n", DOCUMENT))).rowcount:
                pass

        report = await hammer(FACTORY, {"kind": "postgres", "url": postgres_url}, updates=1_000, edit=edit)
    assert report.is_clean, report
    assert report.edits
    print(report)
