"""A channel whose platform is a test: what a person says is handed over, what is sent is kept, failures are scripted.

It follows the contract of an adapter; sending twice would be seen, as on most platforms.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from gateway.errors import PermanentSendError
from gateway.messages import (
    Attachment,
    Capabilities,
    ConversationRef,
    InboundMessage,
    OutboundMessage,
    Receipt,
    Sender,
)
from gateway.protocols import Accept, AdapterServices

ACCESS_DEFAULT = "open"
PATIENCE_S = 60.0


class Config(BaseModel):
    """What a test can set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    is_idempotent: bool = False
    has_previews: bool = False
    max_attachment_bytes: int = 0
    shows_log: bool = False
    voice: Literal["message", "file"] | None = None


class FakeChannel:
    """The adapter, and the person on the other side of it."""

    kind = "fake"

    def __init__(self, name: str, config: Config) -> None:
        self.name = name
        self.capabilities = Capabilities(
            max_text_chars=4_000,
            is_idempotent_send=config.is_idempotent,
            max_attachment_bytes=config.max_attachment_bytes,
            preview_interval_s=0.001 if config.has_previews else None,
            shows_log=config.shows_log,
            voice=config.voice,
        )
        self.sent: list[OutboundMessage] = []
        self.files: dict[str, bytes] = {}
        """What went with them, by name."""
        self.given: dict[str, bytes] = {}
        """What people have sent, by its `ref`."""
        self.failures: list[Exception] = []
        """Raised by the next sends, in order."""
        self.failures_after: list[Exception] = []
        """Raised by the next sends, in order, after the person has the message."""
        self.connect_failures: list[Exception] = []
        self.problems: list[str] = []
        self.attempts = 0
        self.connects = 0
        self.is_closed = False
        self._numbers = itertools.count(1)
        self._changed = asyncio.Condition()
        self._accept: Accept | None = None
        self._lost: asyncio.Future[None] | None = None

    async def connect(self) -> None:
        self.connects += 1
        await self._notify()
        if self.connect_failures:
            raise self.connect_failures.pop(0)

    async def run(self, accept: Accept) -> None:
        self._lost = asyncio.get_running_loop().create_future()
        self._accept = accept
        await self._notify()
        try:
            await self._lost
        finally:
            self._accept = None

    async def send(self, message: OutboundMessage) -> Receipt:
        self.attempts += 1
        await self._notify()
        if self.failures:
            raise self.failures.pop(0)
        if not (self.capabilities.is_idempotent_send and any(one.id == message.id for one in self.sent)):
            self.sent.append(message)
            files = {one.filename: Path(one.ref) for one in message.attachments if one.filename}
            self.files |= {name: path.read_bytes() for name, path in files.items() if path.is_file()}
        await self._notify()
        if self.failures_after:
            raise self.failures_after.pop(0)
        return Receipt(message_ids=(f"p{len(self.sent)}",))

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """There are no files here, unless a test brings some."""
        found = self.given.get(attachment.ref)
        if found is None or len(found) > max_bytes:
            raise PermanentSendError(f"there is no file {attachment.ref} of so few bytes")
        return found

    async def close(self) -> None:
        self.is_closed = True

    # ---- the person's side -----------------------------------------------------------------------------------------

    def message(self, text: str, *, conversation: str = "c1", user: str = "1", **changes: object) -> InboundMessage:
        """A message that was not handed over yet."""
        number = next(self._numbers)
        message = InboundMessage(
            id=f"m{number}",
            event_id=f"e{number}",
            conversation=ConversationRef(channel=self.name, conversation=conversation),
            sender=Sender(channel=self.name, user=user, display_name=f"Person {user}", is_verified=True),
            text=text,
            sent_at=datetime.now(UTC),
        )
        return replace(message, **changes)  # type: ignore[arg-type]

    async def connected(self) -> None:
        """Wait until messages can be handed over."""
        await self.until(lambda: self._accept is not None)

    async def deliver(self, message: InboundMessage) -> None:
        """Hand it over; returns when the gateway has it."""
        await self.connected()
        assert self._accept is not None
        await self._accept(message)

    async def say(self, text: str, *, conversation: str = "c1", user: str = "1") -> InboundMessage:
        message = self.message(text, conversation=conversation, user=user)
        await self.deliver(message)
        return message

    async def ask(self, text: str, *, conversation: str = "c1", user: str = "1") -> str:
        """Say it, and wait for the answer to it."""
        message = await self.say(text, conversation=conversation, user=user)
        return (await self.answers_to(message))[0]

    async def answers_to(self, message: InboundMessage, amount: int = 1) -> list[str]:
        def answers() -> list[str]:
            return [
                one.text for one in self.sent if one.reply_to == message.id and one.conversation == message.conversation
            ]

        await self.until(lambda: len(answers()) >= amount)
        return answers()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds; looked at whenever something happens here."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(condition)

    async def lose_connection(self, error: Exception | None = None) -> None:
        """End `run`, with an error or without."""
        await self.connected()
        assert self._lost is not None
        if error is None:
            self._lost.set_result(None)
        else:
            self._lost.set_exception(error)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class FakeChannelWithPreviews(FakeChannel):
    """Shows previews, too."""

    def __init__(self, name: str, config: Config) -> None:
        super().__init__(name, config)
        self.previews: list[OutboundMessage] = []

    async def preview(self, message: OutboundMessage) -> None:
        self.previews.append(message)
        await self._notify()


def build(config: Config, services: AdapterServices) -> FakeChannel:
    return (FakeChannelWithPreviews if config.has_previews else FakeChannel)(services.name, config)
