"""For all tests: the log as a gateway writes it when it is not in a terminal."""

from __future__ import annotations

import signal
import sys

import pytest

from gateway.runtime.logs import configure_logs

# A shell in the background, or nohup, lets what it runs ignore signals, and children inherit that; ours must not.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _log() -> None:
    configure_logs("info", "json", stream=sys.stderr)
