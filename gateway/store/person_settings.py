"""What people have chosen for themselves: see `gateway.domain.person_settings.PersonSettings`."""

from __future__ import annotations

from functools import partial

from gateway.store.clock import wall_ms
from gateway.store.engine import Engine, statement
from gateway.store.payloads import storable
from gateway.store.persons import PERSON
from gateway.store.rows import put

# What was chosen under the id itself counts before what came with a link.
_GET = f"""
    SELECT value FROM person_settings WHERE key = ?2 AND user_id IN {PERSON.format("?1")}
    ORDER BY CASE WHEN user_id = ?1 THEN 0 ELSE 1 END, set_at DESC LIMIT 1
"""  # noqa: S608 (a constant)
_REMOVE = f"DELETE FROM person_settings WHERE key = ?2 AND user_id IN {PERSON.format('?1')}"  # noqa: S608 (a constant)


class SqlPersonSettings:
    """One row for each choice."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, user_id: str, key: str) -> str | None:
        row = await self._engine.row(_GET, (user_id, key))
        return None if row is None else str(row["value"])

    async def put(self, user_id: str, key: str, value: str) -> None:
        row = {"user_id": user_id, "key": key, "value": storable(value), "set_at": wall_ms()}
        await self._engine.write(partial(put, table="person_settings", columns=row, key="user_id, key"))

    async def remove(self, user_id: str, key: str) -> None:
        await self._engine.write(statement(_REMOVE, (user_id, key)))
