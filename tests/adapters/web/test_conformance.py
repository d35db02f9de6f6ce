"""The web channel does what every adapter must."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.web.open_page import WebHarness
from tests.conformance.adapters import AdapterConformance

ABILITIES = {"drops connections", "redelivers", "sends idempotently", "shows previews"}


class TestWebAdapter(AdapterConformance, abilities=ABILITIES):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[WebHarness]:
        harness = WebHarness(tmp_path)
        yield harness
        await harness.close()
        await harness.adapter.close()
