"""What the tests of Discord share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import adapters.discord  # noqa: F401 (before the SDK by itself: it knows which of its warnings mean nothing)
from tests.adapters.discord.harness import DiscordHarness, discord_harness


@pytest.fixture
async def harness() -> AsyncIterator[DiscordHarness]:
    """The adapter, not connected yet, and a Discord that runs."""
    async with discord_harness() as harness:
        yield harness
