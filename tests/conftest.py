"""For all tests: the log as a gateway writes it when it is not in a terminal."""

from __future__ import annotations

import signal
import sys

import pytest

from gateway.logs import configure_logs


# A shell that runs something in the background lets it ignore Ctrl-C, and its children inherit that; ours must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _log() -> None:
    configure_logs("info", "json", stream=sys.stderr)
