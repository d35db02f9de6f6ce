"""The channel that other tests use in place of a platform does what every adapter must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from gateway.errors import AdapterNotReady, EthosError
from gateway.messages import ConversationRef, InboundMessage, OutboundMessage
from gateway.testing.adapters import AdapterSuite
from tests.fake_channel import Config, FakeChannelWithPreviews


class FakeHarness:
    """Its platform hands over one message after the other, and again what was not accepted when asked to."""

    longest_text_chars = 100_000
    conversation = ConversationRef(channel="fake", conversation="c1")

    def __init__(self) -> None:
        self.adapter = FakeChannelWithPreviews("fake", Config(is_idempotent=True, has_previews=True))
        self._messages: dict[str, InboundMessage] = {}
        self._acknowledged: set[str] = set()
        self._queue: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self._changed = asyncio.Condition()
        self._delivering: asyncio.Task[None] | None = None

    def carries(self, text: str) -> bool:  # noqa: ARG002
        return True

    async def attach(self) -> None:
        self.adapter.sent.clear()
        await self.adapter.until(lambda: self.adapter._accept is not None)
        await self.close()
        self._delivering = asyncio.create_task(self._deliver())

    async def _deliver(self) -> None:
        while True:
            message = await self._queue.get()
            try:
                await self.adapter.deliver(message)
            except (EthosError, RuntimeError):
                continue  # not accepted, so not acknowledged
            async with self._changed:
                self._acknowledged.add(message.event_id)
                self._changed.notify_all()

    async def person_says(self, text: str) -> str:
        message = self.adapter.message(text)
        self._messages[message.event_id] = message
        self._queue.put_nowait(message)
        return message.event_id

    async def redeliver(self, event_id: str) -> None:
        self._queue.put_nowait(self._messages[event_id])

    def is_acknowledged(self, event_id: str) -> bool:
        return event_id in self._acknowledged

    async def wait_acknowledged(self, event_id: str) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: event_id in self._acknowledged)

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def record(self, message: OutboundMessage) -> None:
        """It has a memory of its own."""

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        await self.adapter.until(lambda: len(self.adapter.sent) >= amount)
        return [(message.id, message.text) for message in self.adapter.sent]

    async def previewed(self, message_id: str, text: str) -> None:
        await self.adapter.until(
            lambda: any((each.id, each.text) == (message_id, text) for each in self.adapter.previews)
        )

    async def go_down(self) -> None:
        self.adapter.connect_failures = [AdapterNotReady("the platform is down") for _ in range(2)]

    async def come_up(self) -> None:
        self.adapter.connect_failures.clear()

    async def close(self) -> None:
        if self._delivering is not None:
            self._delivering.cancel()
            await asyncio.gather(self._delivering, return_exceptions=True)
            self._delivering = None


ABILITIES = {"can be down", "redelivers", "sends idempotently", "shows previews"}


class TestFakeChannel(AdapterSuite, abilities=ABILITIES):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[FakeHarness]:
        harness = FakeHarness()
        yield harness
        await harness.close()
