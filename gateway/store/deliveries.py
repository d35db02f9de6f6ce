"""The queues for operators: how many rows stand where, and what to do with those that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from gateway.domain.codes import without_codes
from gateway.messages import ConversationRef
from gateway.pipeline.outbox import VOICE
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row
from gateway.store.lanes import waken
from gateway.store.payloads import conversation_of, inbound, outbound
from gateway.store.queue_rows import IS_RUNNING, LANE, STATE, Queue, lane_key
from gateway.store.rows import record_of
from gateway.store.turns import delete_steps

if TYPE_CHECKING:  # a gateway need not load it before it is asked
    from gateway.sdk.models.deliveries import Delivery

# Each part has an index of its own.
_COUNTS = """
    SELECT (SELECT count(*) FROM {queue} WHERE ended_at IS NULL), (SELECT count(*) FROM {queue} WHERE state = 'dead')
"""
_COLUMNS: Mapping[Queue, str] = {
    "inbox": f"""inbox.*, {STATE["inbox"]} AS shown_state, accepted_at AS begun_at, FALSE AS is_uncertain,
        coalesce((SELECT CASE WHEN lanes.claim IS NULL THEN due_at END FROM lanes WHERE lanes.id = inbox.lane), 0)
        - now_ms() AS due_in_ms""",  # noqa: S608 (names of ours)
    "outbox": "outbox.*, state AS shown_state, created_at AS begun_at, due_at - now_ms() AS due_in_ms",
}
_CHOSEN: Mapping[str, str] = {"open": "ended_at IS NULL", "dead": "state = 'dead'", "all": "TRUE"}
_ID: Mapping[Queue, str] = {"inbox": "turn_id", "outbox": "id"}
"""What a row is called by: the turn that answers it, or the reply."""
_BEGUN: Mapping[Queue, str] = {"inbox": "accepted_at", "outbox": "created_at"}


_VOICE_NOTE = "(voice note)"
_HEARD = f"SELECT DISTINCT is_direct FROM inbox WHERE lane = {LANE}"  # noqa: S608 (names of ours)
_LOCKED = "SELECT id FROM lanes WHERE id = (SELECT lane FROM inbox WHERE turn_id = ?) "


class SqlDeliveries:
    """Counts, lists, retries and drops rows of the inbox and the outbox."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def counts(self, queue: Queue) -> tuple[int, int]:
        """How many rows are unfinished, and how many are dead letters."""
        [(unfinished, dead)] = await self._engine.rows(_COUNTS.format(queue=queue))
        return unfinished, dead

    async def is_direct(self, conversation: ConversationRef) -> bool:
        """Whether only one person has ever been heard there, and nobody reads along."""
        rows = await self._engine.rows(_HEARD, lane_key(conversation))
        return [bool(row["is_direct"]) for row in rows] == [True]

    async def rows(
        self,
        queue: Queue,
        *,
        chosen: Literal["open", "dead", "all"] = "open",
        channel: str | None = None,
        state: str | None = None,
        limit: int = 50,
        before: tuple[int, str] | None = None,
    ) -> Sequence[Delivery]:
        """Newest first; `chosen` says which: unfinished, dead letters or all.

        Args:
            state: only those; None for every state.
            before: the time of a row in ms, and its id: only those behind it.
        """
        begun = _BEGUN[queue]
        sql = (
            f"SELECT {_COLUMNS[queue]} FROM {queue} WHERE {_CHOSEN[chosen]} "  # noqa: S608 (parts of our own)
            f"AND (CAST(?1 AS text) IS NULL OR channel = ?1) AND (CAST(?2 AS text) IS NULL OR {STATE[queue]} = ?2) "
            f"AND ({begun} < ?3 OR ({begun} = ?3 AND {_ID[queue]} < ?4)) "
            f"ORDER BY {begun} DESC, {_ID[queue]} DESC LIMIT ?5"
        )
        place = (1 << 62, "") if before is None else before
        rows = await self._engine.rows(sql, (channel, "ready" if state == "waiting" else state, *place, limit))
        return [_delivery(queue, row) for row in rows]

    async def unsettled(
        self,
        queue: Queue,
        *,
        state: str | None = None,
        channel: str | None = None,
        limit: int = 50,
        before: tuple[int, str] | None = None,
    ) -> Sequence[Delivery]:
        """Dead letters and what is not finished, newest first; arguments as `rows` has them."""
        found: list[Delivery] = []
        if state in (None, "dead"):
            found += await self.rows(queue, chosen="dead", channel=channel, limit=limit, before=before)
        if state != "dead":
            found += await self.rows(queue, chosen="open", channel=channel, state=state, limit=limit, before=before)
        return sorted(found, key=lambda row: (row.begun_at, row.id), reverse=True)[:limit]

    async def find(self, queue: Queue, row_id: str) -> Delivery | None:
        """One row, whatever became of it."""
        sql = f"SELECT {_COLUMNS[queue]} FROM {queue} WHERE {_ID[queue]} = ?"  # noqa: S608 (parts of our own)
        row = await self._engine.row(sql, (row_id,))
        return None if row is None else _delivery(queue, row)

    async def retry(self, queue: Queue, row_id: str) -> ConversationRef | None:
        """Try a dead letter again from the start; its conversation, which is to be woken, or None: it is not dead."""
        if queue == "inbox":
            afresh = "is_told = FALSE, waits_for = NULL, deaths = 0, lone_deaths = 0"
        else:
            afresh = "due_at = now_ms(), waiting_since = now_ms(), failing_since = NULL"
        sql = f"""
            UPDATE {queue} SET state = 'ready', attempts = 0, ended_at = NULL, {afresh}
            WHERE {_ID[queue]} = ? AND state = 'dead' RETURNING *
        """  # noqa: S608 (one of two names of our own)
        return await self._change(queue, sql, (row_id,))

    async def drop(self, queue: Queue, row_id: str) -> ConversationRef | None:
        """Finish a row that waits or is dead without a delivery; its conversation, or None: it cannot be dropped.

        The row stays, so that the same event can never come in again. The steps of its turn do not.
        """
        end = "done" if queue == "inbox" else "dropped"
        is_running = IS_RUNNING if queue == "inbox" else "FALSE"
        sql = f"""
            UPDATE {queue} SET state = ?, error = ?, ended_at = ?
            WHERE {_ID[queue]} = ? AND state IN ('ready', 'parked', 'dead') AND NOT ({is_running}) RETURNING *
        """  # noqa: S608 (one of two names of our own)
        return await self._change(queue, sql, (end, "dropped by the operator", wall_ms(), row_id), ends_turn=True)

    async def _change(
        self, queue: Queue, sql: str, values: tuple[object, ...], *, ends_turn: bool = False
    ) -> ConversationRef | None:
        def work(connection: Connection) -> ConversationRef | None:
            if queue == "inbox":  # the lane's lock comes first, so that no claim of it is overlooked
                connection.execute(_LOCKED + connection.dialect.locked, values[-1:]).fetchall()
            rows = connection.execute(sql, values).fetchall()
            if rows and queue == "inbox":
                if ends_turn:
                    delete_steps(connection, rows[0]["turn_id"])
                waken(connection, [rows[0]["lane"]])
            return conversation_of(rows[0]) if rows else None

        return await self._engine.write(work, alone=())


def _delivery(queue: Queue, row: Row) -> Delivery:
    from gateway.sdk.models.deliveries import Delivery  # noqa: PLC0415 (as above)

    message = inbound(row) if queue == "inbox" else outbound(row)
    shown = {
        "queue": queue,
        "id": row[_ID[queue]],
        "text": without_codes(message) or (_VOICE_NOTE if row[_ID[queue]].endswith(VOICE) else ""),
        "state": "waiting" if row["shown_state"] == "ready" else row["shown_state"],
        "due_in_s": 0.0 if row["ended_at"] is not None else max(0, row["due_in_ms"]) / 1000,
    }
    return Delivery.model_validate(record_of(row, without=("due_at", "message_id")) | shown)
