"""Who is who, for all that ask: the file of one machine, or the table of a database that many workers share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.people.identity.file import Account, IdentityDocument, Move


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person, and the accounts that they write from, in the order of the map."""

    id: str
    accounts: tuple[Account, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapImport:
    """What an import of a map changes, or would.

    Attributes:
        added: accounts that were not known.
        moved: accounts that get another user; each with the user that it had.
        kept: accounts that keep their user, though the import names another; each with the user that it has.
        same: how many are known with the same user.
    """

    added: tuple[Account, ...]
    moved: tuple[tuple[Account, str], ...]
    kept: tuple[tuple[Account, str], ...]
    same: int

    @classmethod
    def of(cls, accounts: Collection[Account], users: Mapping[str, str], *, is_replacing: bool) -> MapImport:
        """What these accounts change of a map that has these users by account."""
        known = [(one, users[one.key]) for one in accounts if one.key in users]
        other = tuple((one, user_id) for one, user_id in known if one.user_id != user_id)
        return cls(
            added=tuple(one for one in accounts if one.key not in users),
            moved=other if is_replacing else (),
            kept=() if is_replacing else other,
            same=len(known) - len(other),
        )

    @property
    def moves(self) -> Mapping[str, Move]:
        """The ways of the accounts that get another user, by key."""
        return {one.key: Move(from_users=(user_id,), to_user=one.user_id, via=one.via) for one, user_id in self.moved}

    def applied_to(self, document: IdentityDocument) -> IdentityDocument | None:
        """The map with these changes; None where there are none."""
        moved = document.with_moves(self.moves)
        return (moved or document).with_accounts(self.added) if self.added else moved


class Identities(Protocol):
    """The map from accounts to users.

    An account's key is `kind:id`, the platform and its own stable id. A user id is opaque and random. Any number of
    instances, in any number of processes, may share a map.

    Every method but those that look at nothing raises:
        IdentityMapBroken: the file cannot be used and there is no good copy of it, or a newer program wrote it.
        FileError: the file cannot be reached, locked or written now; nothing was changed.
        StoreUnavailable: the same of the database.
    """

    is_checked_by_commits: bool
    """Whether a turn's commit asks again who is behind the account, so it may begin with what was read before."""

    async def resolve(self, key: str, label: str) -> str:
        """The user behind an account; on first contact a new one is written down.

        Args:
            key: `kind:id`.
            label: a name for people to read in the map. It is written on first contact and never after, because
                names change often and prove nothing.

        Raises:
            InvalidAccount: the key cannot stand in the map.
        """

    async def known(self, keys: Collection[str]) -> dict[str, str]:
        """The user behind each of these accounts that is in the map. No new user is written down."""

    def last_known(self, keys: Collection[str]) -> dict[str, str]:
        """The same of what was read last, without a look at the map; empty before the first reading."""

    def last_accounts_beside(self, key: str) -> list[str]:
        """The other accounts of the user who has this one, of what was read last."""

    async def ensure_joined(self, keys: Sequence[tuple[str, str]], *, via: str) -> str:
        """See to it that accounts which are proved to be one person's are one user.

        Accounts that have different users already were separated by hand, and stay so.

        Args:
            keys: at least one pair of a key and a label, as `resolve` takes them.
            via: how they were proved to be one person's, for people to read in the map.

        Returns:
            The user of the first account that has one.

        Raises:
            InvalidAccount: a key cannot stand in the map.
        """

    async def move(self, moves: Mapping[str, Move]) -> None:
        """Give accounts another user, by key. Those that have a third user, or are not in the map, stay as they are."""

    async def add(self, key: str, label: str, *, user_id: str, via: str) -> bool:
        """Write down an account that is known to be a user's; False where it is another user's already.

        Raises:
            InvalidAccount: the key cannot stand in the map.
        """

    async def rename(self, keys: Collection[str], label: str) -> None:
        """Give accounts another name for people. Those that are not in the map are left out."""

    async def erase(self, user_ids: Collection[str]) -> None:
        """Take users out of the map, and out of every copy of it."""

    async def users(self) -> list[User]:
        """Everybody, in the order of the map."""

    async def accounts_of(self, user_id: str) -> list[Account]:
        """The accounts of one user; none for a stranger."""

    async def document(self) -> IdentityDocument:
        """The map as it is now."""

    async def take_in(self, accounts: Collection[Account], *, is_replacing: bool, is_dry_run: bool) -> MapImport:
        """Bring accounts of another map into this one, all of them or none.

        Args:
            accounts: each key once.
            is_replacing: an account may get another user than it has.
            is_dry_run: only say what would change.
        """

    async def problems(self) -> list[str]:
        """What an operator should look at, one line each, with what to do; for `ethos doctor` and `ethos status`."""
