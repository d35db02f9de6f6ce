"""The workers of one database; see `gateway.cluster.worker.WorkerStore`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from gateway.cluster.worker import SILENT_S, SeenWorker, Work, Worker
from gateway.store.engine import Connection, Engine, at_once, statement
from gateway.store.payloads import from_ms, to_ms
from gateway.store.rows import marks_for

_BEAT = """
    INSERT INTO workers (id, name, version, config_hash, roles, turns, started_at, beat_at, is_draining)
    VALUES (?, ?, ?, ?, ?, ?, ?, now_ms(), ?)
    ON CONFLICT (id) DO UPDATE SET
        name = excluded.name, version = excluded.version, config_hash = excluded.config_hash, roles = excluded.roles,
        turns = excluded.turns, beat_at = excluded.beat_at, is_draining = excluded.is_draining
"""
IS_ALIVE = f"workers.beat_at >= now_ms() - {round(SILENT_S * 1000)}"
"""Of a row of workers: it has given a sign of life lately."""
_FORGOTTEN_AFTER_MS = 3_600_000
_LEAVE = "DELETE FROM workers WHERE id = ? OR beat_at < now_ms() - ?"
_ALL = "SELECT *, now_ms() - beat_at AS silent_ms FROM workers ORDER BY started_at, id"
_LANE = """
    SELECT '' AS channel WHERE EXISTS (
        SELECT 1 FROM lanes WHERE due_at <= now_ms() AND (worker IS NULL OR worker <> ?)
    )
"""
# Only the oldest unsent reply of a conversation can be sent. What is being sent under no epoch belongs to nobody: of a
# channel that is everybody's, whose `send` does not wait.
_REPLIES = f"""
    SELECT DISTINCT channel FROM outbox JOIN (
        SELECT lane AS head_lane, min(seq) AS head FROM outbox WHERE ended_at IS NULL GROUP BY lane
    ) AS heads ON lane = head_lane AND seq = head
    WHERE channel IN ({{}}) AND (
        (state = 'ready' AND due_at <= now_ms())
        OR (state = 'sending' AND epoch = 0 AND waiting_since < now_ms() - {round(SILENT_S * 1000)})
    )
"""  # noqa: S608 (a constant)
_HELD = "SELECT worker, name FROM leases WHERE until >= now_ms() ORDER BY name"


class SqlWorkers:
    """One row for each process that serves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def beat(self, worker: Worker) -> None:
        row = (
            worker.id,
            worker.name,
            worker.version,
            worker.config_hash,
            " ".join(worker.roles),
            worker.turns,
            to_ms(worker.started_at),
            worker.is_draining,
        )
        await self._engine.write_along(at_once(_BEAT, row))

    async def leave(self, worker_id: str) -> None:
        values = (worker_id, _FORGOTTEN_AFTER_MS)
        await self._engine.write(statement(_LEAVE, values), is_durable=False, alone=())

    async def workers(self) -> Sequence[SeenWorker]:
        def work(connection: Connection) -> Sequence[SeenWorker]:
            holds: defaultdict[str, list[str]] = defaultdict(list)
            for row in connection.execute(_HELD).fetchall():
                holds[row["worker"]].append(row["name"])
            rows = connection.execute(_ALL).fetchall()
            return [
                SeenWorker(
                    worker=Worker(
                        id=row["id"],
                        name=row["name"],
                        version=row["version"],
                        config_hash=row["config_hash"],
                        roles=tuple(row["roles"].split()),
                        turns=row["turns"],
                        started_at=from_ms(row["started_at"]),
                        is_draining=bool(row["is_draining"]),
                    ),
                    silent_s=max(0, row["silent_ms"]) / 1000,
                    holds=tuple(holds[row["id"]]),
                )
                for row in rows
            ]

        return await self._engine.read(work)

    async def work(self, worker_id: str, channels: Collection[str]) -> Work:
        replies = f" UNION ALL {_REPLIES.format(marks_for(channels))}" if channels else ""
        values = (worker_id, *channels)
        rows = await self._engine.ask(lambda connection: connection.execute(_LANE + replies, values).fetchall)
        found = {row["channel"] for row in rows}
        return Work(has_lane="" in found, channels=found - {""})
