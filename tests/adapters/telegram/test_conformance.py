"""The Telegram channel does what every adapter must, in both ways of receiving."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.adapters.telegram.harness import PollingHarness, WebhookHarness
from tests.conformance.adapters import AdapterConformance

ABILITIES = {"can be down", "redelivers", "sends idempotently", "shows previews", "knows strangers"}


class TestTelegramPolling(AdapterConformance, abilities={*ABILITIES, "drops connections"}):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[PollingHarness]:
        harness = PollingHarness()
        await harness.start()
        yield harness
        await harness.adapter.close()
        await harness.close()


class TestTelegramWebhook(AdapterConformance, abilities=ABILITIES):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[WebhookHarness]:
        harness = WebhookHarness()
        await harness.start()
        yield harness
        await harness.adapter.close()
        await harness.close()
