"""Whom a tombstone, or a user id, means in a data directory: their user ids, and their accounts on each channel."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from gateway.identity.file import Account
from gateway.privacy.tombstones import Tombstone
from gateway.store.erasure import Person, tables_of
from gateway.store.payloads import to_ms

_USER_IDS = {
    "sessions": "SELECT user_id FROM sessions",
    "messages": "SELECT user_id FROM messages",
    "usage": "SELECT user_id FROM usage",
    "memory_journal": "SELECT user_id FROM memory_journal WHERE user_id IS NOT NULL",
    "user_links": "SELECT survivor FROM user_links UNION SELECT absorbed FROM user_links",
}
_SENDERS = """
    SELECT DISTINCT channel, json_extract(payload, '$.sender[1]') FROM inbox WHERE accepted_at <= ?
"""
_LINKED = """
    WITH RECURSIVE person (id) AS (
        SELECT ? UNION SELECT absorbed FROM user_links JOIN person ON survivor = person.id WHERE undone_at IS NULL
    ) SELECT id FROM person
"""


def ids_of(connection: sqlite3.Connection, user_id: str) -> frozenset[str]:
    """The user's own id, and those of users that were linked to it."""
    if "user_links" not in tables_of(connection):
        return frozenset([user_id])
    return frozenset(row[0] for row in connection.execute(_LINKED, (user_id,)))


def known_user_ids(connection: sqlite3.Connection) -> frozenset[str]:
    """Everybody of whom the database tells; reads whole tables."""
    there = tables_of(connection)
    found: set[str] = set()
    for table, sql in _USER_IDS.items():
        if table in there:
            found |= {row[0] for row in connection.execute(f"SELECT DISTINCT * FROM ({sql})")}  # noqa: S608 (constants)
    return frozenset(found)


def named(
    connection: sqlite3.Connection,
    tombstone: Tombstone,
    *,
    accounts: Collection[Account],
    user_ids: Iterable[str],
    kinds: Mapping[str, str],
) -> Person:
    """Whom a tombstone means.

    Args:
        connection: to the database.
        tombstone: of the erasure.
        accounts: of the identity map.
        user_ids: other ids that were seen, as names of directories.
        kinds: of channels, by name. A channel that is not configured any more is taken for one of the kind in which the
            person has an account of the same id.
    """
    candidates = {*user_ids, *known_user_ids(connection), *(account.user_id for account in accounts)}
    gone = tombstone.names(candidates)
    keys = {account.key for account in accounts if account.user_id in gone}
    erased_at_ms = to_ms(tombstone.erased_at)
    senders = connection.execute(_SENDERS, (erased_at_ms,)).fetchall()
    known = {f"{kinds[channel]}:{account}" for channel, account in senders if channel in kinds}
    keys |= tombstone.names({*known, *(account.key for account in accounts)})
    on_channels = _on_channels(senders, keys, kinds)
    return Person(user_ids=gone, accounts=on_channels, keys=frozenset(keys), erased_at_ms=erased_at_ms)


def accounts_of(
    connection: sqlite3.Connection, keys: Collection[str], *, kinds: Mapping[str, str], until_ms: int
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
    ids = {key.partition(":")[2] for key in keys}
    return frozenset(
        (channel, account)
        for channel, account in senders
        if (f"{kinds[channel]}:{account}" in keys if channel in kinds else account in ids)
    )
