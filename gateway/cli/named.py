"""The map of users, for commands that look at the files themselves."""

from __future__ import annotations

from pathlib import Path

from gateway.people.identity import IdentityMap


def identities(home: Path) -> IdentityMap:
    """The map of the data directory."""
    return IdentityMap(home / "users" / "identity-map.json")
