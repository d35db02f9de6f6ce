"""What people name on the command line: users."""

from __future__ import annotations

from pathlib import Path

from gateway.config import Config, LiveConfig
from gateway.domain.personalities import Personalities
from gateway.people.identity import IdentityMap
from gateway.services.caller import COMMAND_LINE, NotNamed, operator
from gateway.services.naming import Naming

__all__ = ["OPERATOR", "NotNamed", "find_user", "identities", "naming_of"]

OPERATOR = operator(COMMAND_LINE)


def identities(home: Path) -> IdentityMap:
    """The map of the data directory."""
    return IdentityMap(home / "users" / "identity-map.json")


def naming_of(home: Path, config: Config | None = None) -> Naming:
    """Finds who is meant; the default personality needs the configuration."""
    in_force = LiveConfig(config or Config())
    return Naming(home, identities(home), Personalities(home), config=in_force, option="--user")


async def find_user(home: Path, wanted: str) -> str:
    """The id of a user that was named by it, or by an account; raises as `Naming.user`."""
    return await naming_of(home).user(wanted)
