"""A channel without a platform: what is said is handed over at once, what is answered is noted at once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from gateway.messages import Capabilities, ConversationRef, InboundMessage, OutboundMessage, Receipt, Sender
from gateway.protocols import Accept, AdapterServices

ACCESS_DEFAULT = "open"


class Config(BaseModel):
    """Nothing can be set."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LoopbackAdapter:
    """Passes the adapter's contract; sending twice would be seen, as on most platforms."""

    kind = "loopback"
    capabilities = Capabilities(max_text_chars=4_000)

    def __init__(self, name: str) -> None:
        self.name = name
        self._accept: asyncio.Future[Accept] = asyncio.get_running_loop().create_future()
        self._answers: dict[str, asyncio.Future[float]] = {}
        self._numbers = itertools.count(1)

    async def connect(self) -> None:
        """There is nothing to connect."""

    async def run(self, accept: Accept) -> None:
        """Be ready until cancelled."""
        self._accept.set_result(accept)
        await asyncio.Event().wait()

    async def send(self, message: OutboundMessage) -> Receipt:
        """Note the moment; the receipt is committed right after."""
        answered = self._answers.pop(message.reply_to or "", None)
        if answered is not None:
            answered.set_result(asyncio.get_running_loop().time())
        return Receipt(message_ids=(message.id,))

    async def close(self) -> None:
        """There is nothing to close."""

    def expect(self, answers: Mapping[str, asyncio.Future[float]]) -> None:
        """Note the moments of the answers to these messages, by their ids."""
        self._answers.update(answers)

    async def ask(self, conversation: str, text: str) -> float:
        """Say something, and wait for the answer; seconds from the call of `accept` to the answer."""
        loop = asyncio.get_running_loop()
        accept = await asyncio.shield(self._accept)
        number = next(self._numbers)
        answered = self._answers[f"m{number}"] = loop.create_future()
        started_at = loop.time()
        await accept(
            InboundMessage(
                id=f"m{number}",
                event_id=f"e{number}",
                conversation=ConversationRef(channel=self.name, conversation=conversation),
                sender=Sender(channel=self.name, user=conversation, display_name=conversation, is_verified=True),
                text=text,
                sent_at=datetime.now(UTC),
            )
        )
        return await answered - started_at


def build(_config: Config, services: AdapterServices) -> LoopbackAdapter:
    """Make the adapter."""
    return LoopbackAdapter(services.name)
