from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import adapters.discord  # noqa: F401 (before the SDK by itself: it knows which of its warnings mean nothing)
from tests.scenarios.process import Ethos


@pytest.fixture
def ethos(tmp_path: Path) -> Iterator[Ethos]:
    """A new data directory whose web page takes a free port."""
    runner = Ethos(tmp_path / "home")
    runner.configure("web: {port: 0}\n")
    yield runner
    runner.close()
