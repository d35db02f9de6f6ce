"""Two gateways on one database are workers that know each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.cluster.leases import LEASE_S
from gateway.config.file import load_config
from gateway.errors import StoreUnavailable
from gateway.services.caller import operator
from tests.fake_channel import FakeChannel
from tests.servers import pgbouncer as poolers
from tests.servers.postgres import PostgresServer
from tests.servers.silent_proxy import silent_proxy

PATIENCE_S = 30.0
SECRET = "".join(f"{number:02x}" for number in range(32))


def config(home: Path, url: str, name: str, more: str = "") -> Path:
    home.mkdir()
    (home / "config.yaml").write_text(
        f"secret: '${{ROOT}}'\nstore: {{url: '{url}', connections: 4}}\nworker: {{name: {name}}}\nweb: {{port: 0}}\n"
        f"channels: {{web: {{kind: tests.fake_channel, access: open}}}}\n{more}"
    )
    return home


@contextlib.asynccontextmanager
async def serving(home: Path) -> AsyncIterator[tuple[Gateway, asyncio.Event]]:
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home, environment={"ROOT": SECRET}).config) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        began = asyncio.create_task(gateway.is_serving.wait())
        await asyncio.wait([running, began], return_when=asyncio.FIRST_COMPLETED)
        try:
            if running.done():
                running.result()
            yield gateway, stop
        finally:
            stop.set()
            began.cancel()
            await asyncio.wait([running, began])


async def reaches(gateway: Gateway, state: str) -> None:
    while gateway.channels.status("web").state != state:
        await asyncio.sleep(0.02)


async def test_one_has_the_channel_both_are_told_and_the_other_has_it_within_a_second_of_its_end(
    postgres_url: str, tmp_path: Path
) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(config(tmp_path / "north", postgres_url, "north")) as (north, stop),
    ):
        await reaches(north, "up")
        async with serving(config(tmp_path / "south", postgres_url, "south")) as (south, _):
            await reaches(south, "elsewhere")
            await asyncio.wait_for(south.supervisor.all_tried.wait(), 5)
            health = await south.health()
            assert (health.status, health.is_ready) == ("ok", True), health.problems
            told = await south.services.system.workers(operator("test"))
            assert {one.name: one.channels for one in told} == {"north": ("web",), "south": ()}
            assert len({one.config_hash for one in told}) == 1
            stop.set()
            began_s = asyncio.get_running_loop().time()
            await reaches(south, "up")
            assert asyncio.get_running_loop().time() - began_s < 1.0
            assert not (await north.health()).is_ready
            while len(await south.services.system.workers(operator("test"))) > 1:
                await asyncio.sleep(0.02)


async def test_an_operator_has_another_worker_take_a_channel(postgres_url: str, tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(config(tmp_path / "north", postgres_url, "north")) as (north, _),
    ):
        await reaches(north, "up")
        async with serving(config(tmp_path / "south", postgres_url, "south")) as (south, _):
            await reaches(south, "elsewhere")
            await south.services.system.release(operator("test"), "web")
            began_s = asyncio.get_running_loop().time()
            await reaches(south, "up")
            assert asyncio.get_running_loop().time() - began_s < 1.0, "its holder was told"
            assert north.channels.status("web").state == "elsewhere"


async def test_a_worker_for_turns_alone_holds_no_channel(postgres_url: str, tmp_path: Path) -> None:
    home = config(tmp_path / "north", postgres_url, "north")
    text = (home / "config.yaml").read_text().replace("name: north", "name: north, roles: [turns]")
    (home / "config.yaml").write_text(text)
    async with asyncio.timeout(PATIENCE_S), serving(home) as (north, _):
        await reaches(north, "elsewhere")
        [told] = await north.services.system.workers(operator("test"))
        assert (told.roles, told.channels) == (("turns",), ())


@pytest.mark.skipif(poolers.MISSING is not None, reason=poolers.MISSING or "")
async def test_a_pooler_in_the_way_of_news_is_refused_at_the_start(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with poolers.pgbouncer(postgres_server) as pooler:
        behind = postgres_url.replace(f":{postgres_server.port}/", f":{pooler.port}/")
        home = config(tmp_path / "north", behind, "north")
        text = (home / "config.yaml").read_text()
        (home / "config.yaml").write_text(text.replace("connections: 4", "prepared_statements: false"))
        with pytest.raises(StoreUnavailable, match=r"store\.listen_url"):
            async with serving(home):
                pass
        direct = f"prepared_statements: false, listen_url: '{postgres_url}'"
        (home / "config.yaml").write_text(text.replace("connections: 4", direct))
        async with asyncio.timeout(PATIENCE_S), serving(home) as (north, _):
            await reaches(north, "up")


async def test_a_worker_is_not_ready_while_its_database_is_silent_or_it_drains_and_lives_all_the_same(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with silent_proxy(postgres_server.port) as proxy:
        behind = postgres_url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
        async with (
            asyncio.timeout(PATIENCE_S),
            serving(config(tmp_path / "north", behind, "north")) as (north, stop),
            httpx.AsyncClient(transport=httpx.ASGITransport(north.web.app), base_url="http://10.42.0.7:8420") as probe,
        ):

            async def becomes(status: int) -> None:
                while (await probe.get("/health/ready")).status_code != status:
                    await asyncio.sleep(0.05)

            await becomes(200)
            proxy.go_silent()
            began_s = asyncio.get_running_loop().time()
            live = await probe.get("/health/live")
            await becomes(503)
            assert asyncio.get_running_loop().time() - began_s < LEASE_S
            assert live.status_code == 200
            proxy.go_on()
            await becomes(200)
            stop.set()
            await becomes(503)


async def test_a_claim_of_which_the_worker_does_not_know_is_given_back(postgres_url: str, tmp_path: Path) -> None:
    """A connection that breaks in its COMMIT keeps what was claimed from the worker, which would renew it for ever."""
    home = config(tmp_path / "north", postgres_url, "north", "limits: {lease_s: 5}\n")
    async with asyncio.timeout(PATIENCE_S), serving(home) as (north, _):
        await reaches(north, "up")
        fake = north.adapters[0]
        assert isinstance(fake, FakeChannel)
        await fake.ask("hello there")
        message = fake.message("are you still there?")
        await north.store.inbox.add(message, "t_unknown")
        claimed = await north.store.lanes.claim(
            north.cluster.worker.id, lease_s=5, limit=9, turns_of_one={"": 9, "local": 9}
        )
        assert len(claimed.rows) == 1
        while message.id not in [reply.reply_to for reply in fake.sent]:
            await north.outbox.next_send.wait()
