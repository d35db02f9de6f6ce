"""What stands in the configuration as rows, and calls of hooks: see `gateway.schedules.hooks.HookStore`."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.messages import InboundMessage
from gateway.schedules.hooks import MOST_WAITING, HookStore, Taken
from gateway.schedules.schedule import Occurrence, Schedule
from gateway.store.engine import Connection, Engine
from gateway.store.payloads import from_ms, to_ms
from gateway.store.rows import columns_of, insert_new
from gateway.store.schedules import CONFIGURED, schedule_of, send_in

_CONFIGURED = f"SELECT * FROM schedules WHERE {CONFIGURED} ORDER BY id"  # noqa: S608 (a constant)
_WAITING = "SELECT 1 FROM inbox WHERE ended_at IS NULL AND schedule_id = ? LIMIT ?"
_LAST = "SELECT coalesce(max(due_at), 0) FROM occurrences WHERE schedule_id = ?"


class SqlHooks(HookStore):
    """Calls of all hooks are committed in one order, on all workers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def configured(self) -> Sequence[Schedule]:
        return [schedule_of(row) for row in await self._engine.rows(_CONFIGURED)]

    async def take(
        self, schedule: Schedule, message: InboundMessage, turn_id: str, *, most: int = MOST_WAITING
    ) -> Taken:
        def work(connection: Connection) -> Taken:
            sql = f"SELECT state FROM schedules WHERE id = ? {connection.dialect.locked}"  # noqa: S608 (of ours)
            row = connection.execute(sql, (schedule.id,)).fetchone()
            known = "SELECT 1 FROM inbox WHERE turn_id = ?"
            if connection.execute(known, (turn_id,)).fetchone() is not None:
                return "known"
            if row is None or row["state"] != "active":
                return "paused"
            if len(connection.execute(_WAITING, (schedule.id, most)).fetchall()) >= most:
                return "full"
            last_ms = connection.execute(_LAST, (schedule.id,)).fetchone()[0]
            occurrence = Occurrence(
                schedule_id=schedule.id,
                due_at=from_ms(max(to_ms(message.sent_at), last_ms + 1)),  # two may come at one moment
                outcome="begun",
                begun_at=message.sent_at,
                turn_id=turn_id,
            )
            if not insert_new(connection, "occurrences", columns_of(occurrence)):
                return "known"
            send_in(connection, message, occurrence)
            return "new"

        return await self._engine.write(work, alone=("schedules",))  # nor while a person is taken out of that store
