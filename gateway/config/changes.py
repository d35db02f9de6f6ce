"""What differs between two configurations, and what of it a running gateway can take over."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config import Config
from gateway.config.values import Section

# Whole sections, or single settings of one; whatever is not named here needs a restart.
AT_ONCE = frozenset({
    "model", "models", "personality", "session_scope", "channels", "memory.max_chars",
    "limits.steps_per_turn", "limits.turn_timeout_s", "limits.history_tokens", "limits.max_message_chars",
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
    kept: dict[str, object] = {}
    for name in type(new).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if isinstance(after, Section) and isinstance(before, Section):
            kept_here = _compare_section(name, before, after, at_once, at_restart)
            if kept_here:
                kept[name] = after.model_copy(update=kept_here)
        elif name in AT_ONCE:
            at_once.extend(_entries(name, before, after))
        else:
            at_restart.append(name)
            kept[name] = before
    return Comparison(
        at_once=tuple(at_once), at_restart=tuple(at_restart), config=new.model_copy(update=kept) if kept else new
    )


def _compare_section(
    name: str, before: Section, after: Section, at_once: list[str], at_restart: list[str]
) -> dict[str, object]:
    """Note each setting of a section that changed; the old values of those that must wait."""
    kept: dict[str, object] = {}
    for setting in type(after).model_fields:
        if getattr(before, setting) == getattr(after, setting):
            continue
        dotted = f"{name}.{setting}"
        if name in AT_ONCE or dotted in AT_ONCE:
            at_once.append(dotted)
        else:
            at_restart.append(dotted)
            kept[setting] = getattr(before, setting)
    return kept


def _entries(name: str, before: object, after: object) -> list[str]:
    """Each entry of a mapping that changed, such as `channels.web`; else the setting itself."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [name]
    return [f"{name}.{key}" for key in {**before, **after} if before.get(key) != after.get(key)]
