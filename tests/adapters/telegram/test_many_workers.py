"""Telegram may call any worker: what only the holder of the channel can take is handed to it, over one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import psycopg

from adapters.telegram.inbound import MAX_UNITS
from adapters.telegram.webhook import SECRET_HEADER
from gateway.app.gateway import Gateway
from gateway.cluster.news import MAX_BYTES
from tests.adapters.telegram.fake_telegram import FakeTelegram, Json, Shown
from tests.adapters.telegram.harness import WEBHOOK_URL
from tests.gateway.cluster.test_gateways import PATIENCE_S, config, reaches, serving

PART = "ю" * MAX_UNITS


def configured(home: Path, url: str, name: str, telegram: FakeTelegram) -> Path:
    config(home, url, name)
    file = home / "config.yaml"
    channel = f"kind: telegram, token: '{telegram.token}', api_url: '{telegram.url}', webhook_url: '{WEBHOOK_URL}'"
    text = file.read_text().replace("kind: tests.fake_channel", channel)
    file.write_text(text.replace("web: {port: 0}", "web: {port: 0, allowed_hosts: [ethos.example.org]}"))
    return home


async def accepted(gateway: Gateway, amount: int) -> list[str]:
    """What has come, once there is so much, in its order: commands, and texts by their beginning and length."""
    while True:
        rows = await gateway.store.engine.rows("SELECT payload FROM inbox ORDER BY seq")
        if len(rows) >= amount:
            payloads = [json.loads(row["payload"]) for row in rows]
            return [each.get("command") or f"{each['text'][:20]} {len(each['text'])}" for each in payloads]
        await asyncio.sleep(0.05)


async def test_album_parts_and_buttons_are_accepted_at_a_worker_that_does_not_have_the_channel(
    postgres_url: str, tmp_path: Path
) -> None:
    telegram = FakeTelegram()
    await telegram.start()
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(configured(tmp_path / "north", postgres_url, "north", telegram)) as (north, _),
    ):
        await reaches(north, "up")
        async with (
            serving(configured(tmp_path / "south", postgres_url, "south", telegram)) as (south, _),
            httpx.AsyncClient(transport=httpx.ASGITransport(south.web.app), base_url=WEBHOOK_URL) as client,
            await psycopg.AsyncConnection.connect(postgres_url) as another,
        ):
            await reaches(south, "elsewhere")
            south.cluster._handing._wait_s = PATIENCE_S  # type: ignore[attr-defined]

            async def told(update: Json) -> int:
                headers = {SECRET_HEADER: telegram.webhook["secret_token"]}
                return (await client.post("/web/updates", json=update, headers=headers)).status_code

            first = telegram.update(telegram.message("one", media_group_id="a"))
            while await told(first) == 503:  # it has asked who the bot is by then
                await asyncio.sleep(0.02)
            [kept] = await north.store.engine.rows("SELECT text FROM adapter_notes WHERE key = 'parts/42'")
            assert json.loads(kept["text"])["updates"] == [first], "acknowledged once it is kept"
            assert await told(telegram.update(telegram.message("two", media_group_id="a"))) == 200
            assert await accepted(north, 1) == ["one\ntwo 7"]

            part = telegram.update(telegram.message(PART))
            assert len(json.dumps(part, ensure_ascii=False).encode()) > MAX_BYTES
            south.cluster._handing._wait_s = 0.3  # type: ignore[attr-defined]
            await another.execute("LOCK TABLE adapter_notes IN EXCLUSIVE MODE")  # so the holder cannot keep it
            assert await told(part) == 503
            await another.rollback()
            south.cluster._handing._wait_s = PATIENCE_S  # type: ignore[attr-defined]
            assert await told(part) == 200
            assert await told(part) == 200
            assert await told(telegram.update(telegram.message("the end"))) == 200
            assert (await accepted(north, 2))[1:] == [f"{PART[:20]} {MAX_UNITS + len('the end')}"]

            press = telegram.press("/new", Shown(number=5, text="Begin again?", entities=[]))
            assert [await told(press), await told(press)] == [200, 200]
            await telegram.until(lambda: press["callback_query"]["id"] in telegram.presses)
            assert (await accepted(north, 3))[2:] == ["new"]
            assert not await north.store.engine.rows("SELECT id FROM blobs")
    await telegram.stop()
