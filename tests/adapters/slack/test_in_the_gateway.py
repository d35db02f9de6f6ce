"""The adapter between the gateway's own web server, inbox and outbox."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config import LimitsConfig
from gateway.domain.channels import Channels
from gateway.messages import InboundMessage
from gateway.pipeline.inbox import Inbox
from gateway.store.inbox import SqlInbox
from gateway.store.sqlite.engine import SqliteEngine
from gateway.testing.adapters import soon
from gateway.web.server import WebServer
from tests.adapters.slack.fake_slack import BOT_USER, DIRECT, GENERAL
from tests.adapters.slack.harness import HttpHarness, SocketHarness, sign
from tests.fake_sign_ins import FakeSignIns
from tests.stores import opened_database


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with opened_database(tmp_path / "ethos.sqlite") as database:
        yield database


async def healthy() -> Mapping[str, Any]:
    return {"status": "ok"}


async def test_slack_reaches_the_adapter_through_the_web_server_without_the_operator_s_login(
    web_person: HttpHarness, tmp_path: Path
) -> None:
    taken: list[InboundMessage] = []

    async def accept(message: InboundMessage) -> None:
        taken.append(message)

    server = WebServer(data_dir=tmp_path, adapters=[web_person.adapter], health=healthy, sign_ins=FakeSignIns(), port=0)  # type: ignore[list-item]
    await server.start()
    serving = asyncio.create_task(server.serve())
    await web_person.adapter.connect()
    running = asyncio.create_task(web_person.adapter.run(accept))
    await asyncio.sleep(0)
    body = json.dumps(web_person.slack.event(web_person.slack.write(DIRECT, "hello"))).encode()
    timestamp = str(int(time.time()))
    headers = {"x-slack-request-timestamp": timestamp, "x-slack-signature": sign(timestamp, body)}
    async with httpx.AsyncClient(trust_env=False) as client:
        good = await client.post(f"{server.url}office/events", content=body, headers=headers)
        bad = await client.post(f"{server.url}office/events", content=body + b" ", headers=headers)
        secure = await client.get(f"{server.url}office/events?ssl_check=1")
    assert (good.status_code, bad.status_code, secure.status_code) == (200, 401, 200)
    assert [message.text for message in taken] == ["hello"]
    for task in (running, serving):
        task.cancel()
        await asyncio.wait({task})


async def test_the_inbox_takes_each_message_once_however_often_and_in_which_shape_it_comes(
    person: SocketHarness, database: SqliteEngine
) -> None:
    accepted: list[InboundMessage] = []

    class Dispatcher:
        def accepted(self, message: InboundMessage, _seq: int, _asks: str | None) -> None:
            accepted.append(message)

    class Access:
        def is_let_in(self, _message: InboundMessage) -> bool:
            return True

    inbox = Inbox(
        SqlInbox(database),
        dispatcher=Dispatcher(),  # type: ignore[arg-type]
        outbox=None,  # type: ignore[arg-type]
        access=Access(),  # type: ignore[arg-type]
        channels=Channels(),
        limits=LimitsConfig(),
    )
    slack = person.slack
    mention = slack.write(GENERAL, f"<@{BOT_USER}> one")
    event = slack.event(mention, GENERAL)
    twice = slack.write(DIRECT, "two", client_msg_id="c0ffee")
    command = slack.command("new")
    events = [
        event,
        event,
        slack.event({**mention, "type": "app_mention"}, GENERAL),
        slack.event(mention, GENERAL),
        slack.event(twice),
        slack.event({**twice, "ts": slack.new_ts()}),
    ]
    await soon(person.adapter.connect())
    running = asyncio.create_task(person.adapter.run(inbox.accept))
    await person.attach()
    for each in events:
        await slack.acknowledgement(await slack.deliver(each))
    for _ in range(2):
        await slack.acknowledgement(await slack.deliver(command, kind="slash_commands"))
    assert [message.text for message in accepted] == ["one", "two", "new"]
    running.cancel()
    await asyncio.wait({running})
