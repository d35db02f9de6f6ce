"""What people name on the command line: personalities, users, and the memory of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.config import Config, LiveConfig
from gateway.domain.personalities import Personalities
from gateway.people.identity import IdentityMap
from gateway.protocols import MemoryScope, MemoryStoreName
from gateway.services import naming
from gateway.services.caller import NotNamed, operator
from gateway.services.naming import Naming, Wanted

__all__ = ["CHANNEL", "OPERATOR", "NotNamed", "Wanted", "find_memory", "find_user", "identities", "labels", "scope_of"]

CHANNEL = "command-line"
"""Stands in the journal where a channel stands for other changes."""
OPERATOR = operator(CHANNEL)


def identities(home: Path) -> IdentityMap:
    """The map of the data directory."""
    return IdentityMap(home / "users" / "identity-map.json")


def naming_of(home: Path, config: Config | None = None) -> Naming:
    """Finds who is meant; the default personality needs the configuration."""
    in_force = LiveConfig(config or Config())
    return Naming(home, identities(home), Personalities(home), config=in_force, option="--user")


async def labels(home: Path) -> dict[str, str]:
    """A name for each user, for people; empty where the map cannot be read."""
    return await naming_of(home).labels()


async def find_user(home: Path, wanted: str) -> str:
    """The id of a user that was named by it, or by an account; raises as `Naming.user`."""
    return await naming_of(home).user(wanted)


async def find_memory(home: Path, config: Config, wanted: Wanted) -> tuple[MemoryScope, Sequence[MemoryStoreName]]:
    """Whose memory is meant, and which of its stores; raises as `Naming.memory`."""
    return await naming_of(home, config).memory(OPERATOR, wanted)


def scope_of(document: str) -> tuple[MemoryScope, MemoryStoreName]:
    """The scope in which a document of the journal is found; raises as `naming.scope_of`."""
    return naming.scope_of(OPERATOR, document)
