"""The mail channel does what every adapter must, against real servers."""

from __future__ import annotations

from gateway.testing.adapters import AdapterSuite

ABILITIES = {"can be down", "drops connections", "knows strangers", "redelivers", "tries logins"}


class TestEmailAdapter(AdapterSuite, abilities=ABILITIES):
    """The fixture `harness` stands in `conftest.py`."""
