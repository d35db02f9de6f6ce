"""The Telegram channel does what every adapter must, in both ways of receiving."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.testing.adapters import AdapterSuite
from tests.adapters.telegram.harness import PollingHarness, WebhookHarness

ABILITIES = {"can be down", "redelivers", "sends idempotently", "shows previews", "knows strangers"}


class TestTelegramPolling(AdapterSuite, abilities={*ABILITIES, "drops connections", "tries logins"}):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[PollingHarness]:
        harness = PollingHarness()
        await harness.start()
        yield harness
        await harness.adapter.close()
        await harness.close()


class TestTelegramWebhook(AdapterSuite, abilities=ABILITIES):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[WebhookHarness]:
        harness = WebhookHarness()
        await harness.start()
        yield harness
        await harness.adapter.close()
        await harness.close()
