"""All ids of one person in SQLite: the user's own, and those of the users that were linked to it."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.store.engine import Connection, Engine

# Stands behind `user_id IN`; {} is the place of the user id, such as `?1`.
PERSON = """(
    WITH RECURSIVE person (id) AS (
        SELECT {0} UNION SELECT absorbed FROM user_links JOIN person ON survivor = person.id WHERE undone_at IS NULL
    ) SELECT id FROM person
)"""
_IDS = f"SELECT * FROM {PERSON.format('?')}"  # noqa: S608 (a constant)

_LIVING = """
    WITH RECURSIVE heir (id, above) AS (
        SELECT ?, 0
        UNION SELECT survivor, above + 1 FROM user_links JOIN heir ON absorbed = heir.id WHERE undone_at IS NULL
    ) SELECT id FROM heir ORDER BY above DESC LIMIT 1
"""
_OF_PERSON = f"SELECT id FROM sessions WHERE user_id IN {PERSON.format('?1')}"  # noqa: S608 (a constant)


def living_id(connection: Connection, user_id: str) -> str:
    """The user that has absorbed this one, directly or through others; the id itself where none has."""
    return str(connection.execute(_LIVING, (user_id,)).fetchone()[0])


def ids_of_person(connection: Connection, user_id: str) -> Sequence[str]:
    """The id itself first; nothing else for a user who was never linked, or is absorbed without having absorbed."""
    rows = connection.execute(_IDS, (user_id,))
    return [str(row[0]) for row in rows]


async def session_ids(engine: Engine, user_id: str) -> Sequence[str]:
    """The sessions of the person, under all ids of the person."""
    rows = await engine.rows(_OF_PERSON, (user_id,))
    return [str(row[0]) for row in rows]
