"""The outbox: see `gateway.pipeline.queues.OutboxStore`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.messages import ConversationRef, OutboundMessage, Receipt
from gateway.pipeline.queues import NotDue, OutboxRow
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, statement
from gateway.store.leases import hold_epoch
from gateway.store.payloads import conversation_of, outbound, outbound_json, receipt_json, storable
from gateway.store.queue_rows import add_row, correct_waits, make_due, waits_of
from gateway.store.rows import columns_of, key_of, value_of

_OLDEST_TWO = """
    SELECT *, now_ms() AS now_ms FROM outbox
    WHERE channel = ? AND conversation = ? AND thread IS NOT DISTINCT FROM ? AND ended_at IS NULL ORDER BY seq LIMIT 2
"""
# What the claim comes later than planned is time in which nothing was tried: it is taken out of the failure, once.
_CLAIM = """
    UPDATE outbox SET state = 'sending', attempts = attempts + 1, failing_since = failing_since + ?1 - due_at,
                      due_at = ?1, waiting_since = ?1, epoch = ?3
    WHERE seq = ?2 RETURNING failing_since
"""
_UNSENT = """
    SELECT channel, conversation, thread, due_at - now_ms() AS due_in_ms FROM outbox JOIN (
        SELECT min(seq) AS head FROM outbox WHERE ended_at IS NULL GROUP BY channel, conversation, thread
    ) AS heads ON seq = head ORDER BY seq
"""
_TAKE_OVER = """
    UPDATE outbox SET state = 'ready', is_uncertain = TRUE
    WHERE channel = ? AND ended_at IS NULL AND state = 'sending' AND epoch < ?
"""
_SENT = """
    UPDATE outbox SET state = 'sent', receipt = ?, error = NULL, is_uncertain = FALSE, ended_at = ? WHERE seq = ?
    RETURNING turn_id
"""
_RETRY = """
    UPDATE outbox SET state = 'ready', due_at = now_ms() + ?1, waiting_since = now_ms(), error = ?2, is_uncertain = ?3,
                      attempts = attempts - CASE WHEN ?4 THEN 0 ELSE 1 END,
                      failing_since = coalesce(failing_since, CASE WHEN ?4 THEN NULL ELSE now_ms() END),
                      is_put_off = ?5
    WHERE seq = ?6 AND state = 'sending' AND epoch = ?7
"""
_PUT_OFF = "SELECT DISTINCT channel, conversation, thread FROM outbox WHERE ended_at IS NULL AND is_put_off"
_DEAD = """
    UPDATE outbox SET state = 'dead', error = ?, ended_at = ? WHERE seq = ? AND ended_at IS NULL RETURNING turn_id
"""
_RECOVER = "UPDATE outbox SET state = 'ready', is_uncertain = TRUE WHERE ended_at IS NULL AND state = 'sending'"


def insert_replies(
    connection: Connection,
    turn_id: str,
    replies: Sequence[OutboundMessage],
    *,
    delivered: Collection[str] = (),
) -> None:
    """Queue replies inside the transaction of their turn; one whose id is there already stays as it is.

    Those whose ids are in `delivered` are stored as sent: their channel shows the log.
    """
    for reply in replies:
        now_ms = wall_ms()
        row = columns_of(reply.conversation) | {
            "id": reply.id,
            "turn_id": turn_id,
            "payload": outbound_json(reply),
            "state": "ready",
            "created_at": now_ms,
        }
        if reply.id in delivered:
            receipt = receipt_json(Receipt(message_ids=(reply.id,)))
            row |= {"state": "sent", "attempts": 1, "receipt": receipt, "ended_at": now_ms}
        add_row(connection, "outbox", row, "ON CONFLICT (id) DO NOTHING")


class SqlOutbox:
    """Replies until their platform has them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def claim_reply(
        self, conversation: ConversationRef, *, is_durable: bool, epoch: int = 0
    ) -> OutboxRow | NotDue | None:
        def work(connection: Connection) -> OutboxRow | NotDue | None:
            if epoch:
                hold_epoch(connection, f"channel:{conversation.channel}", epoch)
            rows = connection.execute(_OLDEST_TWO, key_of(conversation)).fetchall()
            if not rows or rows[0]["state"] == "sending":
                return None
            head, now_ms = rows[0], rows[0]["now_ms"]
            if head["due_at"] > now_ms:
                return NotDue(due_in_s=(head["due_at"] - now_ms) / 1000)
            (failing_since,) = connection.execute(_CLAIM, (now_ms, head["seq"], epoch)).fetchone()
            return value_of(
                OutboxRow,
                head,
                message=outbound(head),
                attempts=head["attempts"] + 1,
                has_more=len(rows) > 1,
                epoch=epoch,
                failing_s=None if failing_since is None else max(0, now_ms - failing_since) / 1000,
            )

        return await self._engine.write(work, is_durable=is_durable)

    async def record_sent(self, seq: int, receipt: Receipt, notice: OutboundMessage | None = None) -> None:
        await self._end(_SENT, (receipt_json(receipt), wall_ms(), seq), notice)

    async def record_retry(
        self,
        seq: int,
        *,
        epoch: int = 0,
        after_s: float,
        error: str,
        is_uncertain: bool,
        is_counted: bool = True,
        is_put_off: bool = False,
    ) -> None:
        row = (round(after_s * 1000), storable(error), is_uncertain, is_counted, is_put_off, seq, epoch)
        await self._engine.write(statement(_RETRY, row), is_durable=False)

    async def make_reply_due(self, conversation: ConversationRef) -> None:
        await self._engine.write(make_due("outbox", conversation), is_durable=False)

    async def record_dead(self, seq: int, error: str, notice: OutboundMessage | None = None) -> None:
        await self._end(_DEAD, (storable(error), wall_ms(), seq), notice)

    async def _end(self, sql: str, values: tuple[object, ...], notice: OutboundMessage | None) -> None:
        def work(connection: Connection) -> None:
            ended = connection.execute(sql, values).fetchone()
            if notice is not None and ended is not None:  # none where its person was erased meanwhile
                insert_replies(connection, ended["turn_id"], (notice,))

        await self._engine.write(work)

    async def recover_replies(self) -> int:
        """What waits never waits longer than it was meant to, nor than an hour, whatever the clock does."""

        def work(connection: Connection) -> int:
            correct_waits(connection, "outbox")
            return connection.execute(_RECOVER).rowcount

        return await self._engine.write(work)

    async def take_over_replies(self, channel: str, epoch: int) -> int:
        return await self._engine.write(statement(_TAKE_OVER, (channel, epoch)))

    async def unsent(self, channel: str | None = None) -> Sequence[tuple[ConversationRef, float]]:
        rows = await self._engine.rows(_UNSENT)
        return waits_of([row for row in rows if channel in (None, row["channel"])])

    async def put_off(self) -> Sequence[ConversationRef]:
        return [conversation_of(row) for row in await self._engine.rows(_PUT_OFF)]
