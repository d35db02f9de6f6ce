"""All ids of one person: the user's own, and those of the users that were linked to it."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.store.engine import Connection, Engine

# A value has no collation, and PostgreSQL wants both halves of a recursion to have the same: this gives it an id's.
_AS_ID = "coalesce((SELECT absorbed FROM user_links WHERE FALSE), {0})"
# Stands behind `user_id IN`; {0} is the place of the user id, such as `?1`.
PERSON = f"""(
    WITH RECURSIVE person (id) AS (
        SELECT {_AS_ID}
        UNION SELECT absorbed FROM user_links JOIN person ON survivor = person.id WHERE undone_at IS NULL
    ) SELECT id FROM person
)"""  # noqa: S608 (a constant)
_IDS = f"SELECT id FROM {PERSON.format('?')} AS person_ids"  # noqa: S608 (a constant)

LIVING = f"""
    WITH RECURSIVE heir (id, above) AS (
        SELECT {_AS_ID}, 0
        UNION SELECT survivor, above + 1 FROM user_links JOIN heir ON absorbed = heir.id WHERE undone_at IS NULL
    ) SELECT id FROM heir ORDER BY above DESC LIMIT 1
"""  # noqa: S608 (a constant)
"""The user that has absorbed another, {0}, directly or through others; the id itself where none has."""
_LIVING_OF = LIVING.format("?")
_OF_PERSON = f"SELECT id FROM sessions WHERE user_id IN {PERSON.format('?1')}"  # noqa: S608 (a constant)


def living_id(connection: Connection, user_id: str) -> str:
    """The user that has absorbed this one, directly or through others; the id itself where none has."""
    return str(connection.execute(_LIVING_OF, (user_id,)).fetchone()[0])


def ids_of_person(connection: Connection, user_id: str) -> Sequence[str]:
    """The id itself first; nothing else for a user who was never linked, or is absorbed without having absorbed."""
    rows = connection.execute(_IDS, (user_id,))
    return [str(row[0]) for row in rows]


async def session_ids(engine: Engine, user_id: str) -> Sequence[str]:
    """The sessions of the person, under all ids of the person."""
    rows = await engine.rows(_OF_PERSON, (user_id,))
    return [str(row[0]) for row in rows]
