"""What a heartbeat looks at before it costs anything: see `gateway.schedules.heartbeat.BeatStore`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from gateway.schedules.heartbeat import BeatStore, Happened
from gateway.store.engine import Connection, Engine
from gateway.store.payloads import to_ms
from gateway.store.rows import marks_for

_SESSIONS = 3
_LATEST = "SELECT id FROM sessions WHERE user_id = ? ORDER BY updated_at DESC LIMIT ?"
_SAID = """
    SELECT said.id FROM messages AS said WHERE session_id = ? AND role = 'user'
    AND NOT EXISTS (SELECT 1 FROM occurrences AS made WHERE made.turn_id = said.turn_id AND made.turn_id <> '')
    ORDER BY said.id DESC LIMIT 1
"""
_IS_OTHER = "substr(schedules.key, 1, 10) <> 'heartbeat/'"
_DONE = f"""
    SELECT coalesce(max(occurrences.id), 0) FROM occurrences JOIN schedules ON schedules.id = schedule_id
    WHERE user_id IN ({{marks}}) AND {_IS_OTHER}
"""  # noqa: S608 (a constant)
_DUE = f"""
    SELECT id, next_at FROM schedules WHERE user_id IN ({{marks}}) AND {_IS_OTHER} AND next_at <= ? ORDER BY id
"""  # noqa: S608 (a constant)
_SPENT = """
    SELECT coalesce(sum(usage.cost_usd), 0.0) FROM schedules
    JOIN occurrences ON occurrences.schedule_id = schedules.id AND occurrences.begun_at >= ?1
    JOIN usage ON usage.turn_id = occurrences.turn_id
    WHERE substr(schedules.key, 1, 10) = 'heartbeat/' AND occurrences.turn_id <> ''
"""


class SqlBeats(BeatStore):
    """Reads only, and what it finds are numbers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def happened(self, user_ids: Collection[str], *, until: datetime) -> Happened:
        ids, until_ms = sorted(user_ids), to_ms(until)

        def work(connection: Connection) -> Happened:
            marks = marks_for(ids)
            sessions = [row["id"] for one in ids for row in connection.execute(_LATEST, (one, _SESSIONS)).fetchall()]
            said = [connection.execute(_SAID, (session,)).fetchone() for session in sessions]
            return Happened(
                said=max((row["id"] for row in said if row is not None), default=0),
                done=connection.execute(_DONE.format(marks=marks), ids).fetchone()[0],
                due=[tuple(row) for row in connection.execute(_DUE.format(marks=marks), (*ids, until_ms)).fetchall()],
            )

        return await self._engine.read(work)

    async def spent_usd(self, since: datetime) -> float:
        row = await self._engine.row(_SPENT, (to_ms(since),))
        return float(row[0])
