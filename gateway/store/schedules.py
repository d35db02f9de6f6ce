"""Schedules and what came of them: see `gateway.schedules.schedule.ScheduleStore` and `firing.ClockStore`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from gateway.messages import ConversationRef, InboundMessage, OutboundMessage
from gateway.schedules.firing import SCHEDULED, ClockStore, Coming, Due, Firing, Happening
from gateway.schedules.rule import read_rule, rule_text
from gateway.schedules.schedule import MOST_OF_PERSON, Occurrence, Schedule, ScheduleState, ScheduleStore
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row
from gateway.store.lanes import arrive, waken
from gateway.store.outbox import insert_replies
from gateway.store.payloads import conversation_of, from_ms, inbound_json, storable, to_ms
from gateway.store.queue_rows import IS_RUNNING
from gateway.store.rows import columns_of, insert, insert_new, insert_numbered, marks_for, value_of

CONFIGURED = "(substr(key, 1, 5) = 'hook/' OR substr(key, 1, 10) = 'heartbeat/')"
"""What stands in the configuration, or stood there; see `gateway.schedules.configured`."""
_OPEN = f"SELECT count(*) FROM schedules WHERE user_id IN ({{marks}}) AND state <> 'done' AND NOT {CONFIGURED}"  # noqa: S608 (a constant)
# By the message, too: an operator may have dropped it.
_IS_BUSY = """
    EXISTS (
        SELECT 1 FROM occurrences JOIN inbox ON inbox.turn_id = occurrences.turn_id
        WHERE occurrences.schedule_id = schedules.id AND outcome = 'begun' AND inbox.ended_at IS NULL
    )
"""
_DUE = f"SELECT *, {_IS_BUSY} AS is_running FROM schedules WHERE fires_at <= ? ORDER BY fires_at, id LIMIT ?"  # noqa: S608 (a constant)
_NEXT = "SELECT min(fires_at) FROM schedules WHERE fires_at > ?"
_UNTOLD = "SELECT * FROM schedules WHERE tell IS NOT NULL ORDER BY id LIMIT ?"
_PLANNED = "SELECT * FROM schedules WHERE id > ? AND next_at IS NOT NULL ORDER BY id LIMIT ?"
_AS_READ = "id = ? AND state = ? AND next_at IS NOT DISTINCT FROM ? AND by_hand_at IS NOT DISTINCT FROM ?"
_FIRE = f"""
    UPDATE schedules SET state = ?, next_at = ?, fires_at = ?, why = ?, tell = coalesce(?, tell),
                         last_at = coalesce(?, last_at), by_hand_at = NULL
    WHERE {_AS_READ}
"""  # noqa: S608 (a constant)
_PLAN = "UPDATE schedules SET next_at = ?, fires_at = coalesce(by_hand_at, ?) WHERE id = ? AND next_at = ?"
_IS_TAKEN = """
    SELECT 1 FROM occurrences WHERE schedule_id = ?1 AND due_at = ?2
    UNION ALL SELECT 1 FROM schedules WHERE id = ?1 AND next_at = ?2
"""
_HAS_RUN = """
    SELECT 1 FROM schedules WHERE id = ?1 AND by_hand_turn_id = ?2
    UNION ALL SELECT 1 FROM occurrences WHERE schedule_id = ?1 AND turn_id = ?2
"""
_RUN_NOW = f"""
    UPDATE schedules SET by_hand_at = ?1, by_hand_turn_id = ?2, fires_at = ?1
    WHERE id = ?3 AND by_hand_at IS NULL AND NOT {_IS_BUSY}
"""  # noqa: S608 (a constant)
_NEVER_MS = 2**62
_FORGIVE = """
    UPDATE schedules SET forgiven_at = (SELECT max(due_at) FROM occurrences WHERE schedule_id = schedules.id)
    WHERE id = ?
"""
_DROP_TEXTS = f"""
    UPDATE inbox SET state = 'done', ended_at = ?, error = 'its schedule was removed'
    WHERE schedule_id = ? AND ended_at IS NULL AND NOT ({IS_RUNNING}) RETURNING lane, turn_id
"""  # noqa: S608 (a constant)
_DROP_REPLIES = """
    UPDATE outbox SET state = 'dropped', ended_at = ? WHERE state = 'ready' AND ended_at IS NULL
    AND turn_id IN (SELECT turn_id FROM occurrences WHERE schedule_id = ? AND turn_id <> '')
    AND EXISTS (SELECT 1 FROM schedules WHERE id = ? AND mode = 'say')
"""
_DROP_QUESTIONS = """
    UPDATE approvals SET state = 'withdrawn', decided_at = ?
    WHERE schedule_id = ? AND state = 'waiting' AND expires_at > now_ms()
"""


class SqlSchedules(ScheduleStore, ClockStore):
    """The row of a schedule decides who takes it up, and the unique keys that nobody does so twice."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ---- what people ask --------------------------------------------------------------------------------------------

    async def add(self, schedule: Schedule, *, most: int = MOST_OF_PERSON, ids: Sequence[str] = ()) -> Schedule | None:
        whose = tuple({schedule.user_id, *ids})

        def work(connection: Connection) -> Schedule | None:
            kept = connection.execute("SELECT * FROM schedules WHERE key = ?", (schedule.key,)).fetchone()
            if kept is not None:
                return schedule_of(kept)
            if connection.execute(_OPEN.format(marks=marks_for(whose)), whose).fetchone()[0] >= most:
                return None
            number = insert_numbered(connection, "schedules", _columns(schedule))
            row = connection.execute("SELECT * FROM schedules WHERE id = ?", (number,)).fetchone()
            added = schedule_of(row)
            fires_at = _ms(added.fires_at)
            if fires_at != row["fires_at"]:  # which depends on the number
                connection.execute("UPDATE schedules SET fires_at = ? WHERE id = ?", (fires_at, number))
            return added

        return await self._engine.write(work)

    async def schedule(self, schedule_id: int) -> Schedule | None:
        row = await self._engine.row("SELECT * FROM schedules WHERE id = ?", (schedule_id,))
        return None if row is None else schedule_of(row)

    async def made_by(self, key: str) -> Schedule | None:
        row = await self._engine.row("SELECT * FROM schedules WHERE key = ?", (key,))
        return None if row is None else schedule_of(row)

    async def schedules(
        self,
        *,
        user_ids: Sequence[str] | None = None,
        is_ended: bool = False,
        state: ScheduleState | None = None,
        delivered_in: ConversationRef | None = None,
        after: int = 0,
        limit: int = 1_000,
    ) -> Sequence[Schedule]:
        conditions = ["id > ?"]
        values: list[object] = [after]
        if state is not None:
            conditions.append("state = ?")
            values.append(state)
        elif not is_ended:
            conditions.append("state <> 'done'")
        if user_ids is not None:
            conditions.append(f"user_id IN ({marks_for(user_ids)})")
            values += user_ids
        if delivered_in is not None:
            conditions.append("channel = ? AND conversation = ?")
            values += (delivered_in.channel, delivered_in.conversation)
        sql = f"SELECT * FROM schedules WHERE {' AND '.join(conditions)} ORDER BY id LIMIT ?"  # noqa: S608 (question marks)
        return [schedule_of(row) for row in await self._engine.rows(sql, (*values, limit))]

    async def replace(self, schedule: Schedule, expected: Schedule, *, planned_at: datetime | None = None) -> bool:
        columns = _columns(schedule)
        changes = ", ".join(f"{name} = ?" for name in columns)

        def work(connection: Connection) -> bool:
            sql = f"SELECT * FROM schedules WHERE id = ? {connection.dialect.locked}"  # noqa: S608 (of ours)
            row = connection.execute(sql, (schedule.id,)).fetchone()
            if row is None or schedule_of(row) != expected:
                return False
            if _does(schedule) != _does(expected):  # grants were given to what it did
                connection.execute("DELETE FROM grants WHERE schedule_id = ?", (schedule.id,))
            fires_at = columns["fires_at"] if row["by_hand_at"] is None else row["by_hand_at"]
            tell = row["tell"] if schedule.state == "failing" else None
            values = (*{**columns, "fires_at": fires_at}.values(), tell, _ms(planned_at), schedule.id)
            sql = f"UPDATE schedules SET {changes}, tell = ?, last_at = coalesce(?, last_at) WHERE id = ?"  # noqa: S608 (names of ours)
            connection.execute(sql, values)
            if schedule.failures < expected.failures:
                connection.execute(_FORGIVE, (schedule.id,))
            return True

        return await self._engine.write(work)

    async def remove(self, schedule_id: int) -> bool:
        def work(connection: Connection) -> bool:
            now_ms = wall_ms()
            dropped = connection.execute(_DROP_TEXTS, (now_ms, schedule_id)).fetchall()
            connection.executemany("DELETE FROM turn_steps WHERE turn_id = ?", [(row["turn_id"],) for row in dropped])
            waken(connection, sorted({row["lane"] for row in dropped}))
            connection.execute(_DROP_REPLIES, (now_ms, schedule_id, schedule_id))
            connection.execute(_DROP_QUESTIONS, (now_ms, schedule_id))
            connection.execute("DELETE FROM grants WHERE schedule_id = ?", (schedule_id,))
            connection.execute("DELETE FROM occurrences WHERE schedule_id = ?", (schedule_id,))
            return connection.execute("DELETE FROM schedules WHERE id = ?", (schedule_id,)).rowcount == 1

        return await self._engine.write(work)

    async def run_now(self, schedule: Schedule, at: datetime, turn_id: str) -> bool:
        def work(connection: Connection) -> bool:
            if connection.execute(_HAS_RUN, (schedule.id, turn_id)).fetchone() is not None:
                return True
            at_ms = to_ms(at)
            while connection.execute(_IS_TAKEN, (schedule.id, at_ms)).fetchone() is not None:
                at_ms += 1  # a time is run once, so one of its own
            return connection.execute(_RUN_NOW, (at_ms, turn_id, schedule.id)).rowcount == 1

        return await self._engine.write(work)

    async def history(self, schedule_id: int, *, limit: int = 50, before_ms: int | None = None) -> Sequence[Occurrence]:
        sql = "SELECT * FROM occurrences WHERE schedule_id = ? AND due_at < ? ORDER BY due_at DESC LIMIT ?"
        rows = await self._engine.rows(sql, (schedule_id, _NEVER_MS if before_ms is None else before_ms, limit))
        return [value_of(Occurrence, row) for row in rows]

    async def occurrence(self, turn_id: str) -> tuple[Schedule, Occurrence] | None:
        """What a turn does; None where its schedule is gone."""

        def work(connection: Connection) -> tuple[Schedule, Occurrence] | None:
            row = connection.execute("SELECT * FROM occurrences WHERE turn_id = ?", (turn_id,)).fetchone()
            if row is None:
                return None
            of = connection.execute("SELECT * FROM schedules WHERE id = ?", (row["schedule_id"],)).fetchone()
            return None if of is None else (schedule_of(of), value_of(Occurrence, row))

        return await self._engine.read(work)

    # ---- what the clock asks ----------------------------------------------------------------------------------------

    async def look(self, at: datetime, *, limit: int) -> Coming:
        at_ms = to_ms(at)

        def work(connection: Connection) -> Coming:
            due = connection.execute(_DUE, (at_ms, limit)).fetchall()
            (next_ms,) = connection.execute(_NEXT, (at_ms,)).fetchone()
            untold = connection.execute(_UNTOLD, (limit,)).fetchall()
            return Coming(
                due=[replace(_due(row), is_running=bool(row["is_running"])) for row in due],
                next_at=None if next_ms is None else from_ms(next_ms),
                untold=[(schedule_of(row), row["tell"]) for row in untold],
            )

        return await self._engine.read(work)

    async def fire(self, firings: Sequence[Firing], *, delivered: Collection[str] = ()) -> Sequence[Firing]:
        def work(connection: Connection) -> list[Firing]:
            return [firing for firing in firings if _fire(connection, firing, delivered)]

        return await self._engine.write(work)

    async def told(
        self, schedule: Schedule, messages: Sequence[OutboundMessage], *, delivered: Collection[str] = ()
    ) -> bool:
        def work(connection: Connection) -> bool:
            sql = "UPDATE schedules SET tell = NULL WHERE id = ? AND tell IS NOT NULL AND why = ?"
            if connection.execute(sql, (schedule.id, schedule.why)).rowcount != 1:
                return False
            for message in messages:
                turn_id, user_id = f"{SCHEDULED}{schedule.id}", schedule.user_id
                insert_replies(connection, turn_id, (message,), delivered=delivered, user_id=user_id)
            return True

        return await self._engine.write(work)

    async def planned(self, *, after: int, limit: int) -> Sequence[Due]:
        return [_due(row) for row in await self._engine.rows(_PLANNED, (after, limit))]

    async def plan(self, moved: Sequence[tuple[Schedule, Schedule]]) -> None:
        values = [(_ms(after.next_at), _ms(after.fires_at), before.id, _ms(before.next_at)) for before, after in moved]
        await self._engine.write(partial(_plan, values=values))


def _plan(connection: Connection, values: Sequence[Sequence[object]]) -> None:
    connection.executemany(_PLAN, values)


def _fire(connection: Connection, firing: Firing, delivered: Collection[str]) -> bool:
    before, after = firing.due.schedule, firing.after
    changes = (after.state, _ms(after.next_at), _ms(after.fires_at), after.why, firing.tell, _ms(firing.last_at))
    as_read = (before.id, before.state, _ms(before.next_at), _ms(firing.due.by_hand_at))
    if connection.execute(_FIRE, (*changes, *as_read)).rowcount != 1:
        return False
    for each in firing.happenings:
        _happen(connection, each, before.user_id, delivered)
    return True


def _happen(connection: Connection, happening: Happening, user_id: str, delivered: Collection[str]) -> None:
    occurrence, message, reply = happening.occurrence, happening.message, happening.reply
    if not insert_new(connection, "occurrences", columns_of(occurrence)):
        return  # this time was taken up before the clock was set back
    if message is not None:
        send_in(connection, message, occurrence)
    if reply is not None:
        insert_replies(connection, occurrence.turn_id, (reply,), delivered=delivered, user_id=user_id)


def send_in(connection: Connection, message: InboundMessage, occurrence: Occurrence) -> None:
    """The text of the schedule as a message, in the conversation to which it is delivered."""
    place = arrive(connection, message.conversation, message.sender.user, needs_channel=False)()
    row = {
        **columns_of(message.conversation),
        **place._asdict(),
        "turn_id": occurrence.turn_id,
        "event_id": message.event_id,
        "message_id": message.id,
        "payload": inbound_json(message),
        "sender": storable(message.sender.user),
        "is_direct": message.is_direct,
        "state": "ready",
        "schedule_id": occurrence.schedule_id,
        "accepted_at": wall_ms(),
    }
    insert(connection, "inbox", row)


def _does(schedule: Schedule) -> tuple[object, ...]:
    return schedule.user_id, schedule.personality_id, schedule.mode, schedule.text, schedule.is_taken_out


def _columns(schedule: Schedule) -> dict[str, object]:
    return {
        **columns_of(schedule, without=("id", "rule", "sources", "account")),
        "sender": storable(schedule.account),
        "rule": rule_text(schedule.rule),
        "sources": storable(json.dumps(schedule.sources, ensure_ascii=False)),
        "fires_at": _ms(schedule.fires_at),
    }


def schedule_of(row: Row) -> Schedule:
    """A schedule from its row."""
    rule, sources = read_rule(row["rule"]), tuple(json.loads(row["sources"]))
    conversation = conversation_of(row)
    return value_of(Schedule, row, account=row["sender"], conversation=conversation, rule=rule, sources=sources)


def _due(row: Row) -> Due:
    last_ms, by_hand_ms = row["last_at"], row["by_hand_at"]
    return Due(
        schedule=schedule_of(row),
        last_at=None if last_ms is None else from_ms(last_ms),
        by_hand_at=None if by_hand_ms is None else from_ms(by_hand_ms),
        turn_id=None if by_hand_ms is None else row["by_hand_turn_id"],
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_ms(moment)
