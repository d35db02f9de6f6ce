"""The sessions of a person, by their ids alone."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.store.database import Database
from gateway.store.persons import PERSON

_OF_PERSON = f"SELECT id FROM sessions WHERE user_id IN {PERSON.format('?1')}"  # noqa: S608 (a constant)


async def session_ids(database: Database, user_id: str) -> Sequence[str]:
    """Those of all ids of the person that a user id stands for."""
    rows = await database.read(lambda connection: connection.execute(_OF_PERSON, (user_id,)).fetchall())
    return [str(row[0]) for row in rows]
