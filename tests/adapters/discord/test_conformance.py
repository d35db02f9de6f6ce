"""Discord does what every adapter must."""

from __future__ import annotations

from gateway.testing.adapters import AdapterSuite

ABILITIES = {"can be down", "drops connections", "knows strangers", "redelivers", "shows previews", "tries logins"}


class TestDiscordAdapter(AdapterSuite, abilities=ABILITIES):
    """The harness is that of `conftest`."""
