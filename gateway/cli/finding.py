"""What a check of `ethos doctor` finds, and what it may look at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from gateway.cli.process import HealthUnknown, ask_health
from gateway.config import Config
from gateway.files.running_gateway import GatewayProcess

Level = Literal["problem", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an operator should know.

    Attributes:
        level: a `problem` keeps something from working or exposes something; a `warning` does not yet; a `note` is how
            things are.
        what: is the case, on one line or more.
        advice: what to do; empty for a note.
    """

    level: Level
    what: str
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the checks look at.

    Attributes:
        home: the data directory.
        config: the whole configuration; None where it cannot be used.
        process: the gateway that runs on it, None where none does.
        asks_models: they are called, over the network.
    """

    home: Path
    config: Config | None
    process: GatewayProcess | None
    asks_models: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether the database is on a server, for many workers."""
        return self.config is not None and self.config.has_others

    @cached_property
    def health(self) -> Mapping[str, Any] | HealthUnknown:
        """What the gateway that runs says of itself, or why it does not; a silent one is asked once."""
        try:
            return ask_health(self.home)
        except HealthUnknown as unknown:
            return unknown


Check = Callable[[Ground], Iterator[Finding] | AsyncIterator[Finding]]
"""Looks at one thing and yields what is to be said about it; never raises for what it is there to find."""
