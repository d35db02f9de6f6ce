"""What the pages read and change, as the composition root gives it to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.budgets import UsageStore
from gateway.config import Config
from gateway.health import Health

if TYPE_CHECKING:
    from gateway.app import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Parts of the running gateway.

    Attributes:
        config: the configuration in force; a reload gives another.
    """

    health: Callable[[], Awaitable[Health]]
    usage: UsageStore
    config: Callable[[], Config]


def sources_of(gateway: Gateway) -> Sources:
    """Those of a gateway."""
    return Sources(health=gateway.health, usage=gateway.store.usage, config=lambda: gateway.config)
