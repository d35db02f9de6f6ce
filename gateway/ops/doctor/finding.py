"""What a check finds, how it can be repaired, and what a check may look at."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.config import Config
from gateway.config.speech import ServiceConfig
from gateway.config.web import SearchConfig
from gateway.errors import EthosError
from gateway.files.running_gateway import GatewayProcess
from gateway.sdk.models.deliveries import Queue
from gateway.sdk.models.system import Level
from gateway.store.stores import Stores

if TYPE_CHECKING:
    from gateway.protocols import MemoryProvider
    from gateway.speech.contract import Listen, Speak
    from gateway.tools.contract import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """How a finding is repaired. It may be done twice, and be killed in between.

    Attributes:
        label: on the button, a verb.
        does: what it will do, in a sentence.
        asks: it cannot be undone, so a person confirms it first.
        run: does it, and says what it did; raises EthosError or OSError where it could not. None: only the parts of
            a gateway can do it, and this look was from outside.
    """

    label: str
    does: str
    run: Callable[[], Awaitable[str]] | None
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an operator should know.

    Attributes:
        id: the same in each look for as long as it is the same thing.
        level: a `problem` keeps something from working or exposes something; a `warning` does not yet; a `note` is how
            things are.
        what: is the case, on one line or more.
        advice: what to do; empty for a note.
        repair: what we can do about it; None where only a person can.
        page: where on the dashboard it is done or seen, below `/dashboard/`; empty where nowhere.
    """

    id: str
    level: Level
    what: str
    advice: str = ""
    repair: Repair | None = field(default=None, kw_only=True)
    page: str = field(default="", kw_only=True)


def named(kind: str, text: str) -> str:
    """The id of a finding that nothing but its text tells from others; numbers in it (lines, ages) do not count."""
    return f"{kind}-{hashlib.sha256(re.sub(r'[0-9]+', '', text).encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What is put together from the configuration, to be tried; each raises what its maker raises.

    Attributes:
        made_tools: of a package, by the data directory and what is chosen of it.
        made_memory: by an empty data directory, the configuration and its database.
        has_skills: whether there are places for skills.
        look_at_workspaces: as in `app/workspaces.py`.
    """

    made_tools: Callable[..., object]
    made_memory: Callable[[Path, Config, Stores], MemoryProvider]
    search_of: Callable[[SearchConfig], Search]
    listening_of: Callable[[ServiceConfig], Listen]
    speaking_of: Callable[[ServiceConfig], Speak]
    has_skills: Callable[..., bool]
    look_at_workspaces: Callable[..., Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What the parts of a gateway can repair. Each says what it did.

    Attributes:
        withheld: servers of tools, with how many of theirs wait to be accepted.
        is_changed: whether `config.yaml` has other values than the configuration that serves.
    """

    retry_dead: Callable[[Queue, str], Awaitable[str]]
    bring_in_memory: Callable[[], Awaitable[str]]
    build_index: Callable[[], Awaitable[str]]
    back_up: Callable[[], Awaitable[str]]
    connect: Callable[[str], Awaitable[str]]
    reload: Callable[[], Awaitable[str]]
    forget_old: Callable[[], Awaitable[str]]
    withheld: Callable[[], Mapping[str, int]]
    is_changed: Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the checks look at.

    Attributes:
        home: the data directory.
        config: the whole configuration; None where it cannot be used.
        process: the gateway that runs on it, None where none does.
        parts: what can be put together and tried.
        opened_store: the database; None where there is none yet. Raises ConfigError and StoreError.
        ask_health: what the gateway that runs says of itself; raises EthosError where it does not. Blocks.
        hands: what it can repair; None where this is a look from outside.
        asks_models: they are called, over the network.
    """

    home: Path
    config: Config | None
    process: GatewayProcess | None
    parts: Parts
    opened_store: Callable[[], AbstractAsyncContextManager[Stores | None]]
    ask_health: Callable[[], Mapping[str, Any]]
    hands: Hands | None = None
    asks_models: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether the database is on a server, for many workers."""
        return self.config is not None and self.config.has_others

    @cached_property
    def health(self) -> Mapping[str, Any] | EthosError:
        """What the gateway that runs says of itself, or why it does not; a silent one is asked once."""
        try:
            return self.ask_health()
        except EthosError as unknown:
            return unknown

    def by_hands(self, label: str, does: str, run: Callable[[Hands], Awaitable[str]], *, asks: bool = False) -> Repair:
        """A repair by the parts of a gateway."""
        hands = self.hands
        return Repair(label=label, does=does, asks=asks, run=None if hands is None else lambda: run(hands))


Check = Callable[[Ground], Iterator[Finding] | AsyncIterator[Finding]]
"""Looks at one thing and yields what is to be said about it; never raises for what it is there to find.

One that is no coroutine is run in a thread.
"""
