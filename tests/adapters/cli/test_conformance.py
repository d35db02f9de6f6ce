"""The terminal channel does what every adapter must."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.cli.terminal import CliHarness
from tests.conformance.adapters import AdapterConformance

ABILITIES = {
    "can be down",
    "drops connections",
    "knows strangers",
    "redelivers",
    "sends idempotently",
    "shows previews",
}


class TestCliAdapter(AdapterConformance, abilities=ABILITIES):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[CliHarness]:
        harness = CliHarness(tmp_path)
        yield harness
        await harness.close()
        await harness.adapter.close()
