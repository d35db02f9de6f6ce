"""Discord: its line and its REST API, where a nonce makes a message unique for some minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import adapters.discord  # noqa: F401 (before the SDK by itself: it knows which of its warnings mean nothing)
from tests.adapters.discord.fake_discord import Channel as Room
from tests.adapters.discord.fake_discord import FakeDiscord
from tests.adapters.discord.world import TOKEN, user
from tests.faults.platform import Effect, unwatched

URL = "ETHOS_FAULTS_DISCORD"


def point_at_the_fake(environment: Mapping[str, str]) -> None:
    """In the gateway's process: the SDK has no setting for its addresses."""
    import discord
    import yarl

    address = environment[URL]
    discord.http.Route.BASE = f"http://{address}/api/v10"
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(f"ws://{address}/gw")
    discord.asset.Asset.BASE = f"http://{address}/cdn"


class Discord(FakeDiscord):
    name = "discord"
    effects: Sequence[Effect] = ("before_send", "sent")
    prepare: Sequence[str] = ("tests.faults.discord:point_at_the_fake",)
    # Nothing tells a bot of a direct chat that was opened while it was away.
    is_met_first = True
    gives_up = False
    keeps_order = True

    def __init__(self) -> None:
        super().__init__()
        self.on_effect = unwatched
        self._folded = 0

    @property
    def environment(self) -> Mapping[str, str]:
        return {URL: f"127.0.0.1:{self._port}"}

    async def start(self, directory: Path | None = None) -> None:  # noqa: ARG002
        await self.come_up()

    async def close(self) -> None:
        await self.go_down()

    def settings(self) -> Mapping[str, Any]:
        return {"kind": "discord", "token": TOKEN}

    def account(self, person: int) -> str:
        return f"discord:{40_000 + person}"

    async def say_as(self, person: int, text: str) -> None:
        channel = str(30_000 + person)
        if channel not in self.channels:  # who is there for the first time must be heard live
            self.channels[channel] = Room(None)
            await self.until(lambda: any(session.line is not None for session in self.gateway._sessions.values()))
        self.say(channel, text, author=user(str(40_000 + person), f"person{person}"))

    def shown(self) -> Sequence[tuple[int, str]]:
        found = [
            (int(message["id"]), int(channel) - 30_000, message["content"])
            for channel in self.channels
            if int(channel) > 30_000
            for message in self.of_bot(channel)
        ]
        return [(person, text) for _, person, text in sorted(found)]

    def uncertain(self) -> tuple[int, int]:
        return self._folded, self._folded

    async def changed(self) -> None:
        async with self._changed:
            await self._changed.wait()

    async def settle(self) -> None:
        """The line of a process that is gone breaks with it."""

    def _create(self, channel: str, *, body: Any, files: dict[str, bytes], **more: Any) -> Any:
        self.on_effect("before_send")
        self._folded += (channel, str(body.get("nonce", ""))) in self._nonces
        answer = super()._create(channel, body=body, files=files, **more)
        self.on_effect("sent")
        return answer
