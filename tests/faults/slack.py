"""Slack: Socket Mode, and an event that was not acknowledged comes again on the next line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.adapters.slack.fake_slack import APP_TOKEN, BOT_TOKEN, FakeSlack
from tests.faults.platform import Effect, unwatched


class Acknowledged(dict[str, Any]):
    """Tells when something comes in."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._told()


class Slack(FakeSlack):
    name = "slack"
    effects: Sequence[Effect] = ("acknowledged", "before_send", "sent")
    prepare: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    is_met_first = False
    gives_up = False
    keeps_order = True

    def __init__(self) -> None:
        super().__init__()
        self.on_effect = unwatched
        self.acknowledged = Acknowledged(lambda: self.on_effect("acknowledged"))
        self._said: list[tuple[dict[str, Any], list[tuple[int, str]]]] = []
        self._lookups = 0

    async def start(self, directory: Path | None = None) -> None:  # noqa: ARG002
        await super().start()
        self._delivering = asyncio.create_task(self._deliver_all())

    async def close(self) -> None:
        self._delivering.cancel()
        await self.stop()

    def settings(self) -> Mapping[str, Any]:
        return {"kind": "slack", "bot_token": BOT_TOKEN, "app_token": APP_TOKEN, "api_url": self.api_url}

    def account(self, person: int) -> str:
        return f"/U{person}"

    async def say_as(self, person: int, text: str) -> None:
        channel = f"D{person}"
        self.channels.setdefault(channel, {})
        self._said.append((self.event(self.write(channel, text, user=f"U{person}"), channel), []))
        await self._notify()

    async def _deliver_all(self) -> None:
        """Every event once on each connection, in order, until it is acknowledged."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self.sockets and self._waiting())
            for event, sent in self._waiting():
                if not self.sockets:
                    break
                line = self.sockets[-1]
                try:
                    sent.append((id(line), await self.deliver(event)))
                except (ConnectionError, TimeoutError, IndexError):
                    break

    def _waiting(self) -> list[tuple[dict[str, Any], list[tuple[int, str]]]]:
        line = id(self.sockets[-1]) if self.sockets else 0
        self._said = [each for each in self._said if not any(one in self.acknowledged for _, one in each[1])]
        return [each for each in self._said if all(on != line for on, _ in each[1])]

    def shown(self) -> Sequence[tuple[int, str]]:
        found = [
            (message["ts"], int(channel[1:]), message["text"])
            for channel in self.channels
            if channel[1:].isdigit()
            for message in self.ours(channel)
        ]
        return [(person, text) for _, person, text in sorted(found)]

    def uncertain(self) -> tuple[int, int]:
        return self._lookups, self._lookups

    async def changed(self) -> None:
        async with self._changed:
            await self._changed.wait()

    async def settle(self) -> None:
        """The lines of a process that is gone break with it."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: not self.sockets)

    def _do(self, method: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
        is_send = method in ("chat.postMessage", "chat.update")
        if is_send:
            self.on_effect("before_send")
        answer = super()._do(method, arguments, token)
        if is_send:
            self.on_effect("sent")
        self._lookups += method.startswith("conversations.") and bool(arguments.get("include_all_metadata"))
        return answer
