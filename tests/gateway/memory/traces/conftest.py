"""A brain of one's own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.traces.trace_store import BRAIN_NAME, Brain, open_brain
from tests.gateway.memory.traces.people import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def brain(tmp_path: Path, clock: Clock) -> AsyncIterator[Brain]:
    async with open_brain(tmp_path / BRAIN_NAME, now=clock) as brain:
        yield brain
