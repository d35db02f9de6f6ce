"""Every test has a Slack of its own, and no proxy: the SDK would use one even for this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.adapters.slack.harness import HttpHarness, SocketHarness


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def person() -> AsyncIterator[SocketHarness]:
    harness = SocketHarness()
    await harness.start()
    yield harness
    await harness.adapter.close()
    await harness.close()


@pytest.fixture
async def web_person() -> AsyncIterator[HttpHarness]:
    harness = HttpHarness()
    await harness.start()
    yield harness
    await harness.adapter.close()
    await harness.close()
