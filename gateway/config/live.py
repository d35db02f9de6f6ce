"""The configuration in force."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config import Config


@dataclass(slots=True)
class LiveConfig:
    """What the configuration is now: a reload gives another, so keep this and not what is in it."""

    current: Config
