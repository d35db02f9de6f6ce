"""What a quiet turn asks of the server, counted between it and the worker: a count does not depend on the machine."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from gateway.store.engine import statement
from gateway.store.postgres.engine import CONNECTIONS
from tests.fake_channel import FakeChannel
from tests.gateway.cluster.test_gateways import PATIENCE_S, config, reaches, serving
from tests.servers.postgres import PostgresServer
from tests.servers.silent_proxy import silent_proxy

TURNS = 10
# Accepted, claimed, read for the turn, committed, the reply claimed, and its receipt.
ROUND_TRIPS = 6
# All of these but the reading.
TRANSACTIONS = 5
# What is asked without any turn: a look each second, which leases, signs of life, pings of the listener and the jobs of
# the minute go along with. A moment may be missed by a hair.
BESIDE_PER_S, IDLE_PER_S = 1.5, 1.25
IDLE_S = 8.0


async def test_a_quiet_turn_asks_the_server_six_times(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with silent_proxy(postgres_server.port) as proxy:
        proxy.watched = {b"COMMIT\0": 0}
        url = replace(postgres_server, port=proxy.port).url(postgres_url.rpartition("/")[2])
        async with asyncio.timeout(PATIENCE_S), serving(config(tmp_path / "north", url, "north")) as (north, _):
            await reaches(north, "up")
            fake = north.adapters[0]
            assert isinstance(fake, FakeChannel)
            waiting = statement("SELECT pg_sleep(0.5)")
            # All connections, since one that is opened later on would ask more.
            await asyncio.gather(*(north.store.engine.write(waiting, alone=()) for _ in range(CONNECTIONS)))
            for _ in range(TURNS):  # what a turn asks for is prepared
                await fake.ask("hello there")
            before, began_s = (proxy.round_trips, proxy.watched[b"COMMIT\0"]), time.monotonic()
            for _ in range(TURNS):
                await fake.ask("hello there")
            beside = BESIDE_PER_S * (time.monotonic() - began_s) / TURNS
            trips, commits = proxy.round_trips - before[0], proxy.watched[b"COMMIT\0"] - before[1]
    assert trips / TURNS < ROUND_TRIPS + beside + 0.5, f"{trips / TURNS:.1f} round trips"
    assert commits / TURNS < TRANSACTIONS + beside + 0.5, f"{commits / TURNS:.1f} transactions"


async def test_an_idle_worker_asks_once_a_second(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with silent_proxy(postgres_server.port) as proxy:
        url = replace(postgres_server, port=proxy.port).url(postgres_url.rpartition("/")[2])
        async with asyncio.timeout(PATIENCE_S), serving(config(tmp_path / "north", url, "north")) as (north, _):
            await reaches(north, "up")
            fake = north.adapters[0]
            assert isinstance(fake, FakeChannel)
            await fake.ask("hello there")
            before, began_s = proxy.round_trips, time.monotonic()
            await asyncio.sleep(IDLE_S)
            trips, took_s = proxy.round_trips - before, time.monotonic() - began_s
    assert trips < IDLE_PER_S * took_s + 2, f"{trips / took_s:.1f} round trips a second"
