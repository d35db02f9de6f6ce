"""The queues for operators: how many rows stand where, and what to do with those that failed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gateway.domain.codes import without_codes
from gateway.messages import ConversationRef
from gateway.store.clock import steady_ms, wall_ms
from gateway.store.database import Database
from gateway.store.payloads import conversation_of, from_ms, inbound, outbound
from gateway.store.turns import delete_steps

Queue = Literal["inbox", "outbox"]

# "dead" has an index of its own, and so have the unfinished; the others are counted from all rows.
_COUNTS = """
    SELECT channel, state, count(*) FROM {queue} WHERE ended_at IS NULL GROUP BY channel, state
    UNION ALL SELECT channel, 'dead', count(*) FROM {queue} WHERE state = 'dead' GROUP BY channel
"""
_COLUMNS: Mapping[Queue, str] = {
    "inbox": "*, accepted_at AS begun_at, 0 AS is_uncertain",
    "outbox": "*, created_at AS begun_at",
}
_CHOSEN: Mapping[str, str] = {"open": "ended_at IS NULL", "dead": "state = 'dead'", "all": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A row of either queue.

    Attributes:
        id: of the `InboundMessage` or the `OutboundMessage`.
        text: with the codes hidden that are its reader's or writer's only.
        due_in_s: seconds until it is tried, 0 when it is due or finished.
        is_uncertain: outbox only: an attempt may have arrived.
        error: why the last attempt failed, or what an operator did.
        begun_at: when it was accepted, or committed by its turn.
    """

    queue: Queue
    seq: int
    id: str
    turn_id: str
    conversation: ConversationRef
    text: str
    state: str
    attempts: int
    due_in_s: float
    is_uncertain: bool
    error: str | None
    begun_at: datetime
    ended_at: datetime | None


class SqliteDeliveries:
    """Counts, lists, retries and drops rows of the inbox and the outbox."""

    def __init__(self, database: Database, *, now_ms: Callable[[], int] = steady_ms) -> None:
        self._database = database
        self._now_ms = now_ms

    async def counts(self, queue: Queue) -> Mapping[tuple[str, str], int]:
        """Unfinished rows and dead letters by (channel, state)."""
        sql = _COUNTS.format(queue=queue)
        rows = await self._database.rows(sql)
        return {(channel, state): count for channel, state, count in rows}

    async def rows(
        self,
        queue: Queue,
        *,
        chosen: Literal["open", "dead", "all"] = "open",
        channel: str | None = None,
        state: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[Delivery]:
        """Newest first, those with a `seq` below `before`; `chosen` says which: unfinished, dead letters or all.

        Args:
            state: only those; None for every state.
        """
        sql = (
            f"SELECT {_COLUMNS[queue]} FROM {queue} WHERE {_CHOSEN[chosen]} "  # noqa: S608 (parts of our own)
            "AND (?1 IS NULL OR channel = ?1) AND (?2 IS NULL OR seq < ?2) AND (?4 IS NULL OR state = ?4) "
            "ORDER BY seq DESC LIMIT ?3"
        )
        values = (channel, before, limit, state)
        rows = await self._database.rows(sql, values)
        now_ms = self._now_ms()
        return [_delivery(queue, row, now_ms) for row in rows]

    async def unsettled(
        self,
        queue: Queue,
        *,
        state: str | None = None,
        channel: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[Delivery]:
        """Dead letters and what is not finished, newest first; arguments as `rows` has them."""
        found: list[Delivery] = []
        if state in (None, "dead"):
            found += await self.rows(queue, chosen="dead", channel=channel, limit=limit, before=before)
        if state != "dead":
            found += await self.rows(queue, chosen="open", channel=channel, state=state, limit=limit, before=before)
        return sorted(found, key=lambda row: row.seq, reverse=True)[:limit]

    async def find(self, queue: Queue, seq: int) -> Delivery | None:
        """One row, whatever became of it."""
        sql = f"SELECT {_COLUMNS[queue]} FROM {queue} WHERE seq = ?"  # noqa: S608 (parts of our own)
        row = await self._database.row(sql, (seq,))
        return None if row is None else _delivery(queue, row, self._now_ms())

    async def retry(self, queue: Queue, seq: int) -> ConversationRef | None:
        """Try a dead letter again from the start; its conversation, which is to be woken, or None: it is not dead."""
        of_inbox = ", is_told = 0, waits_for = NULL, deaths = 0, lone_deaths = 0"
        afresh = of_inbox if queue == "inbox" else ", failing_since = NULL"
        sql = f"""
            UPDATE {queue} SET state = 'ready', attempts = 0, due_at = ?, ended_at = NULL, waiting_since = ?{afresh}
            WHERE seq = ? AND state = 'dead' RETURNING *
        """  # noqa: S608 (one of two names of our own)
        now_ms = self._now_ms()
        return await self._change(sql, (now_ms, now_ms, seq))

    async def drop(self, queue: Queue, seq: int, *, reason: str = "dropped by the operator") -> ConversationRef | None:
        """Finish a row that waits or is dead without a delivery; its conversation, or None: it cannot be dropped.

        The row stays, so that the same event can never come in again. The steps of its turn do not.
        """
        end = "done" if queue == "inbox" else "dropped"
        sql = f"""
            UPDATE {queue} SET state = ?, error = ?, ended_at = ?
            WHERE seq = ? AND state IN ('ready', 'parked', 'dead') RETURNING *
        """  # noqa: S608 (one of two names of our own)
        return await self._change(sql, (end, reason, wall_ms(), seq), ends_turn=queue == "inbox")

    async def _change(self, sql: str, values: tuple[object, ...], *, ends_turn: bool = False) -> ConversationRef | None:
        def work(connection: sqlite3.Connection) -> ConversationRef | None:
            rows = connection.execute(sql, values).fetchall()
            if rows and ends_turn:
                delete_steps(connection, rows[0]["turn_id"])
            return conversation_of(rows[0]) if rows else None

        return await self._database.write(work)


def _delivery(queue: Queue, row: sqlite3.Row, now_ms: int) -> Delivery:
    message = inbound(row) if queue == "inbox" else outbound(row)
    ended_at_ms = row["ended_at"]
    return Delivery(
        queue=queue,
        seq=row["seq"],
        id=message.id,
        turn_id=row["turn_id"],
        conversation=message.conversation,
        text=without_codes(message),
        state=row["state"],
        attempts=row["attempts"],
        due_in_s=0.0 if ended_at_ms is not None else max(0, row["due_at"] - now_ms) / 1000,
        is_uncertain=bool(row["is_uncertain"]),
        error=row["error"],
        begun_at=from_ms(row["begun_at"]),
        ended_at=None if ended_at_ms is None else from_ms(ended_at_ms),
    )
