"""The inbox: see `gateway.pipeline.queues.InboxStore`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.messages import InboundMessage
from gateway.pipeline.queues import Asks, Parked, Refused, Room
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, require
from gateway.store.erased_events import ask_whether_erased, key_of_erased, none_erased
from gateway.store.lanes import arrive, hasten, rest, stop
from gateway.store.outbox import insert_replies
from gateway.store.payloads import conversation_of, inbound_json, storable
from gateway.store.queue_rows import lane_key, next_place
from gateway.store.rows import columns_of, insert, insert_new, key_of, marks_for, value_of

_WAITING = """
    SELECT accepted_at FROM inbox WHERE channel = ? AND sender = ? AND ended_at IS NULL ORDER BY accepted_at LIMIT ?
"""
_OPEN_OF_SENDER = f"SELECT count(*), min(accepted_at) FROM ({_WAITING}) AS waiting"  # noqa: S608 (a constant)
# Since what waits now has been waiting.
_IS_TOLD_OF_LIMIT = """
    SELECT EXISTS (
        SELECT 1 FROM inbox WHERE channel = ? AND sender = ? AND is_refused AND is_told AND accepted_at >= ?
                              AND conversation = ? AND thread IS NOT DISTINCT FROM ?
    )
"""
_IS_KEPT = """
    SELECT 1 FROM lanes JOIN inbox ON inbox.lane = lanes.id AND inbox.seq = lanes.last_seq
    WHERE lanes.channel = ? AND lanes.conversation = ? AND lanes.thread = ?
"""
_PARKED = """
    SELECT channel, conversation, thread, waits_for FROM inbox
    WHERE is_told AND ended_at IS NULL ORDER BY accepted_at, lane, seq
"""


class SqlInbox:
    """One row per message for ever."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._erased_key: bytes | None = None

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

        def work(connection: Connection) -> Callable[[], int | Refused | None]:
            if connection.is_at_once:
                return _accept_at_once(connection, message, row, room, self._erased_key)
            if self._erased_key is None and connection.dialect.is_shared:
                self._erased_key = key_of_erased(connection)
            place = step_by_step(connection)
            return lambda: place

        def step_by_step(connection: Connection) -> int | Refused | None:
            is_erased = ask_whether_erased(connection, message)
            oldest = None if room is None else _oldest_of_full_queue(connection, message, room)
            if is_erased():
                return None
            if room is not None and oldest is not None:
                return _refuse(connection, message, row, room, oldest)
            return _accept(connection, message, row, asks)

        if asks is not None:  # what it does at once is decided step by step
            return await self._engine.write(step_by_step, is_of_crowd=True, alone=())
        return await self._engine.write_at_once(work, is_of_crowd=True)

    async def parked(self) -> Sequence[Parked]:
        rows = await self._engine.rows(_PARKED)
        return [value_of(Parked, row, conversation=conversation_of(row)) for row in rows]


def _accept_at_once(
    connection: Connection, message: InboundMessage, row: Mapping[str, Any], room: Room | None, erased_key: bytes | None
) -> Callable[[], int]:
    """A message that is new, of a sender whose queue has room; refused where it is anything else."""
    arrive(connection, message.conversation, row["sender"], needs_channel=row["needs_channel"])
    is_no_erased, digests = none_erased(erased_key, message)
    condition, key = is_no_erased, lane_key(message.conversation)
    values: list[object] = [*row.values(), *key, *digests]
    if room is not None:
        condition += f" AND (SELECT count(*) FROM ({_WAITING}) AS waiting) < ?"  # noqa: S608 (a constant)
        values += [message.conversation.channel, row["sender"], room.messages, room.messages]
    sql = f"""
        INSERT INTO inbox (lane, seq, {", ".join(row)}) SELECT id, last_seq, {marks_for(row)} FROM lanes
        WHERE channel = ? AND conversation = ? AND thread = ? AND {condition}
        ON CONFLICT DO NOTHING RETURNING seq
    """  # noqa: S608 (names of ours)
    asked = connection.execute(sql, values)
    require(connection, f"{_IS_KEPT} AND {is_no_erased}", (*key, *digests))  # again, as it may have waited for its row
    return lambda: int(asked.fetchone()["seq"])


def _accept(connection: Connection, message: InboundMessage, row: Mapping[str, Any], asks: Asks | None) -> int | None:
    place = arrive(connection, message.conversation, row["sender"], needs_channel=row["needs_channel"])()
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
