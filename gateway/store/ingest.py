"""The jobs of the ingest; see `gateway.memory.ingest.IngestStore`.

A job is claimed by pushing its time ahead: whoever does it has until then, and if that process is dead, the job is due
again. Until it ends no other job of the person is done.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from gateway.memory.ingest import IngestBacklog, IngestJob, Said
from gateway.protocols import MemoryScope
from gateway.store.clock import LONGEST_WAIT_MS
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.payloads import from_ms, storable
from gateway.store.rows import columns_of, insert

# Longer than a model takes for a job, with its retries.
LEASE_MS = 900_000
_FIRST_OF_EACH = "number IN (SELECT min(number) FROM ingest_jobs WHERE NOT is_given_up GROUP BY user_id)"
# The clock of an earlier process may have been wrong: what waits longer than any wait of ours is due.
_CLAIM = f"""
    UPDATE ingest_jobs SET claimed_by = ?1, due_at = now_ms() + {LEASE_MS} WHERE number IN (
        SELECT number FROM ingest_jobs WHERE {_FIRST_OF_EACH} AND (
            claimed_by = ?1 OR due_at <= (SELECT now_ms()) OR due_at > (SELECT now_ms()) + {LONGEST_WAIT_MS}
        ) ORDER BY number LIMIT ?2 {{skip_locked}}
    ) RETURNING *
"""  # noqa: S608 (constants)
_SAID = "SELECT role, text, created_at FROM messages WHERE turn_id = ? AND NOT is_superseded ORDER BY id"
# Where two processes did it after all, both go on with the same facts.
_KEEP = "UPDATE ingest_jobs SET facts = coalesce(facts, ?) WHERE turn_id = ? RETURNING facts"
_END = "DELETE FROM ingest_jobs WHERE turn_id = ?"
_PUT_OFF = """
    UPDATE ingest_jobs SET attempts = attempts + 1, due_at = now_ms() + ?, error = ?, is_given_up = ?, claimed_by = NULL
    WHERE turn_id = ? AND (claimed_by = ? OR claimed_by IS NULL)
"""
_BACKLOG = f"""
    SELECT (SELECT count(*) FROM ingest_jobs WHERE NOT is_given_up),
           (SELECT count(*) FROM ingest_jobs WHERE is_given_up),
           (SELECT min(CASE WHEN claimed_by = ? THEN 0 ELSE due_at END) - now_ms() FROM ingest_jobs
            WHERE {_FIRST_OF_EACH})
"""  # noqa: S608 (constants)
_COUNT_TURN = """
    INSERT INTO turns_since_consolidation (user_id, turns) VALUES (?, 1)
    ON CONFLICT (user_id) DO UPDATE SET turns = turns_since_consolidation.turns + 1 RETURNING turns
"""
_FORGET_TURNS = "DELETE FROM turns_since_consolidation WHERE user_id = ?"


def insert_job(connection: Connection, job: IngestJob) -> None:
    """Note the job, due at once, inside the transaction that commits its turn."""
    sources = None if job.sources is None else storable(json.dumps(job.sources, ensure_ascii=False))
    scope = columns_of(job.scope, without=("place", "author_id"))
    row = {**scope, "speaker": storable(job.speaker), "sources": sources, "due_at": 0}
    insert(connection, "ingest_jobs", row, "ON CONFLICT (turn_id) DO NOTHING")


class SqlIngestJobs:
    """Jobs, and how many turns each person had since a consolidation."""

    def __init__(self, engine: Engine, *, owner: str = "") -> None:
        """`owner` is this process; empty where there is one, which so takes up at once what it left at its death."""
        self._engine = engine
        self._owner = owner

    async def claim(self, limit: int) -> Sequence[IngestJob]:
        def work(connection: Connection) -> list[IngestJob]:
            sql = _CLAIM.format(skip_locked=connection.dialect.skip_locked)
            rows = connection.execute(sql, (self._owner, limit)).fetchall()
            return [_job(row) for row in sorted(rows, key=lambda row: int(row["number"]))]

        return await self._engine.write(work, is_durable=False, alone=())

    async def said(self, turn_id: str) -> Said | None:
        rows = await self._engine.rows(_SAID, (turn_id,))
        asked = next((row for row in rows if row["role"] == "user"), None)
        if asked is None:
            return None
        answered = "\n\n".join(row["text"] for row in rows if row["role"] == "assistant" and row["text"].strip())
        return Said(asked=asked["text"], answered=answered, at=from_ms(asked["created_at"]))

    async def keep_facts(self, turn_id: str, facts: str) -> str | None:
        def work(connection: Connection) -> str | None:
            row = connection.execute(_KEEP, (storable(facts), turn_id)).fetchone()
            return None if row is None else str(row["facts"])

        return await self._engine.write(work, alone=())

    async def end(self, turn_id: str) -> None:
        await self._engine.write(statement(_END, (turn_id,)), is_durable=False, alone=())

    async def put_off(self, turn_id: str, *, after_s: float, error: str, is_given_up: bool) -> None:
        values = (round(after_s * 1000), storable(error), is_given_up, turn_id, self._owner)
        await self._engine.write(statement(_PUT_OFF, values), is_durable=False, alone=())

    async def backlog(self) -> IngestBacklog:
        [(waiting, given_up, due_in_ms)] = await self._engine.rows(_BACKLOG, (self._owner,))
        due_in_s = None if due_in_ms is None else max(0, due_in_ms) / 1000
        return IngestBacklog(waiting=waiting, given_up=given_up, due_in_s=due_in_s)

    async def count_turn(self, user_id: str) -> int:
        """One more turn of the person; how many since the last consolidation."""

        def work(connection: Connection) -> int:
            return int(connection.execute(_COUNT_TURN, (user_id,)).fetchone()[0])

        return await self._engine.write(work, is_durable=False, alone=())

    async def forget_turns(self, user_id: str) -> None:
        """The person's traces were consolidated."""
        await self._engine.write(statement(_FORGET_TURNS, (user_id,)), is_durable=False, alone=())


def _job(row: Row) -> IngestJob:
    scope = MemoryScope(
        personality_id=row["personality_id"],
        user_id=row["user_id"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        channel=row["channel"],
    )
    sources = None if row["sources"] is None else tuple(json.loads(row["sources"]))
    return IngestJob(scope=scope, speaker=row["speaker"], sources=sources, facts=row["facts"], attempts=row["attempts"])
