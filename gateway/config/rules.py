"""From the configuration to what the core works by."""

from __future__ import annotations

from gateway.access import AccessRule
from gateway.config import Config
from gateway.turn_services import TurnSettings


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


def turn_settings_of(config: Config) -> TurnSettings:
    """What concerns a turn."""
    by_channel = {name: channel.personality for name, channel in config.channels.items()}
    return TurnSettings(
        default_personality=config.personality,
        personality_of_channel=by_channel.get,
        session_scope=config.session_scope,
        steps_per_turn=config.limits.steps_per_turn,
        turn_timeout_s=config.limits.turn_timeout_s,
        max_message_chars=config.limits.max_message_chars,
    )
