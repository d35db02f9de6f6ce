"""Each channel that keeps notes, in a gateway on PostgreSQL: files come in, and it goes on where it was.

Telegram's are in `telegram/test_many_workers.py`; a webhook keeps none.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

import adapters.discord  # noqa: F401 (before the SDK by itself: it knows which of its warnings mean nothing)
from gateway.app.gateway import Gateway
from tests.adapters.discord.fake_discord import FakeDiscord
from tests.adapters.discord.world import DM, TOKEN
from tests.adapters.email.harness import Person, a_mail, new_address, plain_text
from tests.adapters.email.mail_server import AUTHSERV_ID, PASSWORD, missing_packages, running_mail_server
from tests.adapters.slack.fake_slack import APP_TOKEN, BOT_TOKEN, DIRECT, FakeSlack, read
from tests.adapters.slack.harness import SIGNING_SECRET, sign
from tests.gateway.cluster.test_gateways import PATIENCE_S, config, reaches, serving

FILE = b"what came with a question"


@dataclass(frozen=True)
class Side:
    """Who writes to the bot.

    Attributes:
        settings: of the channel, as in config.yaml.
        ask: writes a question with a file; where there is no gateway, it finds it later.
        sees: waits for a text in what the bot has answered.
    """

    settings: str
    ask: Callable[[str, Gateway | None], Awaitable[object]]
    sees: Callable[[str], Awaitable[object]]


@contextlib.asynccontextmanager
async def slack(*, by_http: bool = False) -> AsyncIterator[Side]:
    there = FakeSlack()
    await there.start()
    way = f"signing_secret: '{SIGNING_SECRET}'" if by_http else f"app_token: {APP_TOKEN}"

    async def ask(text: str, gateway: Gateway | None) -> None:
        file = there.add_file(FILE)
        event = there.event(there.write(DIRECT, text, subtype="file_share", files=[file]))
        if gateway is None:
            return
        if not by_http:
            await there.deliver(event)
            return
        body = json.dumps(event).encode()
        timestamp = str(int(time.time()))
        headers = {"x-slack-request-timestamp": timestamp, "x-slack-signature": sign(timestamp, body)}
        await posted(gateway, "/web/events", body, headers)

    def is_there(text: str) -> bool:
        return any(text in read(one) for one in there.ours())

    try:
        settings = f"kind: slack, bot_token: {BOT_TOKEN}, api_url: '{there.api_url}', {way}"
        yield Side(settings, ask, lambda text: there.until(lambda: is_there(text)))
    finally:
        await there.stop()


@contextlib.asynccontextmanager
async def discord() -> AsyncIterator[Side]:
    there = FakeDiscord()
    await there.start()
    there.files["a/notes.txt"] = FILE
    url = there.url("/cdn/a/notes.txt")
    file = {
        "id": "77",
        "filename": "notes.txt",
        "size": len(FILE),
        "content_type": "text/plain",
        "url": url,
        "proxy_url": url,
    }

    async def ask(text: str, gateway: Gateway | None) -> None:
        await there.until(lambda: gateway is None or bool(there.gateway.identifies))
        (there.write if gateway is None else there.say)(DM, text, attachments=[file])

    def is_there(text: str) -> bool:
        return any(text in one for one in there.texts())

    try:
        yield Side(f"kind: discord, token: {TOKEN}", ask, lambda text: there.until(lambda: is_there(text)))
    finally:
        await there.close()


@contextlib.asynccontextmanager
async def email() -> AsyncIterator[Side]:
    if missing := missing_packages():
        pytest.skip(missing)
    with running_mail_server() as server:
        bot, person = new_address("bot"), Person(server, new_address("ada"))

        async def ask(text: str, _: Gateway | None) -> None:
            mail = a_mail(text, sender=person.address, recipient=bot)
            mail.add_attachment(FILE, maintype="text", subtype="plain", filename="notes.txt")
            await person.deliver(mail, bot)

        async def sees(text: str) -> None:
            while not any(text in plain_text(mail) for _, mail in await person.mails()):
                pass  # `mails` waits for the server

        ports = f"imap_port: {server.ports['imaps']}, smtp_port: {server.ports['smtps']}, ca_file: '{server.ca_file}'"
        settings = f"kind: email, address: {bot}, password: {PASSWORD}, imap_host: 127.0.0.1, smtp_host: 127.0.0.1"
        yield Side(f"{settings}, {ports}, unproved_sender: stranger, trusted_authserv_id: {AUTHSERV_ID}", ask, sees)


async def posted(gateway: Gateway, path: str, body: bytes, headers: Mapping[str, str]) -> None:
    assert gateway.web is not None
    async with httpx.AsyncClient(base_url=gateway.web.url) as client:
        response = await client.post(path, content=body, headers=headers)
    assert response.is_success, response.text


SIDES: Mapping[str, Callable[[], AbstractAsyncContextManager[Side]]] = {
    "slack by socket": slack,
    "slack by http": functools.partial(slack, by_http=True),
    "discord": discord,
    "email": email,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIDES)
async def test_a_channel_answers_before_and_after_a_restart(name: str, postgres_url: str, tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), SIDES[name]() as side:
        home = config(tmp_path / "north", postgres_url, "north")
        file = home / "config.yaml"
        file.write_text(file.read_text().replace("kind: tests.fake_channel", side.settings))
        async with serving(home) as (north, _):
            await reaches(north, "up")
            await side.ask("what is 6 * 7?", north)
            await side.sees("42")
        await side.ask("what is 7 * 7?", None)
        async with serving(home) as (north, _):
            await reaches(north, "up")
            await side.ask("what is 8 * 7?", north)
            await side.sees("56")
            await side.sees("49")
            notes = await north.store.engine.rows("SELECT 1 FROM adapter_notes LIMIT 1")
            with_file = await north.store.engine.rows(
                "SELECT 1 FROM messages WHERE text LIKE ?", (f"%{FILE.decode()}%",)
            )
    assert notes
    assert len(with_file) == 3
