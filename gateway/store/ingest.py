"""The jobs of the ingest in SQLite; see `gateway.memory.ingest.IngestStore`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from gateway.memory.ingest import IngestBacklog, IngestJob, Said
from gateway.protocols import MemoryScope
from gateway.store.clock import LONGEST_WAIT_MS, steady_ms
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.payloads import from_ms, storable
from gateway.store.rows import columns_of, insert

# The clock of an earlier process may have been wrong: what waits longer than any wait of ours is due.
_DUE = """
    SELECT * FROM ingest_jobs WHERE number IN (
        SELECT min(number) FROM ingest_jobs WHERE is_given_up = 0 GROUP BY user_id
    ) AND (due_at <= :now OR due_at > :now + :longest) ORDER BY number LIMIT :limit
"""
_SAID = "SELECT role, text, created_at FROM messages WHERE turn_id = ? AND is_superseded = 0 ORDER BY id"
_KEEP = "UPDATE ingest_jobs SET facts = ? WHERE turn_id = ?"
_END = "DELETE FROM ingest_jobs WHERE turn_id = ?"
_PUT_OFF = """
    UPDATE ingest_jobs SET attempts = attempts + 1, due_at = ?, error = ?, is_given_up = ? WHERE turn_id = ?
"""
_BACKLOG = """
    SELECT (SELECT count(*) FROM ingest_jobs WHERE is_given_up = 0),
           (SELECT count(*) FROM ingest_jobs WHERE is_given_up = 1),
           (SELECT min(due_at) FROM ingest_jobs WHERE number IN (
                SELECT min(number) FROM ingest_jobs WHERE is_given_up = 0 GROUP BY user_id))
"""
_COUNT_TURN = """
    INSERT INTO turns_since_consolidation (user_id, turns) VALUES (?, 1)
    ON CONFLICT (user_id) DO UPDATE SET turns = turns + 1 RETURNING turns
"""
_FORGET_TURNS = "DELETE FROM turns_since_consolidation WHERE user_id = ?"


def insert_job(connection: Connection, job: IngestJob, due_at_ms: int) -> None:
    """Note the job, inside the transaction that commits its turn."""
    sources = None if job.sources is None else storable(json.dumps(job.sources, ensure_ascii=False))
    scope = columns_of(job.scope, without=("place", "author_id"))
    row = {**scope, "speaker": storable(job.speaker), "sources": sources, "due_at": due_at_ms}
    insert(connection, "ingest_jobs", row, "ON CONFLICT (turn_id) DO NOTHING")


class SqlIngestJobs:
    """Jobs, and how many turns each person had since a consolidation."""

    def __init__(self, engine: Engine, *, now_ms: Callable[[], int] = steady_ms) -> None:
        """`now_ms` measures the waits."""
        self._engine = engine
        self._now_ms = now_ms

    async def due(self, limit: int) -> Sequence[IngestJob]:
        values = {"now": self._now_ms(), "longest": LONGEST_WAIT_MS, "limit": limit}
        return [_job(row) for row in await self._engine.rows(_DUE, values)]

    async def said(self, turn_id: str) -> Said | None:
        rows = await self._engine.rows(_SAID, (turn_id,))
        asked = next((row for row in rows if row["role"] == "user"), None)
        if asked is None:
            return None
        answered = "\n\n".join(row["text"] for row in rows if row["role"] == "assistant" and row["text"].strip())
        return Said(asked=asked["text"], answered=answered, at=from_ms(asked["created_at"]))

    async def keep_facts(self, turn_id: str, facts: str) -> None:
        await self._engine.write(statement(_KEEP, (storable(facts), turn_id)))

    async def end(self, turn_id: str) -> None:
        await self._engine.write(statement(_END, (turn_id,)), is_durable=False)

    async def put_off(self, turn_id: str, *, after_s: float, error: str, is_given_up: bool) -> None:
        values = (self._now_ms() + round(after_s * 1000), storable(error), is_given_up, turn_id)
        await self._engine.write(statement(_PUT_OFF, values), is_durable=False)

    async def backlog(self) -> IngestBacklog:
        [(waiting, given_up, due_at)] = await self._engine.rows(_BACKLOG)
        due_in_s = None if due_at is None else max(0, due_at - self._now_ms()) / 1000
        return IngestBacklog(waiting=waiting, given_up=given_up, due_in_s=due_in_s)

    async def count_turn(self, user_id: str) -> int:
        """One more turn of the person; how many since the last consolidation."""

        def work(connection: Connection) -> int:
            return int(connection.execute(_COUNT_TURN, (user_id,)).fetchone()[0])

        return await self._engine.write(work, is_durable=False)

    async def forget_turns(self, user_id: str) -> None:
        """The person's traces were consolidated."""
        await self._engine.write(statement(_FORGET_TURNS, (user_id,)), is_durable=False)


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
