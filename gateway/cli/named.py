"""What people name on the command line: personalities, users, and the memory of both."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.config import Config
from gateway.errors import EthosError, FileError, IdentityMapBroken, InvalidId
from gateway.files import check_id
from gateway.identity import IdentityMap, User
from gateway.marked.validation import did_you_mean
from gateway.personalities import Personalities
from gateway.protocols import MemoryPlace, MemoryScope, MemoryStoreName

CHANNEL = "command-line"
"""Stands in the journal where a channel stands for other changes."""
_TURN = "cli"  # the memory adds what makes each write a turn of its own
_MOST_LISTED = 20


class NotNamed(EthosError):
    """It is not clear who is meant, or nobody is known by that name; the text says who there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of a memory command, as they were given."""

    personality: str | None = None
    user: str | None = None
    store: MemoryStoreName | None = None


def identities(home: Path) -> IdentityMap:
    """The map of the data directory."""
    return IdentityMap(home / "users" / "identity-map.json")


async def labels(home: Path) -> dict[str, str]:
    """A name for each user, for people; empty where the map cannot be read."""
    with contextlib.suppress(IdentityMapBroken, FileError):
        return {user.id: user.accounts[0].label for user in await identities(home).users()}
    return {}


async def find_user(home: Path, wanted: str) -> str:
    """The id of a user that was named by it, or by an account.

    Raises:
        InvalidId: it can be neither.
        NotNamed: nobody is known by it.
    """
    users = await identities(home).users()
    for user in users:
        if wanted == user.id or wanted in (account.key for account in user.accounts):
            return user.id
    if ":" not in wanted:
        check_id("user", wanted)
        if (home / "users" / wanted).is_dir():  # taken out of the map; the memory is still there
            return wanted
    known = [user.id for user in users] + [account.key for user in users for account in user.accounts]
    raise NotNamed(f"there is no user {wanted}{did_you_mean(wanted, known)}; {_listed(users)}")


async def only_user(home: Path) -> str | None:
    """The id of the only user, None where nobody is known yet.

    Raises:
        NotNamed: there are several; lists them.
    """
    users = await identities(home).users()
    if len(users) > 1:
        raise NotNamed(f"there are {len(users)} users; say which with --user:\n{_listed(users)}")
    return users[0].id if users else None


async def find_memory(home: Path, config: Config, wanted: Wanted) -> tuple[MemoryScope, Sequence[MemoryStoreName]]:
    """Whose memory is meant, and which of its stores: those that were not excluded and can be there.

    Raises:
        InvalidId: an id is malformed.
        PersonalityError: there is no such personality.
        NotNamed: it is not clear which user is meant, or there is none.
    """
    personality = Personalities(home).get(wanted.personality or config.personality)
    is_per_user = personality.memory_scope == "per-user"
    stores: list[MemoryStoreName] = [wanted.store] if wanted.store else ["user", "memory"]
    user_id = None
    if wanted.user is not None:
        user_id = await find_user(home, wanted.user)
    elif "user" in stores or is_per_user:
        user_id = await only_user(home)
    if user_id is None:
        stores = [] if is_per_user else [store for store in stores if store != "user"]
    if not stores:
        raise NotNamed("nobody is known yet, so there is no memory of anybody; whoever writes first becomes known")
    return _scope(personality.id, user_id, personality.memory_scope), stores


def scope_of(document: str) -> tuple[MemoryScope, MemoryStoreName]:
    """The scope in which a document of the journal is found, from the path that names it there.

    Raises:
        InvalidId: it is no path of a memory document.
    """
    match document.split("/"):
        case ["users", user_id, "USER.md"]:
            return _scope("assistant", user_id), "user"  # which personality makes no difference to a USER.md
        case ["MEMORY.md"]:
            return _scope("assistant", None, "global"), "memory"
        case ["personalities", personality_id, "MEMORY.md"]:
            return _scope(personality_id, None), "memory"
        case ["users", user_id, "personalities", personality_id, "MEMORY.md"]:
            return _scope(personality_id, user_id, "per-user"), "memory"
    raise InvalidId("document", document)


def _scope(personality_id: str, user_id: str | None, place: MemoryPlace = "per-personality") -> MemoryScope:
    """On behalf of the operator, who has no session."""
    return MemoryScope(
        personality_id=personality_id,
        user_id=user_id,
        session_id=None,
        turn_id=_TURN,
        place=place,
        channel=CHANNEL,
    )


def _listed(users: Sequence[User]) -> str:
    if not users:
        return "nobody is known yet"
    lines = [f"  {user.id}  {', '.join(account.key for account in user.accounts)}" for user in users[:_MOST_LISTED]]
    more = [f"  and {len(users) - _MOST_LISTED} more: `ethos users list`"] if len(users) > _MOST_LISTED else []
    return "\n".join(["there are:", *lines, *more])
