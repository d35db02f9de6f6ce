"""From the configuration of the channels to the rules of access."""

from __future__ import annotations

from gateway.access import AccessRule
from gateway.config import Config


def rules_of(config: Config) -> dict[str, AccessRule]:
    """Who may talk on which channel."""
    return {
        name: AccessRule(
            mode=channel.access,
            in_groups=channel.access_in_groups,
            allow=frozenset(channel.allow),
            role=channel.role,
        )
        for name, channel in config.channels.items()
    }
