"""What a quiet turn asks of the server, counted between it and the worker: a count does not depend on the machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.fake_channel import FakeChannel
from tests.gateway.cluster.test_gateways import PATIENCE_S, config, reaches, serving
from tests.servers.postgres import PostgresServer
from tests.servers.silent_proxy import silent_proxy

TURNS = 10
# A statement whose result decides what is asked next ends a round trip, and so does each COMMIT: accepted, claimed,
# read for the turn, the reply committed, the reply claimed, and its receipt.
ROUND_TRIPS = 27
# Accepted, claimed, committed, the reply claimed, and its receipt.
TRANSACTIONS = 5
# What is asked without any turn, meanwhile; a slow machine takes longer for the turns.
BESIDE = 8


async def test_a_quiet_turn_asks_the_server_no_more_often_than_it_did(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with silent_proxy(postgres_server.port) as proxy:
        proxy.watched = {b"COMMIT\0": 0}
        url = replace(postgres_server, port=proxy.port).url(postgres_url.rpartition("/")[2])
        async with asyncio.timeout(PATIENCE_S), serving(config(tmp_path / "north", url, "north")) as (north, _):
            await reaches(north, "up")
            fake = north.adapters[0]
            assert isinstance(fake, FakeChannel)
            for _ in range(TURNS):  # each connection has what it asks for prepared
                await fake.ask("hello there")
            before = proxy.round_trips, proxy.watched[b"COMMIT\0"]
            for _ in range(TURNS):
                await fake.ask("hello there")
            trips, commits = proxy.round_trips - before[0], proxy.watched[b"COMMIT\0"] - before[1]
    assert trips / TURNS < ROUND_TRIPS + BESIDE, f"{trips / TURNS:.1f} round trips"
    assert commits / TURNS < TRANSACTIONS + BESIDE, f"{commits / TURNS:.1f} transactions"
