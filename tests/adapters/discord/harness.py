"""The adapter with a scripted Discord, for the conformance suite and for the tests here."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from adapters.discord import Config, trial
from adapters.discord.adapter import DiscordAdapter
from adapters.discord.client import DiscordClient
from adapters.discord.render import render
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices, CommandInfo, Trial
from gateway.testing.adapters import soon
from tests.adapters.discord.fake_discord import FakeDiscord
from tests.adapters.discord.world import DM, ROOM, TOKEN
from tests.conformance.conversation_log import FakeLog
from tests.conformance.notes import FakeNotes

COMMANDS = (
    CommandInfo(name="help", usage="/help", description="lists the commands"),
    CommandInfo(name="personality", usage="/personality [name]", description="shows or chooses who answers"),
)
RETRY_S = 0.02


class WatchedNotes(FakeNotes):
    """Notes whose changes can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Condition()

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        await super().put(key, text, is_durable=is_durable)
        async with self._changed:
            self._changed.notify_all()

    def mark(self, channel: str = DM) -> int:
        """Up to which message of a channel everything is accepted."""
        return int(json.loads(self.texts.get(f"cursor:{channel}", "{}")).get("after", 0))

    async def reach(self, message_id: str, channel: str = DM) -> None:
        await self.wait_for(lambda: self.mark(channel) >= int(message_id))

    async def wait_for(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(is_so)

        await soon(wait())


def services(notes: FakeNotes, commands: Sequence[CommandInfo] = COMMANDS) -> AdapterServices:
    return AdapterServices(name="discord", state_dir=Path("unused"), log=FakeLog(), notes=notes, commands=commands)


def make_adapter(
    notes: FakeNotes, *, token: str = TOKEN, message_content: bool = True, commands: Sequence[CommandInfo] = COMMANDS
) -> DiscordAdapter:
    """An adapter that is not connected; another one with the same notes is the same channel after a restart."""
    client = DiscordClient(token, message_content=message_content)
    return DiscordAdapter(client, services(notes, commands), retry_s=RETRY_S)


def direct() -> ConversationRef:
    return ConversationRef(channel="discord", conversation=DM)


def room() -> ConversationRef:
    return ConversationRef(channel="discord", conversation=ROOM)


def outbound(text: str, *, id: str = "t_1.reply", where: ConversationRef | None = None, **more: Any) -> OutboundMessage:  # noqa: A002
    return OutboundMessage(id=id, conversation=where or direct(), text=text, **more)


class DiscordHarness:
    """A person in a direct chat with the bot."""

    conversation = direct()
    unknown_conversation = ConversationRef(channel="discord", conversation="999")
    is_unknown_refused = True
    longest_text_chars = 6_000

    def __init__(self) -> None:
        self.platform = FakeDiscord()
        self.notes = WatchedNotes()
        self.adapter = make_adapter(self.notes)
        self._said: dict[str, dict[str, Any]] = {}

    def carries(self, text: str) -> bool:
        """Discord takes away the white space around a text; what it has no form for is rendered."""
        return text == text.strip() and render(text).text == text

    async def attach(self) -> None:
        """A direct chat is there all the time."""

    async def person_says(self, text: str) -> str:
        message = self.platform.say(DM, text)
        self._said[message["id"]] = message
        return str(message["id"])

    async def redeliver(self, event_id: str) -> None:
        self.platform.announce(self._said[event_id])

    def is_acknowledged(self, event_id: str) -> bool:
        return self.notes.mark() >= int(event_id)

    async def wait_acknowledged(self, event_id: str) -> None:
        await self.notes.reach(event_id)

    async def settle(self) -> None:
        """The mark is in the notes at once."""

    async def record(self, message: OutboundMessage) -> None:
        """Discord has its own memory."""

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        await self.platform.until(lambda: len(self.platform.of_bot()) >= amount)
        return [(each["id"], self.platform.sent_content[each["id"]]) for each in self.platform.of_bot()]

    async def previewed(self, message_id: str, text: str) -> None:
        del message_id
        wanted = [text] if text else []
        await self.platform.until(lambda: self.platform.texts() == wanted)

    async def drop_connection(self) -> None:
        resumed = len(self.platform.gateway.resumes)
        self.platform.gateway.drop()
        await self.platform.until(lambda: len(self.platform.gateway.resumes) > resumed)

    wrong_secret = "MTIzNDU2.canary.of-a-wrong-token"

    async def trial(self, *, is_wrong: bool = False) -> Trial:
        return await trial(Config(token=self.wrong_secret if is_wrong else TOKEN))

    async def go_down(self) -> None:
        await self.platform.go_down()

    async def come_up(self) -> None:
        await self.platform.come_up()

    async def close(self) -> None:
        await self.platform.close()


@contextlib.asynccontextmanager
async def discord_harness() -> AsyncIterator[DiscordHarness]:
    """Started, and ended with all that it has."""
    harness = DiscordHarness()
    await harness.platform.start()
    try:
        yield harness
    finally:
        await harness.adapter.close()
        await harness.close()
