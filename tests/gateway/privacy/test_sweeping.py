"""What is written of an erased person after the erasure goes, whatever table it stands in, and however late it came."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from gateway.config.memory_kinds import DATABASE_KIND
from gateway.domain.tombstones import Tombstone
from gateway.memory.stored.memory import StoredMemory
from gateway.ops.privacy.erasing import Eraser
from gateway.ops.privacy.memory import PersonalMemory
from gateway.ops.privacy.sweeping import Sweeping
from gateway.store.accounts import SqlAccounts
from gateway.store.erasure import note_applied
from gateway.store.gathering import USER_COLUMNS
from gateway.store.stores import open_postgres
from gateway.store.tombstones import SqlTombstones

WRITTEN = {
    **{place: {place[1]: "{}"} for place in USER_COLUMNS},
    ("documents", "path"): {"path": "users/{}/USER.md", "modified_at": 1},
    ("owners", "id"): {"kind": "user", "id": "{}"},
    ("traces", "author"): {"author": "{}"},
    ("trace_documents", "key"): {"key": "users/{}/USER.md"},
}
"""The least that names a person, by table and column; `test_every_table_is_known_to_the_erasure` has all columns."""
# What a row cannot be without; of a check only the first value that it allows.
_NEEDED = """
    SELECT attname AS name, format_type(atttypid, NULL) AS type,
        (SELECT (regexp_match(pg_get_constraintdef(oid), '''(\\w+)''::text'))[1] FROM pg_constraint
            WHERE contype = 'c' AND conrelid = attrelid AND conkey = ARRAY[attnum] LIMIT 1) AS allowed
    FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND attnotnull AND NOT atthasdef AND attidentity = ''
"""
_TABLES = (
    "SELECT oid::regclass::text AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)


def write(connection: psycopg.Connection[Any], table: str, values: dict[str, Any], user_id: str) -> None:
    """Insert a row of which only that is known, and no other row."""
    fillings = {"bigint": secrets.randbits(32), "boolean": False, "bytea": b"", "double precision": 0.0}
    row = {
        needed["name"]: needed["allowed"] or fillings.get(needed["type"], secrets.token_hex(8))
        for needed in connection.execute(_NEEDED, (table,))
    }
    row |= {name: value.format(user_id) if isinstance(value, str) else value for name, value in values.items()}
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join([sql.Placeholder()] * len(row)),
    )
    connection.execute(statement, [*row.values()])


def named(connection: psycopg.Connection[Any], name: str) -> dict[str, str]:
    """A row of each table that has this in it."""
    query = sql.SQL("SELECT t::text AS text FROM {} AS t WHERE strpos(t::text, %s) > 0 ORDER BY 1 LIMIT 1")
    found = {}
    for row in connection.execute(_TABLES).fetchall():
        for there in connection.execute(query.format(sql.Identifier(row["name"])), (name,)):
            found[row["name"]] = there["text"]
    return found


@pytest.mark.slow
async def test_each_row_that_names_an_erased_person_goes_a_year_later_and_those_of_others_stay(
    postgres_url: str, tmp_path: Path
) -> None:
    """Each row has a person of its own, so none is found by way of another."""
    store = open_postgres(postgres_url)
    try:
        eraser = Eraser(
            home=tmp_path,
            store=store,
            identities=SqlAccounts(store.engine),
            tombstones=SqlTombstones(store.engine),
            memory=PersonalMemory(provider=StoredMemory(store.documents), kind=DATABASE_KIND),
            kinds={},
        )
        gone = {place: f"u_gone{number}x" for number, place in enumerate(WRITTEN)}
        tombstone = replace(Tombstone.of(gone.values()), erased_at=datetime.now(UTC) - timedelta(days=365))
        await eraser.tombstones.add([tombstone])
        await store.engine.write(partial(note_applied, erasure_id=tombstone.id))
        with psycopg.connect(postgres_url, autocommit=True, row_factory=dict_row) as connection:
            connection.execute(
                "SET session_replication_role = replica"
            )  # a row alone, without those that it belongs to
            for place, values in WRITTEN.items():
                write(connection, place[0], values, "u_ben")
                write(connection, place[0], values, gone[place])
            of_ben = named(connection, "u_ben")
            assert of_ben.keys() == named(connection, "u_gone").keys() == {table for table, _ in WRITTEN}
            assert await eraser.returned() == {*gone.values()}
            await Sweeping(lambda: eraser).returned()
            assert named(connection, "u_gone") == {}
            assert named(connection, "u_ben") == of_ben
    finally:
        await store.close()
