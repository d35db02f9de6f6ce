"""The webhook does what every adapter must."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.testing.adapters import AdapterSuite
from tests.adapters.webhook.other_side import WebhookHarness

ABILITIES = {"drops connections", "knows strangers", "redelivers", "sends idempotently"}


class TestWebhookAdapter(AdapterSuite, abilities=ABILITIES):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[WebhookHarness]:
        harness = WebhookHarness()
        await harness.start()
        yield harness
        await harness.close()
        await harness.adapter.close()
