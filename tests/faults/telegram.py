"""Telegram: long polling, and an answer whose first words come before all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.adapters.telegram.fake_telegram import PERSON, TOKEN, FakeTelegram, Fault, Json
from tests.adapters.telegram.harness import is_filled
from tests.faults.platform import Effect, unwatched


class Telegram(FakeTelegram):
    name = "telegram"
    effects: Sequence[Effect] = ("acknowledged", "before_send", "sent")
    prepare: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    is_met_first = False
    gives_up = False
    keeps_order = True

    def __init__(self) -> None:
        super().__init__()
        self.on_effect = unwatched

    async def start(self, directory: Path | None = None) -> None:  # noqa: ARG002
        self.chats.clear()
        await super().start()

    async def close(self) -> None:
        await self.stop()

    def settings(self) -> Mapping[str, Any]:
        return {"kind": "telegram", "token": TOKEN, "api_url": self.url, "poll_timeout_s": 5}

    def account(self, person: int) -> str:
        return f"telegram:{10_000 + person}"

    async def say_as(self, person: int, text: str) -> None:
        chat = 10_000 + person
        self.chats.setdefault(chat, [])
        await self.say(text, chat={"id": chat, "type": "private"}, **{"from": {**PERSON, "id": chat}})

    def shown(self) -> Sequence[tuple[int, str]]:
        found = [
            (shown.number, chat - 10_000, shown.text)
            for chat, all_ in self.chats.items()
            for shown in all_
            if is_filled(shown)
        ]
        return [(person, text) for _, person, text in sorted(found)]

    def uncertain(self) -> tuple[int, int]:
        left = sum(not is_filled(shown) for all_ in self.chats.values() for shown in all_)
        return left, 0

    async def changed(self) -> None:
        async with self._changed:
            await self._changed.wait()

    async def settle(self) -> None:
        """Requests of a process that is gone are cut off with it."""

    async def _answer(self, path: str, parameters: Json) -> Fault:
        method = path.rpartition("/")[2]
        confirmed = len(self.confirmed)
        is_send = method in ("sendMessage", "editMessageText")
        if is_send:
            self.on_effect("before_send")
        answer = await super()._answer(path, parameters)
        if is_send:
            self.on_effect("sent")
        if len(self.confirmed) > confirmed:
            self.on_effect("acknowledged")
        return answer
