"""Discord does what every adapter must."""

from __future__ import annotations

from tests.conformance.adapters import AdapterConformance

ABILITIES = {"can be down", "drops connections", "knows strangers", "redelivers", "shows previews"}


class TestDiscordAdapter(AdapterConformance, abilities=ABILITIES):
    """The harness is that of `conftest`."""
