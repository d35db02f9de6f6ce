"""What the operator trusts of skills: see `gateway.skills.library.TrustStore`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine
from gateway.store.payloads import storable
from gateway.store.rows import put

_ALL = "SELECT personality_id, name, files FROM trusted_skills ORDER BY personality_id, name"
_FORGET = "DELETE FROM trusted_skills WHERE personality_id = ? AND name = ?"


class SqlSkills:
    """One row for each skill that is trusted, with the hashes of its files."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def trusted(self) -> Mapping[tuple[str, str], Mapping[str, str]]:
        rows = await self._engine.ask(lambda connection: connection.execute(_ALL).fetchall)
        return {(row["personality_id"], row["name"]): json.loads(row["files"]) for row in rows}

    async def trust(self, personality_id: str, name: str, files: Mapping[str, str]) -> None:
        row = {
            "personality_id": personality_id,
            "name": storable(name),
            "files": json.dumps(files),
            "trusted_at": wall_ms(),
        }
        await self._engine.write(lambda connection: put(connection, "trusted_skills", row, key="personality_id, name"))

    async def forget(self, personality_id: str, name: str) -> bool:
        def work(connection: Connection) -> bool:
            return bool(connection.execute(_FORGET, (personality_id, storable(name))).rowcount)

        return await self._engine.write(work)
