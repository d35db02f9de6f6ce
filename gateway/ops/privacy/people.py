"""Whom a tombstone, or a user id, means in a data directory: their user ids, and their accounts on each channel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from gateway.domain.tombstones import Tombstone
from gateway.people.identity.file import Account
from gateway.store.engine import Connection
from gateway.store.gathering import KEY_COLUMNS, USER_COLUMNS, Person
from gateway.store.payloads import storable, to_ms
from gateway.store.persons import ids_of_person, living_id

_SENDERS = "SELECT DISTINCT channel, sender FROM inbox WHERE accepted_at <= ?"


def ids_of(connection: Connection, user_id: str) -> frozenset[str]:
    """All ids of the person whose one this is, be it the one that lives or one that was absorbed."""
    return frozenset(ids_of_person(connection, living_id(connection, user_id)))


def is_known(connection: Connection, key: str, *, kinds: Mapping[str, str]) -> bool:
    """Whether anything is kept of an account, `kind:id`, though it may be no user's: a stranger asked to be let in."""
    until_ms = 1 << 62
    return key in _values(connection, KEY_COLUMNS) or bool(
        accounts_of(connection, [key], kinds=kinds, until_ms=until_ms)
    )


def known_user_ids(connection: Connection) -> frozenset[str]:
    """Everybody of whom the database tells; reads whole tables."""
    return _values(connection, USER_COLUMNS)


def _values(connection: Connection, columns: Iterable[tuple[str, str]]) -> frozenset[str]:
    found: set[str] = set()
    for table, column in columns:
        sql = f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"  # noqa: S608 (names of ours)
        found |= {row[0] for row in connection.execute(sql)}
    return frozenset(found)


def named(
    connection: Connection,
    tombstone: Tombstone,
    *,
    accounts: Collection[Account],
    user_ids: Iterable[str],
    kinds: Mapping[str, str],
) -> Person:
    """Whom a tombstone means.

    Args:
        accounts: of the identity map.
        user_ids: other ids that were seen, as names of directories and in the traces.
        kinds: of channels, by name. A channel that is not configured any more is taken for one of the kind in which the
            person has an account of the same id.
    """
    candidates = {*user_ids, *known_user_ids(connection), *(account.user_id for account in accounts)}
    gone = tombstone.names(candidates)
    keys = {account.key for account in accounts if account.user_id in gone}
    erased_at_ms = to_ms(tombstone.erased_at)
    senders = connection.execute(_SENDERS, (erased_at_ms,)).fetchall()
    known = {f"{kinds[channel]}:{account}" for channel, account in senders if channel in kinds}
    keys |= tombstone.names({*known, *(account.key for account in accounts), *_values(connection, KEY_COLUMNS)})
    on_channels = _on_channels(senders, keys, kinds)
    return Person(user_ids=gone, accounts=on_channels, keys=frozenset(keys), erased_at_ms=erased_at_ms)


def accounts_of(
    connection: Connection, keys: Collection[str], *, kinds: Mapping[str, str], until_ms: int
) -> frozenset[tuple[str, str]]:
    """The accounts of a person on the channels that they wrote on."""
    return _on_channels(connection.execute(_SENDERS, (until_ms,)).fetchall(), keys, kinds)


def directories_of_users(home: Path) -> Sequence[str]:
    """The names in `users/`, each a user id."""
    users = home / "users"
    return [entry.name for entry in users.iterdir() if entry.is_dir()] if users.is_dir() else []


def _on_channels(
    senders: Iterable[tuple[str, str]], keys: Collection[str], kinds: Mapping[str, str]
) -> frozenset[tuple[str, str]]:
    keys = {storable(key) for key in keys}  # as the senders are kept
    ids = {key.partition(":")[2] for key in keys}
    return frozenset(
        (channel, account)
        for channel, account in senders
        if (f"{kinds[channel]}:{account}" in keys if channel in kinds else account in ids)
    )
