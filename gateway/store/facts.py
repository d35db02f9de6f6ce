"""What the store knows of itself, for health and metrics; see `gateway.pipeline.health.StoreFacts`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gateway.sdk.models.system import QueueHealth
from gateway.store.clock import wall_ms
from gateway.store.database import Database

# Each part has an index of its own, so finished rows, of which there may be millions, are not looked at.
_BACKLOG = """
    SELECT 'inbox' AS queue, channel, state, count(*) AS messages, min(accepted_at) AS oldest_at
    FROM inbox WHERE ended_at IS NULL GROUP BY channel, state
    UNION ALL SELECT 'inbox', channel, 'dead', count(*), min(accepted_at)
    FROM inbox WHERE state = 'dead' GROUP BY channel
    UNION ALL SELECT 'outbox', channel, state, count(*), min(created_at)
    FROM outbox WHERE ended_at IS NULL GROUP BY channel, state
    UNION ALL SELECT 'outbox', channel, 'dead', count(*), min(created_at)
    FROM outbox WHERE state = 'dead' GROUP BY channel
"""
_UNSETTLED = "SELECT count(DISTINCT turn_id) FROM memory_journal WHERE outcome IS NULL"


class SqliteFacts:
    """Asks the database, and writes nothing but to find out whether it can."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def problem(self) -> str | None:
        return await self._database.problem()

    async def backlog(self) -> Sequence[QueueHealth]:
        def work(connection: sqlite3.Connection) -> list[QueueHealth]:
            now_ms = wall_ms()
            return [
                QueueHealth(
                    queue=row["queue"],
                    channel=row["channel"],
                    state=row["state"],
                    messages=row["messages"],
                    oldest_s=max(0, now_ms - row["oldest_at"]) / 1000,
                )
                for row in connection.execute(_BACKLOG)
            ]

        return await self._database.read(work)

    async def unsettled_turns(self) -> int:
        return await self._database.read(lambda connection: int(connection.execute(_UNSETTLED).fetchone()[0]))
