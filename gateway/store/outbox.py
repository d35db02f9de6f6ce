"""The outbox: see `gateway.pipeline.queues.OutboxStore`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from gateway.messages import ConversationRef, OutboundMessage, Receipt
from gateway.pipeline.queues import NotDue, OutboxRow
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row, at_once, statement
from gateway.store.leases import hold_epoch
from gateway.store.occurrences import end_delivery
from gateway.store.payloads import conversation_of, outbound, outbound_json, receipt_json, storable
from gateway.store.queue_rows import LANE, RAISE, correct_waits, lane_key
from gateway.store.rows import columns_of, marks_for, value_of

_OLDEST_TWO = f"""
    SELECT *, now_ms() AS now_ms FROM outbox
    WHERE channel = ? AND lane = {LANE} AND ended_at IS NULL ORDER BY seq LIMIT 2
"""  # noqa: S608 (names of ours)
# What the claim comes later than planned is time in which nothing was tried: it is taken out of the failure, once.
_CLAIM = """
    UPDATE outbox SET state = 'sending', attempts = attempts + 1, failing_since = failing_since + ?1 - due_at,
                      due_at = ?1, waiting_since = ?1, epoch = ?2
    WHERE lane = ?3 AND seq = ?4 AND state <> 'sending' RETURNING failing_since
"""
# The same where nothing is read before: of the oldest, if its time has come. One that is being sent under the holder's
# own epoch is not: it was claimed, and a connection that broke has kept that from who asked.
_CLAIM_AT_ONCE = f"""
    UPDATE outbox SET state = 'sending', attempts = attempts + 1, failing_since = failing_since + now_ms() - due_at,
                      due_at = now_ms(), waiting_since = now_ms(), epoch = ?
    WHERE lane = {LANE} AND (state = 'ready' OR (state = 'sending' AND epoch = ?)) AND due_at <= now_ms()
    AND ended_at IS NULL
    AND seq = (SELECT min(seq) FROM outbox AS head WHERE head.lane = outbox.lane AND head.ended_at IS NULL)
    RETURNING *, now_ms() AS now_ms, EXISTS (
        SELECT 1 FROM outbox AS later
        WHERE later.lane = outbox.lane AND later.seq > outbox.seq AND later.ended_at IS NULL
    ) AS has_more
"""  # noqa: S608 (names of ours)
_WAITS = f"""
    SELECT due_at - now_ms() AS due_in_ms FROM outbox
    WHERE lane = {LANE} AND state = 'ready' AND due_at > now_ms() AND ended_at IS NULL
    AND seq = (SELECT min(seq) FROM outbox AS head WHERE head.lane = outbox.lane AND head.ended_at IS NULL)
"""  # noqa: S608 (names of ours)
_UNSENT = """
    SELECT channel, conversation, thread, due_at - now_ms() AS due_in_ms FROM outbox JOIN (
        SELECT lane AS head_lane, min(seq) AS head FROM outbox
        WHERE ended_at IS NULL AND (CAST(?1 AS text) IS NULL OR channel = ?1) GROUP BY lane
    ) AS heads ON lane = head_lane AND seq = head ORDER BY created_at, lane
"""
# What a platform has, it has: the receipt counts, even if another holds the channel by now.
_SENT = """
    UPDATE outbox SET state = 'sent', receipt = ?, error = NULL, is_uncertain = FALSE, ended_at = ?
    WHERE lane = ? AND seq = ?
"""
_RETRY = """
    UPDATE outbox SET state = 'ready', due_at = now_ms() + ?1, waiting_since = now_ms(), error = ?2, is_uncertain = ?3,
                      attempts = attempts - CASE WHEN ?4 THEN 0 ELSE 1 END,
                      failing_since = coalesce(failing_since, CASE WHEN ?4 THEN NULL ELSE now_ms() END),
                      is_put_off = ?5
    WHERE lane = ?6 AND seq = ?7 AND state = 'sending' AND epoch = ?8
"""
_EXCHANGE = "UPDATE outbox SET payload = ? WHERE lane = ? AND seq = ? AND epoch = ? AND state = 'sending'"
_PUT_OFF = """
    SELECT DISTINCT channel, conversation, thread FROM outbox
    WHERE ended_at IS NULL AND is_put_off AND (CAST(?1 AS text) IS NULL OR channel = ?1)
"""
_DEAD = """
    UPDATE outbox SET state = 'dead', error = ?, ended_at = ?
    WHERE lane = ? AND seq = ? AND epoch = ? AND ended_at IS NULL
"""
_RECOVER = """
    UPDATE outbox SET state = 'ready', is_uncertain = TRUE
    WHERE ended_at IS NULL AND state = 'sending' AND epoch < ?2 AND (CAST(?1 AS text) IS NULL OR channel = ?1)
"""
_MAKE_DUE = f"""
    UPDATE outbox SET due_at = now_ms(), waiting_since = now_ms()
    WHERE channel = ? AND lane = {LANE} AND ended_at IS NULL AND due_at > now_ms()
"""  # noqa: S608 (names of ours)


def insert_replies(
    connection: Connection,
    turn_id: str,
    replies: Sequence[OutboundMessage],
    *,
    delivered: Collection[str] = (),
    user_id: str | None = None,
) -> None:
    """Queue replies inside the transaction of their turn; one whose id is there already stays as it is.

    Args:
        delivered: ids of those that are stored as sent: their channel shows the log.
        user_id: whose schedule they are of, also when that is gone.
    """
    for reply in replies:
        now_ms = wall_ms()
        row = columns_of(reply.conversation) | {
            "id": reply.id,
            "turn_id": turn_id,
            "user_id": user_id,
            "payload": outbound_json(reply),
            "state": "ready",
            "due_at": 0,
            "created_at": now_ms,
        }
        if reply.id in delivered:
            receipt = receipt_json(Receipt(message_ids=(reply.id,)))
            row |= {"state": "sent", "attempts": 1, "receipt": receipt, "ended_at": now_ms}
        key = lane_key(reply.conversation)
        connection.execute(RAISE, key)
        sql = f"""
            INSERT INTO outbox (lane, seq, {", ".join(row)}) SELECT id, last_seq, {marks_for(row)} FROM lanes
            WHERE channel = ? AND conversation = ? AND thread = ? ON CONFLICT (id) DO NOTHING
        """  # noqa: S608 (names of ours)
        connection.execute(sql, (*row.values(), *key))  # what is inserted is not asked for: a server is not waited for


class SqlOutbox:
    """Replies until their platform has them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, message: OutboundMessage, *, delivered: Collection[str]) -> OutboundMessage:
        def work(connection: Connection) -> OutboundMessage:
            insert_replies(connection, message.id, (message,), delivered=delivered)
            return outbound(connection.execute("SELECT * FROM outbox WHERE id = ?", (message.id,)).fetchone())

        return await self._engine.write(work)

    async def claim_reply(
        self, conversation: ConversationRef, *, is_durable: bool, epoch: int = 0
    ) -> OutboxRow | NotDue | None:
        def work(connection: Connection) -> Callable[[], OutboxRow | NotDue | None]:
            if epoch:
                hold_epoch(connection, f"channel:{conversation.channel}", epoch)
            if connection.is_at_once:
                return _claim_at_once(connection, conversation, epoch)
            claimed = _claim(connection, conversation, epoch)
            return lambda: claimed

        return await self._engine.write_at_once(work, is_durable=is_durable)

    async def exchange(self, row: OutboxRow, message: OutboundMessage) -> bool:
        values = (outbound_json(message), row.lane, row.seq, row.epoch)
        return await self._engine.write(statement(_EXCHANGE, values), alone=()) == 1

    async def record_sent(self, row: OutboxRow, receipt: Receipt, notice: OutboundMessage | None = None) -> None:
        await self._end(_SENT, (receipt_json(receipt), wall_ms(), row.lane, row.seq), notice)

    async def record_retry(
        self,
        row: OutboxRow,
        *,
        after_s: float,
        error: str,
        is_uncertain: bool,
        is_counted: bool = True,
        is_put_off: bool = False,
    ) -> None:
        fence = (row.lane, row.seq, row.epoch)
        values = (round(after_s * 1000), storable(error), is_uncertain, is_counted, is_put_off, *fence)
        await self._engine.write(statement(_RETRY, values), is_durable=False, alone=())

    async def make_reply_due(self, conversation: ConversationRef) -> None:
        await self._engine.write(
            statement(_MAKE_DUE, (conversation.channel, *lane_key(conversation))), is_durable=False, alone=()
        )

    async def record_dead(self, row: OutboxRow, error: str, notice: OutboundMessage | None = None) -> None:
        values = (storable(error), wall_ms(), row.lane, row.seq, row.epoch)

        def work(connection: Connection) -> None:
            if connection.execute(_DEAD, values).rowcount == 1:
                end_delivery(connection, row.turn_id, row.message, storable(error), is_refused=notice is None)
                insert_replies(connection, row.turn_id, () if notice is None else (notice,))

        await self._engine.write(work, alone=())

    async def _end(self, sql: str, values: tuple[object, ...], notice: OutboundMessage | None) -> None:
        def work(connection: Connection) -> None:
            ended = connection.execute(f"{sql} RETURNING turn_id", values).fetchone()
            if ended is not None and notice is not None:  # none where its person was erased meanwhile
                insert_replies(connection, ended["turn_id"], (notice,))

        if notice is None:
            await self._engine.write_at_once(at_once(sql, values))
        else:
            await self._engine.write(work, alone=())

    async def recover_replies(self, channel: str | None = None, epoch: int = 1) -> int:
        """What waits never waits longer than it was meant to, nor than an hour, whatever the clock does."""

        def work(connection: Connection) -> int:
            correct_waits(connection, "outbox")
            return connection.execute(_RECOVER, (channel, epoch)).rowcount

        return await self._engine.write(work, alone=())

    async def unsent(self, channel: str | None = None) -> Sequence[tuple[ConversationRef, float]]:
        rows = await self._engine.rows(_UNSENT, (channel,))
        return [(conversation_of(row), max(0, row["due_in_ms"]) / 1000) for row in rows]

    async def put_off(self, channel: str | None = None) -> Sequence[ConversationRef]:
        return [conversation_of(row) for row in await self._engine.rows(_PUT_OFF, (channel,))]


def _claim(connection: Connection, conversation: ConversationRef, epoch: int) -> OutboxRow | NotDue | None:
    rows = connection.execute(_OLDEST_TWO, (conversation.channel, *lane_key(conversation))).fetchall()
    if not rows:
        return None
    head, now_ms = rows[0], rows[0]["now_ms"]
    if head["state"] == "sending":
        if not epoch or head["epoch"] != epoch:
            return None
        return _claimed(head, head["failing_since"], attempts=head["attempts"], has_more=len(rows) > 1, epoch=epoch)
    if head["due_at"] > now_ms:
        return NotDue(due_in_s=(head["due_at"] - now_ms) / 1000)
    row = connection.execute(_CLAIM, (now_ms, epoch, head["lane"], head["seq"])).fetchone()
    if row is None:  # another worker was faster, on a channel that is everybody's
        return None
    return _claimed(head, row["failing_since"], attempts=head["attempts"] + 1, has_more=len(rows) > 1, epoch=epoch)


def _claim_at_once(
    connection: Connection, conversation: ConversationRef, epoch: int
) -> Callable[[], OutboxRow | NotDue | None]:
    key = lane_key(conversation)
    asked = connection.execute(_CLAIM_AT_ONCE, (epoch, *key, epoch or -1))
    waiting = connection.execute(_WAITS, key)

    def claimed() -> OutboxRow | NotDue | None:
        row = asked.fetchone()
        if row is not None:
            return _claimed(row, row["failing_since"], attempts=row["attempts"], has_more=row["has_more"], epoch=epoch)
        waits = waiting.fetchone()
        return None if waits is None else NotDue(due_in_s=waits["due_in_ms"] / 1000)

    return claimed


def _claimed(row: Row, failing_since: int | None, *, attempts: int, has_more: bool, epoch: int) -> OutboxRow:
    failing_s = None if failing_since is None else max(0, row["now_ms"] - failing_since) / 1000
    return value_of(
        OutboxRow,
        row,
        message=outbound(row),
        attempts=attempts,
        has_more=has_more,
        epoch=epoch,
        failing_s=failing_s,
    )
