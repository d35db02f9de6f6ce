"""The queues for operators: how many rows stand where, and what to do with those that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from gateway.domain.codes import without_codes
from gateway.messages import ConversationRef
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row
from gateway.store.payloads import conversation_of, inbound, outbound
from gateway.store.queue_rows import Queue
from gateway.store.rows import record_of
from gateway.store.turns import delete_steps

if TYPE_CHECKING:  # a gateway need not load it before it is asked
    from gateway.sdk.models.deliveries import Delivery

# Each part has an index of its own.
_COUNTS = """
    SELECT (SELECT count(*) FROM {queue} WHERE ended_at IS NULL), (SELECT count(*) FROM {queue} WHERE state = 'dead')
"""
_COLUMNS: Mapping[Queue, str] = {
    "inbox": "*, accepted_at AS begun_at, FALSE AS is_uncertain, now_ms() AS now_ms",
    "outbox": "*, created_at AS begun_at, now_ms() AS now_ms",
}
_CHOSEN: Mapping[str, str] = {"open": "ended_at IS NULL", "dead": "state = 'dead'", "all": "TRUE"}


class SqlDeliveries:
    """Counts, lists, retries and drops rows of the inbox and the outbox."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def counts(self, queue: Queue) -> tuple[int, int]:
        """How many rows are unfinished, and how many are dead letters."""
        [(unfinished, dead)] = await self._engine.rows(_COUNTS.format(queue=queue))
        return unfinished, dead

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
        rows = await self._engine.rows(sql, (channel, before, limit, "ready" if state == "waiting" else state))
        return [_delivery(queue, row) for row in rows]

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
        row = await self._engine.row(sql, (seq,))
        return None if row is None else _delivery(queue, row)

    async def retry(self, queue: Queue, seq: int) -> ConversationRef | None:
        """Try a dead letter again from the start; its conversation, which is to be woken, or None: it is not dead."""
        of_inbox = ", is_told = FALSE, waits_for = NULL, deaths = 0, lone_deaths = 0"
        afresh = of_inbox if queue == "inbox" else ", failing_since = NULL"
        sql = f"""
            UPDATE {queue} SET state = 'ready', attempts = 0, due_at = now_ms(), ended_at = NULL,
                               waiting_since = now_ms(){afresh}
            WHERE seq = ? AND state = 'dead' RETURNING *
        """  # noqa: S608 (one of two names of our own)
        return await self._change(sql, (seq,))

    async def drop(self, queue: Queue, seq: int) -> ConversationRef | None:
        """Finish a row that waits or is dead without a delivery; its conversation, or None: it cannot be dropped.

        The row stays, so that the same event can never come in again. The steps of its turn do not.
        """
        end = "done" if queue == "inbox" else "dropped"
        sql = f"""
            UPDATE {queue} SET state = ?, error = ?, ended_at = ?
            WHERE seq = ? AND state IN ('ready', 'parked', 'dead') RETURNING *
        """  # noqa: S608 (one of two names of our own)
        return await self._change(sql, (end, "dropped by the operator", wall_ms(), seq), ends_turn=queue == "inbox")

    async def _change(self, sql: str, values: tuple[object, ...], *, ends_turn: bool = False) -> ConversationRef | None:
        def work(connection: Connection) -> ConversationRef | None:
            rows = connection.execute(sql, values).fetchall()
            if rows and ends_turn:
                delete_steps(connection, rows[0]["turn_id"])
            return conversation_of(rows[0]) if rows else None

        return await self._engine.write(work)


def _delivery(queue: Queue, row: Row) -> Delivery:
    from gateway.sdk.models.deliveries import Delivery  # noqa: PLC0415 (as above)

    message = inbound(row) if queue == "inbox" else outbound(row)
    shown = {
        "queue": queue,
        "id": message.id,
        "text": without_codes(message),
        "state": "waiting" if row["state"] == "ready" else row["state"],
        "due_in_s": 0.0 if row["ended_at"] is not None else max(0, row["due_at"] - row["now_ms"]) / 1000,
    }
    return Delivery.model_validate(record_of(row, without=("due_at",)) | shown)
