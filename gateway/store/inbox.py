"""The inbox in SQLite: see `gateway.inbox.InboxStore`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from gateway.inbox import InboxRow, NotDue
from gateway.messages import ConversationRef, InboundMessage
from gateway.store.clock import LONGEST_WAIT_MS, steady_ms, wall_ms
from gateway.store.database import Database
from gateway.store.erased_events import is_erased_event
from gateway.store.payloads import conversation_of, from_ms, inbound, inbound_json, storable
from gateway.store.statement import statement

_ADD = """
    INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, due_at,
                       accepted_at)
    VALUES ((SELECT last + 1 FROM sequence), ?, ?, ?, ?, ?, ?, ?, 'ready', ?, ?)
    ON CONFLICT (channel, event_id) DO NOTHING
    ON CONFLICT (channel, conversation, message_id) DO NOTHING
    RETURNING seq
"""
_OLDEST_TWO = """
    SELECT *, EXISTS (SELECT 1 FROM turn_steps WHERE turn_steps.turn_id = inbox.turn_id) AS has_steps FROM inbox
    WHERE channel = ? AND conversation = ? AND thread IS ? AND ended_at IS NULL ORDER BY seq LIMIT 2
"""
_CLAIM = """
    UPDATE inbox SET state = 'running', attempts = attempts + 1, claimed_by = ?, lease_until = ? WHERE seq = ?
"""
_RENEW = "UPDATE inbox SET lease_until = ? WHERE state = 'running' AND claimed_by = ?"
_MAKE_DUE = """
    UPDATE inbox SET due_at = min(due_at, ?)
    WHERE channel = ? AND conversation = ? AND thread IS ? AND ended_at IS NULL
"""
_RELEASE = """
    UPDATE inbox SET state = iif(is_told, 'parked', 'ready'), claimed_by = NULL, lease_until = NULL,
                     due_at = ?, error = ?, attempts = attempts - ?
    WHERE seq = ? AND state = 'running' AND claimed_by = ?
"""
_RECLAIM = """
    UPDATE inbox SET state = iif(is_told, 'parked', 'ready'), claimed_by = NULL, lease_until = NULL
    WHERE state = 'running' AND claimed_by <> ?
"""
_WAITING = """
    SELECT channel, conversation, thread, iif(state = 'running', lease_until, due_at) AS due_at, min(seq)
    FROM inbox WHERE ended_at IS NULL GROUP BY channel, conversation, thread ORDER BY min(seq)
"""


class SqliteInbox:
    """One row per message for ever; `now_ms` measures leases and waits."""

    def __init__(self, database: Database, *, now_ms: Callable[[], int] = steady_ms) -> None:
        self._database = database
        self._now_ms = now_ms

    async def add(self, message: InboundMessage, turn_id: str) -> int | None:
        """Commit the message; its sequence number, or None when the event or the message is there already."""
        where = message.conversation
        row = (
            turn_id,
            where.channel,
            message.event_id,
            where.conversation,
            where.thread,
            message.id,
            inbound_json(message),
            self._now_ms(),
            wall_ms(),
        )

        def work(connection: sqlite3.Connection) -> int | None:
            ids = {"event_id": message.event_id, "message_id": message.id}
            if is_erased_event(connection, channel=where.channel, conversation=where.conversation, **ids):
                return None
            added = connection.execute(_ADD, row).fetchone()
            if added is None:
                return None
            connection.execute("UPDATE sequence SET last = ?", (added["seq"],))
            return int(added["seq"])

        return await self._database.write(work)

    async def claim(self, conversation: ConversationRef, *, owner: str, lease_s: float) -> InboxRow | NotDue | None:
        """Take the conversation's oldest unfinished message, if nobody holds it and its time has come.

        A lease that ran out lets another owner take the message; its own owner never gets it twice.
        """
        place = (conversation.channel, conversation.conversation, conversation.thread)

        def work(connection: sqlite3.Connection) -> InboxRow | NotDue | None:
            rows = connection.execute(_OLDEST_TWO, place).fetchall()
            if not rows:
                return None
            head, now_ms = rows[0], self._now_ms()
            if head["state"] == "running":
                if head["claimed_by"] == owner or head["lease_until"] > now_ms:
                    return None
            elif head["due_at"] > now_ms:
                return NotDue(due_in_s=(head["due_at"] - now_ms) / 1000)
            connection.execute(_CLAIM, (owner, now_ms + round(lease_s * 1000), head["seq"]))
            return InboxRow(
                seq=head["seq"],
                turn_id=head["turn_id"],
                message=inbound(head),
                attempts=head["attempts"] + 1,
                is_told=bool(head["is_told"]),
                has_steps=bool(head["has_steps"]),
                has_more=len(rows) > 1,
                accepted_at=from_ms(head["accepted_at"]),
            )

        return await self._database.write(work, is_durable=False)

    async def renew(self, owner: str, lease_s: float) -> None:
        """Put off the end of all leases of the owner."""
        until = self._now_ms() + round(lease_s * 1000)
        await self._database.write(statement(_RENEW, (until, owner)), is_durable=False)

    async def release(self, seq: int, *, owner: str, after_s: float, error: str | None, is_counted: bool) -> None:
        """Give the message back, to be claimed again after some seconds; `is_counted` False takes the attempt back.

        Nothing happens when the claim is lost. A message whose sender was told that it waits is `parked` again.
        """
        due_at = self._now_ms() + round(after_s * 1000)
        row = (due_at, None if error is None else storable(error), 0 if is_counted else 1, seq, owner)
        await self._database.write(statement(_RELEASE, row), is_durable=False)

    async def make_due(self, conversation: ConversationRef) -> None:
        """Let what waits in the conversation be claimed now."""
        row = (self._now_ms(), conversation.channel, conversation.conversation, conversation.thread)
        await self._database.write(statement(_MAKE_DUE, row), is_durable=False)

    async def reclaim(self, owner: str) -> int:
        """Give back what other owners hold; for a start, when the others are known to be dead.

        Their attempts count, so a message that kills the process does not do so for ever. What waits for more than an
        hour is made due in an hour, because the clock may have been wrong when that was decided.
        """
        latest = self._now_ms() + LONGEST_WAIT_MS

        def work(connection: sqlite3.Connection) -> int:
            connection.execute("UPDATE inbox SET due_at = ?1 WHERE ended_at IS NULL AND due_at > ?1", (latest,))
            return connection.execute(_RECLAIM, (owner,)).rowcount

        return await self._database.write(work)

    async def waiting(self) -> Sequence[tuple[ConversationRef, float]]:
        """Every conversation with an unfinished message, and the seconds until its head is due, oldest head first.

        A head that somebody holds is due when the lease ends.
        """
        rows = await self._database.read(lambda connection: connection.execute(_WAITING).fetchall())
        now_ms = self._now_ms()
        return [(conversation_of(row), max(0, row["due_at"] - now_ms) / 1000) for row in rows]
