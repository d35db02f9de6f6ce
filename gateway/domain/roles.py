"""What a person may do. `docs/access.md` has the same table for people; a test holds the two equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from gateway.protocols import MemoryPlace

Role = Literal["owner", "member", "guest"]
ROLES: tuple[Role, ...] = get_args(Role)
"""From the most that one may do to the least."""

Right = Literal[
    "talk",
    "keep own memory",
    "search own messages",
    "choose a personality",
    "read shared memory",
    "write shared memory",
    "have schedules",
    "let people in",
]

RIGHTS: Mapping[Right, frozenset[Role]] = {
    "talk": frozenset({"owner", "member", "guest"}),
    "keep own memory": frozenset({"owner", "member", "guest"}),
    "search own messages": frozenset({"owner", "member", "guest"}),
    "choose a personality": frozenset({"owner", "member"}),
    "read shared memory": frozenset({"owner", "member"}),
    "write shared memory": frozenset({"owner", "member"}),
    "have schedules": frozenset({"owner", "member"}),
    "let people in": frozenset({"owner"}),
}


def may(role: Role, right: Right) -> bool:
    """Whether the role has the right."""
    return role in RIGHTS[right]


def memory_of(role: Role, place: MemoryPlace) -> MemoryPlace:
    """Where the `MEMORY.md` is that somebody talks with: their own, where the role may not read a shared one."""
    return place if may(role, "read shared memory") else "per-user"


def highest(roles: Iterable[Role]) -> Role | None:
    """That with which one may do most; None of none."""
    return min(roles, key=ROLES.index, default=None)


def lowest(roles: Iterable[Role]) -> Role:
    """That with which one may do least, of one or more."""
    return max(roles, key=ROLES.index)


def needs(right: Right) -> str:
    """For somebody who has not the right: who has it, at the end of a sentence."""
    return " or ".join(role for role in ROLES if role in RIGHTS[right])
