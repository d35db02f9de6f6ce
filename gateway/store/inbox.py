"""The inbox: see `gateway.pipeline.queues.InboxStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.messages import InboundMessage
from gateway.pipeline.queues import Asks, Parked, Refused, Room
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine
from gateway.store.erased_events import ask_whether_erased
from gateway.store.lanes import arrive, hasten, rest, stop
from gateway.store.outbox import insert_replies
from gateway.store.payloads import conversation_of, inbound_json, storable
from gateway.store.queue_rows import next_place
from gateway.store.rows import columns_of, insert, insert_new, key_of, value_of

_OPEN_OF_SENDER = """
    SELECT count(*), min(accepted_at) FROM (
        SELECT accepted_at FROM inbox WHERE channel = ? AND sender = ? AND ended_at IS NULL ORDER BY accepted_at LIMIT ?
    ) AS waiting
"""
# Since what waits now has been waiting.
_IS_TOLD_OF_LIMIT = """
    SELECT EXISTS (
        SELECT 1 FROM inbox WHERE channel = ? AND sender = ? AND is_refused AND is_told AND accepted_at >= ?
                              AND conversation = ? AND thread IS NOT DISTINCT FROM ?
    )
"""
_PARKED = """
    SELECT channel, conversation, thread, waits_for FROM inbox
    WHERE is_told AND ended_at IS NULL ORDER BY accepted_at, lane, seq
"""


class SqlInbox:
    """One row per message for ever."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(
        self, message: InboundMessage, turn_id: str, room: Room | None = None, *, asks: Asks | None = None
    ) -> int | Refused | None:
        row = columns_of(message.conversation) | {
            "turn_id": turn_id,
            "event_id": message.event_id,
            "message_id": message.id,
            "payload": inbound_json(message),
            "sender": storable(message.sender.user),
            "needs_channel": bool(message.attachments),
            "is_direct": message.is_direct,
            "state": "ready",
            "accepted_at": wall_ms(),
        }

        def work(connection: Connection) -> int | Refused | None:
            is_erased = ask_whether_erased(connection, message)
            oldest = None if room is None else _oldest_of_full_queue(connection, message, room)
            if is_erased():
                return None
            if room is not None and oldest is not None:
                return _refuse(connection, message, row, room, oldest)
            return _accept(connection, message, row, asks)

        return await self._engine.write(work, is_of_crowd=True, alone=())

    async def parked(self) -> Sequence[Parked]:
        rows = await self._engine.rows(_PARKED)
        return [value_of(Parked, row, conversation=conversation_of(row)) for row in rows]


def _accept(connection: Connection, message: InboundMessage, row: Mapping[str, Any], asks: Asks | None) -> int | None:
    place = arrive(connection, message.conversation, row["sender"], needs_channel=row["needs_channel"])
    had_effect = asks == "retry" and hasten(connection, place)
    columns = {**row, **place._asdict(), "asks": asks, "had_effect": had_effect}
    inserted = insert(connection, "inbox", columns, "ON CONFLICT DO NOTHING")
    is_erased = ask_whether_erased(connection, message) if connection.dialect.is_shared else lambda: False
    is_new = inserted.rowcount == 1
    if is_new and is_erased():
        # It was erased while this waited for its row.
        connection.execute("DELETE FROM inbox WHERE lane = ? AND seq = ?", tuple(place))
        is_new = False
    if not is_new:
        rest(connection, place.lane)
        return None
    if asks == "stop" and stop(connection, place):
        connection.execute("UPDATE inbox SET had_effect = TRUE WHERE lane = ? AND seq = ?", tuple(place))
    return place.seq


def _refuse(
    connection: Connection, message: InboundMessage, row: Mapping[str, Any], room: Room, oldest: int
) -> Refused | None:
    notices = () if room.notice is None or _is_told_of_limit(connection, message, oldest) else (room.notice,)
    is_told = bool(notices)
    refused = {"state": "done", "error": "refused: the sender's queue was full", "ended_at": wall_ms()}
    place = next_place(connection, message.conversation)
    kept = {**row, **refused, **place._asdict(), "is_refused": True, "is_told": is_told}
    if not insert_new(connection, "inbox", kept):
        return None
    insert_replies(connection, row["turn_id"], notices)
    return Refused(is_told=is_told)


def _oldest_of_full_queue(connection: Connection, message: InboundMessage, room: Room) -> int | None:
    """The oldest message that waits of a sender whose queue is full; None where there is room."""
    whose = (message.conversation.channel, storable(message.sender.user))
    waiting, oldest = connection.execute(_OPEN_OF_SENDER, (*whose, room.messages)).fetchone()
    return oldest if waiting >= room.messages else None


def _is_told_of_limit(connection: Connection, message: InboundMessage, oldest: int) -> bool:
    channel, *place = key_of(message.conversation)
    values = (channel, storable(message.sender.user), oldest, *place)
    return bool(connection.execute(_IS_TOLD_OF_LIMIT, values).fetchone()[0])
