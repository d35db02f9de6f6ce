"""Slack does what every adapter must, by both ways in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.testing.adapters import AdapterSuite
from tests.adapters.slack.harness import HttpHarness, SocketHarness

ABILITIES = {"can be down", "redelivers", "shows previews", "knows strangers", "tries logins"}


class TestSlackBySocketMode(AdapterSuite, abilities={*ABILITIES, "drops connections"}):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[SocketHarness]:
        # Without catch-up: in these tests what was delivered must not come a second time.
        harness = SocketHarness(catch_up_h=0)
        await harness.start()
        yield harness
        await harness.close()


class TestSlackByHttp(AdapterSuite, abilities=ABILITIES):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[HttpHarness]:
        harness = HttpHarness(catch_up_h=0)
        await harness.start()
        yield harness
        await harness.close()
