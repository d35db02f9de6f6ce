"""The mail channel does what every adapter must, against real servers."""

from __future__ import annotations

from tests.conformance.adapters import AdapterConformance

ABILITIES = {"can be down", "drops connections", "knows strangers", "redelivers"}


class TestEmailAdapter(AdapterConformance, abilities=ABILITIES):
    """The fixture `harness` stands in `conftest.py`."""
