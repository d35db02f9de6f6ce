"""What the pages read and change, as the composition root gives it to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.config import Config
from gateway.config.changes import Reloaded
from gateway.domain.personalities import Personalities
from gateway.protocols import CommandInfo
from gateway.services.naming import Naming
from gateway.services.operator_services import OperatorServices


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Parts of the running gateway.

    Attributes:
        services: what an operator can do; the same that the API asks.
        config: the configuration in force; a reload gives another.
        home: the data directory.
        naming: whom and what people name.
        reload: takes a changed configuration over.
        commands: what may be typed in a chat.
    """

    services: OperatorServices
    config: Callable[[], Config]
    home: Path
    reload: Callable[[], Awaitable[Reloaded]]
    naming: Naming
    personalities: Personalities
    commands: Callable[[], Sequence[CommandInfo]]
