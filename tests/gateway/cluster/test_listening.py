"""A worker hears the others over a real server, and notices when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from gateway.cluster.news import SharedNews
from gateway.errors import StoreUnavailable
from gateway.store.postgres.listening import PostgresListening
from gateway.store.stores import open_postgres
from tests.servers import pgbouncer as bouncers
from tests.servers import postgres
from tests.servers.postgres import PostgresServer
from tests.servers.silent_proxy import SilentProxy, silent_proxy

PATIENCE_S = 30.0
PING_S = 1.0


@contextlib.asynccontextmanager
async def listening(url: str, ping_s: float = PING_S) -> AsyncIterator[tuple[PostgresListening, asyncio.Queue[str]]]:
    bus, heard = PostgresListening(url, ping_s=ping_s), asyncio.Queue[str]()
    await bus.open()
    task = asyncio.create_task(bus.run(heard.put_nowait))
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield bus, heard
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[SilentProxy]:
    with silent_proxy(postgres_server.port) as made:
        yield made


def through(proxy: SilentProxy, server: PostgresServer) -> str:
    return dataclasses.replace(server, port=proxy.port).url()


async def heard_again(sender: PostgresListening, heard: asyncio.Queue[str], text: str) -> None:
    """Send until it is heard: what is sent while nobody listens is lost."""
    while True:
        await sender.send([text])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                while await heard.get() != text:
                    pass
                return


async def test_what_one_sends_all_hear_in_order_and_within_milliseconds(postgres_server) -> None:
    url = postgres_server.url()
    async with listening(url) as (one, own), listening(url) as (two, heard):
        texts = [f"text {number} 🙂" for number in range(100)]
        await one.send(texts)
        assert [await heard.get() for _ in texts] == texts
        assert [await own.get() for _ in texts] == texts
        began_s = time.monotonic()
        await two.send(["back"])
        assert await own.get() == "back"
        assert time.monotonic() - began_s < 1.0
        assert one.is_heard


async def test_a_ping_is_asked_by_the_engine_with_whatever_else_it_is_asked_then(
    postgres_server, postgres_url, proxy
) -> None:
    database = postgres_url.rpartition("/")[2]
    store = open_postgres(dataclasses.replace(postgres_server, port=proxy.port).url(database))
    bus = PostgresListening(postgres_url, engine=store.engine)
    async with asyncio.timeout(PATIENCE_S):
        await store.engine.row("SELECT 1")
        before = proxy.round_trips
        await bus.open()
        assert (proxy.round_trips - before, bus.is_heard) == (1, True)
        await bus.close()
        await store.close()


async def test_pings_are_no_news(postgres_server) -> None:
    async with listening(postgres_server.url(), ping_s=0.1) as (one, heard):
        await asyncio.sleep(0.5)
        await one.send(["news"])
        assert await heard.get() == "news"
        assert one.is_heard


async def test_nothing_is_sent_inside_of_a_transaction(postgres_server) -> None:
    """Two connections and no more: neither is ever left in a transaction."""
    async with listening(postgres_server.url()) as (one, _heard):
        await one.send(["a", "b"])
        with psycopg.connect(postgres_server.url(), autocommit=True) as looking:
            rows = looking.execute(
                "SELECT state, xact_start FROM pg_stat_activity WHERE application_name = 'ethos news'"
            ).fetchall()
        assert rows == [("idle", None)] * 2


async def test_it_listens_again_after_a_restart_of_the_server() -> None:
    with postgres.postgres_server() as server:
        async with listening(server.url()) as (one, heard):
            await asyncio.to_thread(server.restart)
            await heard_again(one, heard, "after")
            while not one.is_heard:
                await asyncio.sleep(0.01)


async def test_after_a_cut_nothing_that_is_sent_is_lost_the_ping_of_the_new_listener_neither(
    proxy, postgres_server
) -> None:
    """The connection that sends has nothing to say meanwhile, so it learns of its end only when it does."""
    url = postgres_server.url()
    async with listening(through(proxy, postgres_server), 2 * PATIENCE_S) as (one, _), listening(url) as (_, heard):
        proxy.cut()
        await one.send(["first"])
        while await heard.get() != "first":
            pass
        while not one.is_heard:
            await asyncio.sleep(0.01)
        proxy.cut()
        while one.is_heard:
            await asyncio.sleep(0.01)
        while not one.is_heard:
            await asyncio.sleep(0.01)
        assert one.gaps == 2


@pytest.mark.slow
@pytest.mark.parametrize("is_deaf", [False, True])
async def test_a_silent_network_is_noticed_by_a_ping_that_does_not_come_back(proxy, postgres_server, is_deaf) -> None:
    """Nothing else would show it: a listener has nothing to send."""
    async with listening(through(proxy, postgres_server)) as (one, heard), listening(postgres_server.url()) as (two, _):
        await heard_again(two, heard, "before")
        proxy.go_silent(is_deaf=is_deaf)
        began_s = time.monotonic()
        while one.is_heard:
            await asyncio.sleep(0.02)
        assert time.monotonic() - began_s < 2 * PING_S + 0.5
        await one.send(["lost, and nobody waits for it longer than a moment"])
        proxy.go_on()
        await heard_again(two, heard, "after")


async def test_what_is_sent_while_the_server_refuses_is_dropped(proxy, postgres_server) -> None:
    async with listening(through(proxy, postgres_server)) as (one, _heard):
        proxy.refuse()
        proxy.cut()
        async with asyncio.timeout(3):
            await one.send(["lost"])
        proxy.go_on()


@pytest.mark.skipif(bouncers.MISSING is not None, reason=bouncers.MISSING or "")
async def test_a_pooler_in_the_way_is_refused_with_what_to_do(postgres_server) -> None:
    with bouncers.pgbouncer(postgres_server, pool_size=2) as pooler:
        bus = PostgresListening(pooler.url(), patience_s=1.0)
        with pytest.raises(StoreUnavailable, match=r"did not come back .* pooler .*`store.listen_url`"):
            await bus.open()


async def test_a_server_that_is_not_there_is_an_error_of_the_start(proxy, postgres_server) -> None:
    proxy.refuse()
    with pytest.raises(StoreUnavailable, match="cannot be used now"):
        await PostgresListening(through(proxy, postgres_server)).open()


async def test_workers_tell_each_other_over_it(postgres_server) -> None:
    url = postgres_server.url()
    one, two = (SharedNews(PostgresListening(url), name) for name in "ab")
    heard: asyncio.Queue[object] = asyncio.Queue()
    two.on("replies", heard.put_nowait)
    tasks = [asyncio.create_task(news.run()) for news in (one, two)]
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (one.is_heard and two.is_heard):
                await asyncio.sleep(0.02)
            one.tell("replies", channel="chat")
            assert await heard.get() == {"news": "replies", "channel": "chat"}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
