"""Every platform on loopback at once, and one real `ethos serve` that is connected to all of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

import adapters.discord  # noqa: F401 (before the SDK by itself: it knows which of its warnings mean nothing)
from tests.adapters.discord.fake_discord import FakeDiscord
from tests.adapters.discord.world import TOKEN as DISCORD_TOKEN
from tests.adapters.email.harness import Line, new_address
from tests.adapters.email.mail_server import AUTHSERV_ID, PASSWORD, MailServer
from tests.adapters.slack.fake_slack import APP_TOKEN, BOT_TOKEN, FakeSlack
from tests.adapters.telegram.fake_telegram import TOKEN as TELEGRAM_TOKEN
from tests.adapters.telegram.fake_telegram import FakeTelegram

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
LOOK_S = 0.005

ALL = ("telegram", "slack", "discord", "mail")


class Platforms:
    """What the gateway connects to.

    Attributes:
        mail: None where its servers are not wanted.
        line: the way to the mailbox, which can be cut.
        agent: its own mail address.
    """

    def __init__(self, mail: MailServer | None) -> None:
        self.telegram = FakeTelegram()
        self.slack = FakeSlack()
        self.discord = FakeDiscord()
        self.mail = mail
        self.line = Line(mail.ports["imaps"] if mail is not None else 0)
        self.agent = new_address("agent")

    async def start(self) -> None:
        await self.telegram.start()
        await self.slack.start()
        await self.discord.start()
        await self.line.open()

    async def close(self) -> None:
        await self.line.close()
        await self.discord.close()
        await self.slack.stop()
        await self.telegram.stop()

    def environment(self) -> dict[str, str]:
        """For `tests.scenarios.ethos_on_loopback`."""
        return {"DISCORD_ON_LOOPBACK": self.discord.gateway_url.removeprefix("ws://").removesuffix("/gw")}

    def channels(self) -> dict[str, dict[str, Any]]:
        """Their sections of a configuration; who may talk is left to the caller."""
        found: dict[str, dict[str, Any]] = {
            "telegram": {"kind": "telegram", "token": TELEGRAM_TOKEN, "api_url": self.telegram.url},
            "slack": {
                "kind": "slack", "bot_token": BOT_TOKEN, "app_token": APP_TOKEN, "api_url": self.slack.api_url,
            },
            "discord": {"kind": "discord", "token": DISCORD_TOKEN},
        }  # fmt: skip
        if self.mail is not None:
            found["mail"] = {
                "kind": "email",
                "address": self.agent,
                "imap_host": "127.0.0.1",
                "imap_port": self.line.port,
                "smtp_host": "127.0.0.1",
                "smtp_port": self.mail.ports["smtps"],
                "ca_file": str(self.mail.ca_file),
                "password": PASSWORD,
                "trusted_authserv_id": AUTHSERV_ID,
                "mails_per_hour": 10_000,
            }
        return found


@asynccontextmanager
async def running_platforms(mail: MailServer | None) -> AsyncIterator[Platforms]:
    platforms = Platforms(mail)
    try:
        await platforms.start()
        yield platforms
    finally:
        await platforms.close()


class Served:
    """`ethos serve` in a process of its own.

    Attributes:
        url: of its web server.
        started_s: seconds from the start of the process until every channel was up.
    """

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            **environment,
            "ETHOS_HOME": str(home),
            "PYTHONPATH": str(ROOT),
        }
        self.process: asyncio.subprocess.Process | None = None
        self.url = ""
        self.started_s = 0.0

    def configure(self, channels: Mapping[str, Mapping[str, Any]], **more: Any) -> None:
        """YAML takes JSON as it is."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        config = {"web": {"port": 0}, "log": {"format": "json"}, "channels": channels, **more}
        path = self.home / "config.yaml"
        path.touch(0o600)
        path.write_text(json.dumps(config, indent=1))

    async def start(self, *, expected: Collection[str]) -> None:
        """Returns when all the expected channels are up."""
        assert self.process is None
        running = self.home / "run" / "gateway.json"
        running.unlink(missing_ok=True)  # a killed one leaves it
        started_at = time.perf_counter()
        with (self.home / "output").open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.scenarios.ethos_on_loopback", "serve", "--no-chat"),
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment,
            )  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(trust_env=False) as client:
                while not await self._is_up(client, running, expected):
                    assert self.process.returncode is None, "the gateway ended"
                    await asyncio.sleep(LOOK_S)  # nothing tells when a foreign process is ready
        except (TimeoutError, AssertionError) as error:
            raise AssertionError(f"{expected} did not come up: {self.output()}") from error
        self.started_s = time.perf_counter() - started_at

    async def _is_up(self, client: httpx.AsyncClient, running: Path, expected: Collection[str]) -> bool:
        if not running.exists():
            return False
        self.url = json.loads(running.read_text())["url"]
        try:
            health = (await client.get(f"{self.url}health", headers=self.headers())).json()
        except httpx.TransportError:
            return False
        up = {channel["name"] for channel in health["channels"] if channel["state"] == "up"}
        return health["status"] == "ok" and up >= set(expected)

    def headers(self) -> dict[str, str]:
        """The proof of the operator."""
        return {"Authorization": f"Bearer {(self.home / 'web-token').read_text().strip()}"}

    def output(self) -> str:
        return (self.home / "output").read_text(errors="replace")

    async def kill(self) -> None:
        """As a power cut of its process would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Ask it to end; its exit code."""
        return await self._end(signal.SIGTERM)

    async def close(self) -> None:
        if self.process is not None:
            await self.kill()

    async def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        if process.returncode is None:
            process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            return await process.wait()
