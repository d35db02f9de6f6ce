"""Who is who, where the database is the truth: see `gateway.people.identity.identities.Identities`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from gateway.people.identity.file import (
    Account,
    IdentityDocument,
    Move,
    check_key,
    clean_label,
    empty_map,
    is_key,
    new_account,
    new_user_id,
)
from gateway.people.identity.identities import MapImport, User
from gateway.store.engine import Connection, Engine, require
from gateway.store.persons import LIVING
from gateway.store.rows import columns_of, insert, marks_for, value_of
from gateway.store.tombstones import DUE, tombstone_of

REMEMBERED = 20_000
"""Accounts that were asked for last, which answer what cannot wait; then all are forgotten."""
_AT_ONCE = 500
_ALL = "SELECT * FROM accounts ORDER BY coalesce(first_seen_at, 0), key"
_PERSON_OF = LIVING.format("(SELECT user_id FROM accounts WHERE key = ?)")
_LOCKED = "SELECT user_id FROM accounts WHERE key = ? "
_IS_STILL = f"SELECT 1 FROM ({_PERSON_OF}) AS person WHERE id = ? AND NOT EXISTS ({DUE})"  # noqa: S608 (constants)
_OF_USER = "SELECT * FROM accounts WHERE user_id = ? ORDER BY coalesce(first_seen_at, 0), key"


class SqlAccounts:
    """The table `accounts`. What was read last is kept, for `last_known` and `last_accounts_beside`."""

    is_checked_by_commits = True  # by `require_still`

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._users: dict[str, str] = {}
        self._accounts: dict[str, tuple[str, ...]] = {}

    async def resolve(self, key: str, label: str) -> str:
        user_id = (await self.known((key,))).get(key)
        if user_id is not None:
            return user_id
        account = partial(new_account, check_key(key), label, via="first-contact")

        def work(connection: Connection) -> str:
            _insert(connection, [account(user_id=_unused_id(connection))])
            return _users_of(connection, (key,))[key]

        return await self._engine.write(work, alone=())  # who comes first is decided by the primary key

    async def known(self, keys: Collection[str]) -> dict[str, str]:
        possible = list(filter(is_key, keys))
        accounts = await self._engine.ask(partial(_accounts_beside, keys=possible)) if possible else {}
        self._remember(keys, accounts)
        return {key: accounts[key] for key in keys if key in accounts}

    def last_known(self, keys: Collection[str]) -> dict[str, str]:
        return {key: self._users[key] for key in keys if key in self._users}

    def last_accounts_beside(self, key: str) -> list[str]:
        user_id = self._users.get(key)
        return [] if user_id is None else [other for other in self._accounts[user_id] if other != key]

    async def ensure_joined(self, keys: Sequence[tuple[str, str]], *, via: str) -> str:
        labels = {check_key(key): label for key, label in keys}

        def work(connection: Connection) -> str:
            known = _users_of(connection, labels)
            if len(known) < len(labels) and len(set(known.values())) <= 1:
                user_id = next(iter(known.values()), None) or _unused_id(connection)
                _insert(connection, [new_account(key, labels[key], user_id, via) for key in labels if key not in known])
                if not known:
                    _follow_first_contact(connection, labels, user_id)
                known = _users_of(connection, labels)
            return next(known[key] for key in labels if key in known)

        return await self._engine.write(work)

    async def move(self, moves: Mapping[str, Move]) -> None:
        await self._engine.write(partial(_move, moves=moves))

    async def add(self, key: str, label: str, *, user_id: str, via: str) -> bool:
        account = new_account(check_key(key), label, user_id, via)

        def work(connection: Connection) -> bool:
            _insert(connection, [account])
            return _users_of(connection, (key,))[key] == user_id

        return await self._engine.write(work)

    async def rename(self, keys: Collection[str], label: str) -> None:
        def work(connection: Connection) -> None:
            for key in sorted(keys):
                name = clean_label(label) or clean_label(key)
                connection.execute("UPDATE accounts SET label = ? WHERE key = ?", (name, key))

        await self._engine.write(work)

    async def erase(self, user_ids: Collection[str]) -> None:
        def work(connection: Connection) -> None:
            for user_id in sorted(user_ids):
                connection.execute("DELETE FROM accounts WHERE user_id = ?", (user_id,))

        await self._engine.write(work)
        self._users.clear()
        self._accounts.clear()

    async def users(self) -> list[User]:
        accounts: dict[str, list[Account]] = {}
        for row in await self._engine.rows(_ALL):
            accounts.setdefault(row["user_id"], []).append(value_of(Account, row))
        return [User(id=user_id, accounts=tuple(own)) for user_id, own in accounts.items()]

    async def accounts_of(self, user_id: str) -> list[Account]:
        return [value_of(Account, row) for row in await self._engine.rows(_OF_USER, (user_id,))]

    async def document(self) -> IdentityDocument:
        return empty_map().with_accounts([value_of(Account, row) for row in await self._engine.rows(_ALL)])

    async def take_in(self, accounts: Collection[Account], *, is_replacing: bool, is_dry_run: bool) -> MapImport:
        def changes(connection: Connection) -> MapImport:
            users = _users_of(connection, [one.key for one in accounts])
            return MapImport.of(accounts, users, is_replacing=is_replacing)

        def work(connection: Connection) -> MapImport:
            found = changes(connection)
            _insert(connection, found.added)
            _move(connection, found.moves)
            return found

        return await (self._engine.read(changes) if is_dry_run else self._engine.write(work))

    async def problems(self) -> list[str]:
        return []

    def _remember(self, keys: Collection[str], users: Mapping[str, str]) -> None:
        if len(self._users) + len(users) > REMEMBERED:
            self._users.clear()
            self._accounts.clear()
        for key in keys:
            self._users.pop(key, None)
        self._users.update(users)
        found: dict[str, list[str]] = {}
        for key, user_id in users.items():
            found.setdefault(user_id, []).append(key)
        self._accounts.update({user_id: tuple(own) for user_id, own in found.items()})


# ---- in the transactions of others ----------------------------------------------------------------------------------


def still_is(connection: Connection, account: str, user_id: str) -> bool:
    """Whether an account still is the user that was answered, and nobody erases that user; to be asked in a commit.

    Until the commit ends nobody can give the account another user. A link that is decided counts as carried out.
    Only where the table is the truth: on one machine it is empty, and the turn holds those off by its presence.
    """
    locking = connection.execute(_LOCKED + connection.dialect.shared, (account,))
    heirs = connection.execute(_PERSON_OF, (account,))  # behind the lock; a server is waited for once, for all three
    due = connection.execute(DUE)
    row = locking.fetchone()
    if row is None or heirs.fetchone()[0] != user_id:
        return False
    return not any(tombstone_of(each).names((user_id, row["user_id"])) for each in due)


def require_still(connection: Connection, account: str, user_id: str) -> None:
    """The same where nothing is read before the commit; refuses it also where anybody is to be erased."""
    require(connection, _LOCKED + connection.dialect.shared, (account,))
    require(connection, _IS_STILL, (account, user_id))


def settle(connection: Connection, user_ids: Iterable[str]) -> None:
    """Wait for the commits that have asked `still_is` about these users; those that ask later hear of a tombstone."""
    for user_id in sorted(user_ids):
        sql = f"SELECT key FROM accounts WHERE user_id = ? ORDER BY key {connection.dialect.locked}"  # noqa: S608 (names of ours)
        connection.execute(sql, (user_id,)).fetchall()


# ---- pieces ---------------------------------------------------------------------------------------------------------


def _users_of(connection: Connection, keys: Iterable[str]) -> dict[str, str]:
    """The user of each account that is there, in the order of the keys."""
    wanted = list(dict.fromkeys(keys))
    found: dict[str, str] = {}
    for some in _batches(wanted):
        sql = f"SELECT key, user_id FROM accounts WHERE key IN ({marks_for(some)})"  # noqa: S608 (question marks)
        found |= {row["key"]: row["user_id"] for row in connection.execute(sql, some)}
    return {key: found[key] for key in wanted if key in found}


def _accounts_beside(connection: Connection, keys: Sequence[str]) -> Callable[[], dict[str, str]]:
    """The user of each of these accounts, and of all others of the same users."""
    asked = []
    for some in _batches(keys):
        sql = f"""
            SELECT accounts.key, accounts.user_id FROM accounts
            JOIN (SELECT DISTINCT user_id FROM accounts WHERE key IN ({marks_for(some)})) AS asked
            ON asked.user_id = accounts.user_id ORDER BY coalesce(accounts.first_seen_at, 0), accounts.key
        """  # noqa: S608 (question marks)
        asked.append(connection.execute(sql, some))
    return lambda: {row["key"]: row["user_id"] for rows in asked for row in rows}


def _batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))


def _insert(connection: Connection, accounts: Iterable[Account]) -> None:
    """Write down those that are not there, in the order of their keys, so that no two writers wait for each other."""
    for account in sorted(accounts, key=lambda account: account.key):
        insert(connection, "accounts", columns_of(account), "ON CONFLICT (key) DO NOTHING")


def _move(connection: Connection, moves: Mapping[str, Move]) -> None:
    for key, move in sorted(moves.items()):
        users = sorted(move.from_users)
        sql = f"UPDATE accounts SET user_id = ?, via = ? WHERE key = ? AND user_id IN ({marks_for(users)})"  # noqa: S608 (names of ours)
        if users:
            connection.execute(sql, (move.to_user, move.via, key, *users))


def _follow_first_contact(connection: Connection, keys: Iterable[str], user_id: str) -> None:
    """Where one of the accounts came in while we wrote the others down: its user is the user of them all."""
    others = set(_users_of(connection, keys).values()) - {user_id}
    if len(others) == 1:
        connection.execute("UPDATE accounts SET user_id = ? WHERE user_id = ?", (others.pop(), user_id))


def _unused_id(connection: Connection) -> str:
    user_id = new_user_id(())
    while connection.execute("SELECT 1 FROM accounts WHERE user_id = ?", (user_id,)).fetchone() is not None:
        user_id = new_user_id(())
    return user_id
