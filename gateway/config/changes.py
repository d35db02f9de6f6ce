"""What differs between two configurations, and what of it a running gateway can take over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from gateway.config import Config
from gateway.config.values import Section

S = TypeVar("S", bound=Section)

# Whole sections, or single settings of one; whatever is not named here needs a restart.
AT_ONCE = frozenset({
    "model", "models", "personality", "session_scope", "time_zone", "channels", "approvals", "memory.max_chars",
    "hooks", "heartbeat", "mcp.serve", "mcp.servers", "tools.schema_tokens", "web.allow", "skills",
    "limits.steps_per_turn", "limits.tool_calls_per_turn", "limits.turn_timeout_s", "limits.history_tokens",
    "limits.max_message_chars",
    "limits.parked_expire_after_h", "delivery", "budgets", "log", "retention", "shutdown_s",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The way from one configuration to another.

    Attributes:
        at_once: settings that changed and can be taken over, dotted.
        at_restart: those that cannot.
        config: the new configuration, with the old values of the latter.
    """

    at_once: tuple[str, ...]
    at_restart: tuple[str, ...]
    config: Config


def compare(old: Config, new: Config) -> Comparison:
    """What changed from `old` to `new`."""
    at_once: list[str] = []
    at_restart: list[str] = []
    config = _compare(old, new, "", at_once, at_restart)
    return Comparison(at_once=tuple(at_once), at_restart=tuple(at_restart), config=config)


def _compare(before: S, after: S, section: str, at_once: list[str], at_restart: list[str]) -> S:
    """Note each setting that changed; the new ones, with the old values of those that must wait."""
    kept: dict[str, object] = {}
    for name in type(after).model_fields:
        one, other = getattr(before, name), getattr(after, name)
        dotted = f"{section}.{name}" if section else name
        if one == other:
            continue
        if not section and isinstance(other, Section):
            kept[name] = _compare(one, other, name, at_once, at_restart)
        elif section in AT_ONCE or dotted in AT_ONCE:
            at_once.extend([dotted] if section else _entries(name, one, other))
        else:
            at_restart.append(dotted)
            kept[name] = one
    return after.model_copy(update=kept)


def _entries(name: str, before: object, after: object) -> list[str]:
    """Each entry of a mapping that changed, such as `channels.web`; else the setting itself."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [name]
    return [f"{name}.{key}" for key in {**before, **after} if before.get(key) != after.get(key)]
