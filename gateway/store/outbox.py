"""The outbox in SQLite: see `gateway.outbox.OutboxStore`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from gateway.inbox import NotDue
from gateway.messages import ConversationRef, OutboundMessage, Receipt
from gateway.outbox import OutboxRow
from gateway.store.clock import correct_waits, steady_ms, wall_ms
from gateway.store.database import Database
from gateway.store.payloads import conversation_of, outbound, outbound_json, receipt_json, storable
from gateway.store.statement import statement

_ADD = """
    INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, due_at, waiting_since,
                        created_at)
    VALUES ((SELECT last + 1 FROM sequence), ?, ?, ?, ?, ?, ?, 'ready', ?, ?, ?)
    ON CONFLICT (id) DO NOTHING
    RETURNING seq
"""
_OLDEST_TWO = """
    SELECT * FROM outbox
    WHERE channel = ? AND conversation = ? AND thread IS ? AND ended_at IS NULL ORDER BY seq LIMIT 2
"""
_UNSENT = """
    SELECT channel, conversation, thread, due_at, min(seq)
    FROM outbox WHERE ended_at IS NULL GROUP BY channel, conversation, thread ORDER BY min(seq)
"""
_SENT = "UPDATE outbox SET state = 'sent', receipt = ?, error = NULL, is_uncertain = 0, ended_at = ? WHERE seq = ?"
_RETRY = """
    UPDATE outbox SET state = 'ready', due_at = ?, waiting_since = ?, error = ?, is_uncertain = ?,
                      attempts = attempts - ?
    WHERE seq = ? AND state = 'sending'
"""
_DEAD = "UPDATE outbox SET state = 'dead', error = ?, ended_at = ? WHERE seq = ? AND ended_at IS NULL"
_RECOVER = "UPDATE outbox SET state = 'ready', is_uncertain = 1 WHERE ended_at IS NULL AND state = 'sending'"


def insert_replies(
    connection: sqlite3.Connection, turn_id: str, replies: Sequence[OutboundMessage], due_at: int
) -> None:
    """Queue replies inside the transaction of their turn; one whose id is there already stays as it is."""
    for reply in replies:
        where = reply.conversation
        row = (reply.id, turn_id, where.channel, where.conversation, where.thread, outbound_json(reply))
        added = connection.execute(_ADD, (*row, due_at, due_at, wall_ms())).fetchone()
        if added is not None:
            connection.execute("UPDATE sequence SET last = ?", (added["seq"],))


class SqliteOutbox:
    """Replies until their platform has them; `now_ms` measures waits."""

    def __init__(self, database: Database, *, now_ms: Callable[[], int] = steady_ms) -> None:
        self._database = database
        self._now_ms = now_ms

    async def claim_reply(self, conversation: ConversationRef, *, is_durable: bool) -> OutboxRow | NotDue | None:
        """Mark the conversation's oldest unsent reply as being sent, if its time has come."""
        place = (conversation.channel, conversation.conversation, conversation.thread)

        def work(connection: sqlite3.Connection) -> OutboxRow | NotDue | None:
            rows = connection.execute(_OLDEST_TWO, place).fetchall()
            if not rows or rows[0]["state"] == "sending":
                return None
            head, now_ms = rows[0], self._now_ms()
            if head["due_at"] > now_ms:
                return NotDue(due_in_s=(head["due_at"] - now_ms) / 1000)
            connection.execute(
                "UPDATE outbox SET state = 'sending', attempts = attempts + 1 WHERE seq = ?", (head["seq"],)
            )
            return OutboxRow(
                seq=head["seq"],
                turn_id=head["turn_id"],
                message=outbound(head),
                attempts=head["attempts"] + 1,
                is_uncertain=bool(head["is_uncertain"]),
                has_more=len(rows) > 1,
            )

        return await self._database.write(work, is_durable=is_durable)

    async def record_sent(self, seq: int, receipt: Receipt) -> None:
        """The platform has it."""
        row = (receipt_json(receipt), wall_ms(), seq)
        await self._database.write(statement(_SENT, row))

    async def record_retry(
        self, seq: int, *, after_s: float, error: str, is_uncertain: bool, is_counted: bool = True
    ) -> None:
        """To be sent again after some seconds."""
        now_ms = self._now_ms()
        row = (now_ms + round(after_s * 1000), now_ms, storable(error), is_uncertain, 0 if is_counted else 1, seq)
        await self._database.write(statement(_RETRY, row), is_durable=False)

    async def record_dead(self, seq: int, error: str) -> None:
        """Give up; the row stays among the dead letters with its reason."""
        row = (storable(error), wall_ms(), seq)
        await self._database.write(statement(_DEAD, row))

    async def recover_replies(self) -> int:
        """For a start: what was being sent when the process died becomes unsent and uncertain; how many.

        What waits never waits longer than it was meant to, nor than an hour, whatever the clock does.
        """
        now_ms = self._now_ms()

        def work(connection: sqlite3.Connection) -> int:
            correct_waits(connection, "outbox", now_ms)
            return connection.execute(_RECOVER).rowcount

        return await self._database.write(work)

    async def unsent(self) -> Sequence[tuple[ConversationRef, float]]:
        """Every conversation with an unsent reply, and the seconds until its head is due, oldest head first."""
        rows = await self._database.read(lambda connection: connection.execute(_UNSENT).fetchall())
        now_ms = self._now_ms()
        return [(conversation_of(row), max(0, row["due_at"] - now_ms) / 1000) for row in rows]
