"""Whatever is wrong with a Redis is said in one line that says what to do, and never shows the password."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gateway.memory.kinds import redis as kind
from gateway.memory.stored.redis import _problems
from gateway.protocols import MemoryServices
from tests.servers import free_port, redis, stubs

SECRET = "canary-of-redis"
pytestmark = pytest.mark.skipif(redis.MISSING is not None, reason=str(redis.MISSING))


async def check(url: str, **settings: object) -> list[str]:
    config = kind.Config(url=url, **{"timeout_s": 20, **settings})
    memory = kind.provider(config, MemoryServices(state_dir=Path("unused"), max_document_bytes=1 << 19))
    try:
        found = [*await memory.check()]
    finally:
        await memory.close()
    assert SECRET not in "".join(found)
    return found


async def only(url: str, **settings: object) -> str:
    [line] = await check(url, **settings)
    return line


async def test_a_good_server_has_nothing_to_say(redis_server):
    assert await check(redis_server.url) == []


async def test_a_server_that_is_away():
    line = await only(f"redis://:{SECRET}@127.0.0.1:{free_port()}/0")
    assert "Connection refused" in line or "Connect call failed" in line
    assert "look at `url`, and whether the server runs" in line


async def test_a_wrong_password_and_none(redis_server):
    with redis.redis_server("--requirepass", "right") as server:
        for url in (server.url, server.url.replace("redis://", f"redis://:{SECRET}@")):
            assert "it refuses the user name or the password; correct them in `url`" in await only(url)
        assert await check(server.url.replace("redis://", "redis://:right@")) == []


async def test_eviction_and_no_persistence():
    with redis.redis_server("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "no") as server:
        eviction, persistence = await check(server.url)
    assert "set `maxmemory-policy noeviction`" in eviction
    assert "set `appendonly yes`" in persistence


async def test_a_read_only_copy(redis_server):
    port = redis_server.url.rpartition(":")[2].partition("/")[0]
    with redis.redis_server("--replicaof", "127.0.0.1", port) as replica:
        assert "it is a read-only copy; give the address of the primary" in await only(replica.url)


async def test_no_memory_left():
    with redis.redis_server("--maxmemory", "1") as server:
        assert "it has no memory left; raise `maxmemory`" in await only(server.url)


async def test_no_disk():
    with redis.redis_server("--appendonly", "no", "--save", "1 1") as server:
        (server.root / "dump.rdb").mkdir()  # no file can be put in its place
        async with Redis.from_url(server.url) as client:
            await client.set("one", "change")
            await client.bgsave()
            async with asyncio.timeout(20):
                while (await client.info("persistence"))["rdb_last_bgsave_status"] == "ok":
                    await asyncio.sleep(0.05)
        assert "it cannot write to its disk; make room there, and look into its log" in await only(server.url)


async def test_a_user_without_rights(redis_server):
    async with Redis.from_url(redis_server.url) as client:
        name = f"u{uuid4().hex[:8]}"
        await client.execute_command("ACL", "SETUSER", name, "on", ">rights", "~other:*", "+@all")
    url = redis_server.url.replace("redis://", f"redis://{name}:rights@")
    assert "this user may not do all that is needed" in await only(url)


async def test_an_old_server_that_repeats_the_password():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(65_536):  # as Redis 5 does
            words = b", ".join(b"`%s`" % word for word in said.split(b"\r\n")[4::2] if word)
            writer.write(b"-ERR unknown command `HELLO`, with args beginning with: %s, \r\n" % words)

    async with stubs.speaking(answer) as port:
        assert "use Redis 6.2 or newer, or Valkey" in await only(f"redis://:{SECRET}@127.0.0.1:{port}/0")


@pytest.mark.parametrize("version", ["6.0.16", "5.0.14", "0"])
def test_an_old_version(version):
    [line] = _problems({"redis_version": version, "aof_enabled": 1})
    assert line == f"is Redis {version}, which is too old; use 6.2 or newer"


@pytest.mark.parametrize("version", ["6.2.0", "7.2.4", "255.255.255"])
def test_a_version_that_is_new_enough(version):
    assert [*_problems({"redis_version": version, "aof_enabled": 1})] == []


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_a_web_server(scheme):
    async with stubs.speaking(stubs.web_page) as port:
        line = await only(f"{scheme}://:{SECRET}@127.0.0.1:{port}/0")
    wanted = "what answers there is no Redis" if scheme == "redis" else "it speaks no TLS there; look at the port"
    assert wanted in line


async def test_a_server_that_says_nothing():
    async with stubs.speaking(stubs.silence) as port:
        assert "it does not answer in time" in await only(f"redis://127.0.0.1:{port}/0", timeout_s=0.2)


async def test_a_certificate_that_is_not_trusted_and_the_same_named():
    with redis.redis_server(has_tls=True) as server:
        assert "its certificate is not trusted; name its authority's in `ca_file`" in await only(server.url)
        assert await check(server.url, ca_file=server.ca_file) == []
        assert "look at `url`" in await only(server.url.replace("rediss://", "redis://"))
