"""For all tests: the log as a gateway writes it when it is not in a terminal."""

from __future__ import annotations

import sys

import pytest

from gateway.logs import configure_logs


@pytest.fixture(autouse=True)
def _log() -> None:
    configure_logs("info", "json", stream=sys.stderr)
