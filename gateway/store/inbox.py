"""The inbox: see `gateway.pipeline.queues.InboxStore`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gateway.messages import ConversationRef, InboundMessage
from gateway.pipeline.queues import SUSPECT_DEATHS, InboxRow, NotDue, Parked, Refused, Room, Suspect
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, statement
from gateway.store.erased_events import is_erased_event
from gateway.store.outbox import insert_replies
from gateway.store.payloads import conversation_of, inbound, inbound_json, storable
from gateway.store.queue_rows import add_row, correct_waits, make_due, waits_of
from gateway.store.rows import columns_of, key_of, value_of

_ONCE = "ON CONFLICT DO NOTHING"
_OPEN_OF_SENDER = """
    SELECT count(*), min(seq) FROM (
        SELECT seq FROM inbox WHERE channel = ? AND sender = ? AND ended_at IS NULL ORDER BY seq LIMIT ?
    ) AS waiting
"""
# Since what waits now has been waiting.
_IS_TOLD_OF_LIMIT = """
    SELECT EXISTS (
        SELECT 1 FROM inbox WHERE channel = ? AND sender = ? AND is_refused AND is_told AND seq > ?
                              AND conversation = ? AND thread IS NOT DISTINCT FROM ?
    )
"""
_OLDEST_TWO = """
    SELECT *, EXISTS (SELECT 1 FROM turn_steps WHERE turn_steps.turn_id = inbox.turn_id) AS has_steps,
           now_ms() AS now_ms FROM inbox
    WHERE channel = ? AND conversation = ? AND thread IS NOT DISTINCT FROM ? AND ended_at IS NULL ORDER BY seq LIMIT 2
"""
_CLAIM = """
    UPDATE inbox SET state = 'running', attempts = attempts + 1, claimed_by = ?,
                     lease_until = now_ms() + ? WHERE seq = ?
"""
_RENEW = "UPDATE inbox SET lease_until = now_ms() + ? WHERE state = 'running' AND claimed_by = ?"
_RELEASE = """
    UPDATE inbox SET state = CASE WHEN is_told THEN 'parked' ELSE 'ready' END, claimed_by = NULL, lease_until = NULL,
                     due_at = now_ms() + ?, waiting_since = now_ms(), error = ?, attempts = attempts - ?
    WHERE seq = ? AND state = 'running' AND claimed_by = ?
"""
_RECLAIM = """
    UPDATE inbox SET state = CASE WHEN is_told THEN 'parked' ELSE 'ready' END, claimed_by = NULL, lease_until = NULL,
                     attempts = attempts - 1, deaths = deaths + 1
    WHERE state = 'running' AND claimed_by <> ? RETURNING seq, lone_deaths
"""
_DIED_ALONE = "UPDATE inbox SET lone_deaths = ?, due_at = now_ms() + ?, waiting_since = now_ms() WHERE seq = ?"
_WAITING = """
    SELECT channel, conversation, thread,
           (CASE WHEN state = 'running' THEN lease_until ELSE due_at END) - now_ms() AS due_in_ms
    FROM inbox JOIN (
        SELECT min(seq) AS head FROM inbox WHERE ended_at IS NULL GROUP BY channel, conversation, thread
    ) AS heads ON seq = head ORDER BY seq
"""
_SPEAKERS = """
    SELECT channel, conversation, thread, sender FROM inbox JOIN (
        SELECT min(seq) AS head FROM inbox WHERE ended_at IS NULL GROUP BY channel, conversation, thread
    ) AS heads ON seq = head
"""
_PARKED = """
    SELECT channel, conversation, thread, waits_for FROM inbox WHERE is_told AND ended_at IS NULL ORDER BY seq
"""


class SqlInbox:
    """One row per message for ever."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, message: InboundMessage, turn_id: str, room: Room | None = None) -> int | Refused | None:
        row = columns_of(message.conversation) | {
            "turn_id": turn_id,
            "event_id": message.event_id,
            "message_id": message.id,
            "payload": inbound_json(message),
            "sender": storable(message.sender.user),
            "is_direct": message.is_direct,
            "state": "ready",
            "accepted_at": wall_ms(),
        }

        def work(connection: Connection) -> int | Refused | None:
            if is_erased_event(connection, message):
                return None
            oldest = None if room is None else _oldest_of_full_queue(connection, message, room)
            if room is None or oldest is None:
                return add_row(connection, "inbox", row, _ONCE)
            notices = () if room.notice is None or _is_told_of_limit(connection, message, oldest) else (room.notice,)
            refused = {"state": "done", "error": "refused: the sender's queue was full", "ended_at": wall_ms()}
            is_told = bool(notices)
            if add_row(connection, "inbox", row | refused | {"is_refused": True, "is_told": is_told}, _ONCE) is None:
                return None
            insert_replies(connection, turn_id, notices)
            return Refused(is_told=is_told)

        return await self._engine.write(work, is_of_crowd=True)

    async def claim(
        self, conversation: ConversationRef, *, owner: str, lease_s: float, is_alone: bool = False
    ) -> InboxRow | NotDue | Suspect | None:
        """A lease that ran out lets another owner take the message; its own owner never gets it twice."""

        def work(connection: Connection) -> InboxRow | NotDue | Suspect | None:
            rows = connection.execute(_OLDEST_TWO, key_of(conversation)).fetchall()
            if not rows:
                return None
            head, now_ms = rows[0], rows[0]["now_ms"]
            if head["state"] == "running":
                if head["claimed_by"] == owner or head["lease_until"] > now_ms:
                    return None
            elif head["due_at"] > now_ms:
                return NotDue(due_in_s=(head["due_at"] - now_ms) / 1000)
            if head["deaths"] >= SUSPECT_DEATHS and not is_alone:
                return Suspect()
            connection.execute(_CLAIM, (owner, round(lease_s * 1000), head["seq"]))
            return value_of(
                InboxRow,
                head,
                message=inbound(head),
                attempts=head["attempts"] + 1,
                has_steps=bool(head["has_steps"]),
                has_more=len(rows) > 1,
                next_sender=rows[1]["sender"] if len(rows) > 1 else None,
            )

        return await self._engine.write(work, is_durable=False)

    async def renew(self, owner: str, lease_s: float) -> None:
        await self._engine.write(statement(_RENEW, (round(lease_s * 1000), owner)), is_durable=False)

    async def release(self, seq: int, *, owner: str, after_s: float, error: str | None, is_counted: bool) -> None:
        """Nothing happens when the claim is lost. A message whose sender was told that it waits is `parked` again."""
        why = None if error is None else storable(error)
        row = (round(after_s * 1000), why, 0 if is_counted else 1, seq, owner)
        await self._engine.write(statement(_RELEASE, row), is_durable=False)

    async def make_due(self, conversation: ConversationRef) -> None:
        await self._engine.write(make_due("inbox", conversation), is_durable=False)

    async def reclaim(self, owner: str, after_s: Callable[[int], float] = lambda _deaths: 0.0) -> int:
        """What waits never waits longer than it was meant to, nor than an hour, whatever the clock does."""

        def work(connection: Connection) -> int:
            correct_waits(connection, "inbox")
            held = connection.execute(_RECLAIM, (owner,)).fetchall()
            if len(held) == 1:
                [row] = held
                deaths = row["lone_deaths"] + 1
                connection.execute(_DIED_ALONE, (deaths, round(after_s(deaths) * 1000), row["seq"]))
            return len(held)

        return await self._engine.write(work)

    async def waiting(self) -> Sequence[tuple[ConversationRef, float]]:
        """A head that is claimed is due when the lease ends."""
        return waits_of(await self._engine.rows(_WAITING))

    async def speakers(self) -> Mapping[ConversationRef, str]:
        rows = await self._engine.rows(_SPEAKERS)
        return {conversation_of(row): row["sender"] for row in rows}

    async def parked(self) -> Sequence[Parked]:
        rows = await self._engine.rows(_PARKED)
        return [value_of(Parked, row, conversation=conversation_of(row)) for row in rows]


def _oldest_of_full_queue(connection: Connection, message: InboundMessage, room: Room) -> int | None:
    """The oldest message that waits of a sender whose queue is full; None where there is room."""
    whose = (message.conversation.channel, storable(message.sender.user))
    waiting, oldest = connection.execute(_OPEN_OF_SENDER, (*whose, room.messages)).fetchone()
    return oldest if waiting >= room.messages else None


def _is_told_of_limit(connection: Connection, message: InboundMessage, oldest: int) -> bool:
    channel, *place = key_of(message.conversation)
    values = (channel, storable(message.sender.user), oldest, *place)
    return bool(connection.execute(_IS_TOLD_OF_LIMIT, values).fetchone()[0])
