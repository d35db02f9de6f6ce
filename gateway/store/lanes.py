"""The lanes: which conversations have something to answer, and who answers it; see `gateway.pipeline.queues.LaneStore`.

A lane is a row, so that its lock makes one order of all that happens in a conversation. `due_at` is the time of all
waiting: of a message that is next, of a retry, of a parked message, and of a claim whose worker is gone.

`order_at` decides who is next of those that are due, as in start-time fair queueing (P. Goyal, H. Vin and H. Cheng,
1996): a lane gets the lowest number of those that wait or run, and a second more than the highest of its sender's other
lanes. So a person with a thousand messages delays another by one of them.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from gateway.domain.sessions import LOCAL
from gateway.errors import ClaimLost
from gateway.messages import ConversationRef
from gateway.pipeline.queues import SUSPECT_DEATHS, Claimed, Held, InboxRow, Look
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.payloads import inbound, storable
from gateway.store.queue_rows import LANE, Place, correct_waits, lane_key
from gateway.store.rows import marks_for, value_of
from gateway.store.workers import IS_ALIVE

_NEXT_IN_ORDER = """
    (SELECT max(tag) FROM (
        SELECT coalesce(min(order_at), now_ms()) AS tag FROM lanes WHERE due_at IS NOT NULL AND order_at < now_ms()
        UNION ALL
        SELECT max(own.order_at) + 1000 FROM lanes AS own
        WHERE own.channel = {channel} AND own.sender = {sender} AND own.due_at IS NOT NULL
        AND (own.claim IS NOT NULL OR own.due_at - own.waiting_since < 500)
    ) AS tags)
"""  # what is put off keeps its time as its number, and counts for nobody until then
_ARRIVED = f"""
    INSERT INTO lanes (channel, conversation, thread, sender, needs_channel, last_seq, due_at, waiting_since, order_at)
    VALUES (?1, ?2, ?3, ?4, ?5, 1, now_ms(), now_ms(), {_NEXT_IN_ORDER.format(channel="?1", sender="?4")})
    ON CONFLICT (channel, conversation, thread) DO UPDATE SET last_seq = lanes.last_seq + 1,
        due_at = coalesce(lanes.due_at, excluded.due_at),
        waiting_since = CASE WHEN lanes.due_at IS NULL THEN excluded.waiting_since ELSE lanes.waiting_since END,
        order_at = CASE WHEN lanes.due_at IS NULL THEN excluded.order_at ELSE lanes.order_at END,
        sender = CASE WHEN lanes.due_at IS NULL THEN excluded.sender ELSE lanes.sender END,
        needs_channel = CASE WHEN lanes.due_at IS NULL THEN excluded.needs_channel ELSE lanes.needs_channel END
    RETURNING id, last_seq
"""  # noqa: S608 (names of ours)
_SETTLED = f"""
    UPDATE lanes SET claim = NULL, worker = NULL,
        (due_at, waiting_since, sender, needs_channel, order_at) = (
            SELECT now_ms(), now_ms(), head.sender, head.needs_channel,
                   {_NEXT_IN_ORDER.format(channel="head.channel", sender="head.sender")}
            FROM inbox AS head WHERE head.lane = lanes.id AND head.ended_at IS NULL ORDER BY head.seq LIMIT 1
        )
    WHERE id = ? RETURNING due_at
"""  # noqa: S608 (names of ours)
_IDLE = """
    UPDATE lanes SET due_at = NULL, waiting_since = NULL, order_at = NULL, sender = NULL, needs_channel = NULL
    WHERE id = ?1 AND claim IS NULL AND NOT EXISTS (SELECT 1 FROM inbox WHERE lane = ?1 AND ended_at IS NULL)
"""
_BUSY = """
    (SELECT count(*) FROM lanes AS busy WHERE busy.claim IS NOT NULL AND busy.due_at > now_ms()
     AND busy.channel = lanes.channel AND busy.sender = lanes.sender)
"""
_DUE = f"""
    SELECT id, channel, sender, claim, worker, {_BUSY} AS turns FROM lanes
    WHERE due_at <= now_ms() AND (worker IS NULL OR worker <> ?1)
    AND {_BUSY} < CASE WHEN channel = '{LOCAL}' THEN ?2 ELSE ?3 END
    {{further}} ORDER BY order_at, due_at LIMIT ?4
"""  # noqa: S608 (names of ours)
_CLAIM = "UPDATE lanes SET claim = ?, worker = ?, due_at = now_ms() + ? WHERE id = ?"
_HEADS = """
    SELECT inbox.*, lanes.claim, lanes.stop_seq,
           EXISTS (SELECT 1 FROM turn_steps WHERE turn_steps.turn_id = inbox.turn_id) AS has_steps
    FROM lanes JOIN inbox ON inbox.lane = lanes.id AND inbox.seq = (
        SELECT min(head.seq) FROM inbox AS head WHERE head.lane = lanes.id AND head.ended_at IS NULL
    ) WHERE lanes.id IN ({marks}) ORDER BY lanes.order_at, lanes.id
"""
_RENEW = """
    UPDATE lanes SET due_at = now_ms() + ? WHERE claim IS NOT NULL AND worker = ? RETURNING id, claim, stop_seq
"""
_PUT_OFF = """
    UPDATE lanes SET claim = NULL, worker = NULL, waiting_since = now_ms(),
        due_at = now_ms() + CASE WHEN stop_seq > ?2 THEN 0 ELSE ?3 END,
        order_at = CASE WHEN stop_seq > ?2 OR ?3 = 0 THEN order_at ELSE now_ms() + ?3 END
    WHERE id = ?1 AND claim = ?4
"""
_HASTEN = """
    UPDATE lanes SET due_at = now_ms(), waiting_since = now_ms(),
                     order_at = CASE WHEN order_at > now_ms() THEN now_ms() ELSE order_at END
    WHERE id = ? AND claim IS NULL AND due_at > now_ms()
"""
_STOP = """
    UPDATE lanes SET stop_seq = coalesce(stop_seq, ?2)
    WHERE id = ?1 AND EXISTS (
        SELECT 1 FROM inbox WHERE lane = ?1 AND seq < ?2 AND ended_at IS NULL AND coalesce(asks, '') <> 'stop'
    )
    RETURNING stop_seq
"""
_HELD_BY = "SELECT id, due_at > now_ms() AS has_lease FROM lanes WHERE claim IS NOT NULL AND worker = ? ORDER BY id"
_DIED = """
    UPDATE inbox SET deaths = deaths + 1, lone_deaths = lone_deaths + ? WHERE (lane, seq) IN (
        SELECT lane, min(seq) FROM inbox WHERE lane IN ({marks}) AND ended_at IS NULL GROUP BY lane
    ) RETURNING lone_deaths
"""
_FREE = """
    UPDATE lanes SET claim = NULL, worker = NULL, due_at = now_ms() + ?, waiting_since = now_ms()
    WHERE id = ? AND worker = ?
"""
# One machine's worker gives no signs of life: who holds a lane beside it is dead.
_DEAD = f"""
    SELECT DISTINCT worker FROM lanes WHERE claim IS NOT NULL AND worker <> ?
    AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = lanes.worker AND {IS_ALIVE})
"""  # noqa: S608 (a constant)
_LOOK = """
    SELECT min(due_at) - now_ms() AS first_ms,
           min(CASE WHEN due_at > now_ms() THEN due_at END) - now_ms() AS later_ms
    FROM lanes WHERE due_at IS NOT NULL AND (worker IS NULL OR worker <> ?)
"""
_BURIED = ""
"""The worker of a claim whose death was counted already."""


class SqlLanes:
    """Claims, and what they wait for. Every claim is random: a counter would be given out twice after a power cut."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def claim(
        self,
        worker: str,
        *,
        lease_s: float,
        limit: int,
        turns_of_one: Mapping[str, int],
        elsewhere: Collection[str] = (),
        after_death_s: Callable[[int], float] = lambda _deaths: 0.0,
        alone: int | None = None,
    ) -> Claimed:
        claiming = _Claiming(
            worker=worker,
            lease_ms=round(lease_s * 1000),
            limit=limit,
            most=turns_of_one,
            elsewhere=elsewhere,
            alone=alone,
        )
        while True:
            claimed = await self._engine.write(claiming.work, is_durable=False, alone=())
            if not claiming.dead:
                return claimed
            burying = partial(_bury, workers=claiming.dead, after_s=after_death_s, is_known=False)
            await self._engine.write(burying, is_durable=False, alone=())

    async def renew(self, worker: str, lease_s: float) -> Sequence[Held]:
        def work(connection: Connection) -> list[Held]:
            rows = connection.execute(_RENEW, (round(lease_s * 1000), worker)).fetchall()
            return [Held(lane=row["id"], claim=row["claim"], stop_seq=row["stop_seq"]) for row in rows]

        return await self._engine.write(work, is_durable=False, alone=())

    async def release(self, row: InboxRow, *, after_s: float, error: str | None, is_counted: bool) -> None:
        def work(connection: Connection) -> None:
            if put_off(connection, row.lane, row.seq, row.claim, after_s):
                sql = "UPDATE inbox SET error = ?, attempts = attempts + ? WHERE lane = ? AND seq = ?"
                why = None if error is None else storable(error)
                connection.execute(sql, (why, 1 if is_counted else 0, row.lane, row.seq))

        await self._engine.write(work, is_durable=False, alone=())

    async def make_due(self, conversation: ConversationRef) -> None:
        sql = _HASTEN.replace("id = ?", f"id = {LANE}")
        await self._engine.write(statement(sql, lane_key(conversation)), is_durable=False, alone=())

    async def recover(self, worker: str, after_death_s: Callable[[int], float] = lambda _deaths: 0.0) -> int:
        def work(connection: Connection) -> int:
            dead = [row["worker"] for row in connection.execute(_DEAD, (worker,)).fetchall()]
            freed = _bury(connection, dead, after_death_s, is_known=True)
            correct_waits(connection, "lanes")
            sql = "UPDATE lanes SET order_at = now_ms() WHERE due_at IS NOT NULL AND order_at > now_ms()"
            connection.execute(f"{sql} AND due_at <= now_ms()")
            return freed

        return await self._engine.write(work, alone=())

    async def look(self, worker: str) -> Look:
        row = await self._engine.row(_LOOK, (worker,))
        first_ms, later_ms = row
        return Look(
            is_due=first_ms is not None and first_ms <= 0, next_s=None if later_ms is None else max(0, later_ms) / 1000
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claiming:
    """One claim of some lanes, in one transaction."""

    worker: str
    lease_ms: int
    limit: int
    most: Mapping[str, int]
    elsewhere: Collection[str]
    alone: int | None
    dead: set[str] = field(default_factory=set)
    """Workers whose leases were found to be over: then nothing was claimed, as all that they held is freed first."""

    def work(self, connection: Connection) -> Claimed:
        """A lane that turns out empty is released. A message that may end the process is left to who is alone."""
        self.dead.clear()
        rows: list[InboxRow] = []
        suspects: list[int] = []
        while (wanted := self.limit - len(rows)) > 0:
            due = self._due(connection, wanted, suspects)
            self.dead.update(lane["worker"] for lane in due if lane["claim"] is not None)
            if self.dead:
                break
            chosen = self._chosen(due)
            found = self._take(connection, chosen)
            for row in found:
                if row.deaths >= SUSPECT_DEATHS and self.alone is None:
                    connection.execute(_FREE, (0, row.lane, self.worker))
                    suspects.append(row.lane)
                else:
                    rows.append(row)
            if len(due) < wanted or not chosen:
                break
        return Claimed(rows=rows, suspects=suspects)

    def _due(self, connection: Connection, limit: int, suspects: Sequence[int]) -> list[Row]:
        further, values = "", (self.worker, self.most[LOCAL], self.most[""], limit)
        if suspects:
            further += f"AND id NOT IN ({marks_for(suspects)}) "
        if self.alone is not None:
            further += "AND id = ? "
        if self.elsewhere:
            further += f"AND NOT (needs_channel AND channel IN ({marks_for(self.elsewhere)})) "
        more = (*suspects, *(() if self.alone is None else (self.alone,)), *self.elsewhere)
        sql = _DUE.format(further=_numbered(further, 5)) + connection.dialect.skip_locked
        return connection.execute(sql, (*values, *more)).fetchall()

    def _chosen(self, due: Sequence[Row]) -> list[int]:
        """Of one sender no more than may run at once, those of other workers counted."""
        running: Counter[tuple[str, str]] = Counter()
        chosen = []
        for lane in due:
            whose = (lane["channel"], lane["sender"])
            if lane["turns"] + running[whose] < self.most.get(lane["channel"], self.most[""]):
                running[whose] += 1
                chosen.append(lane["id"])
        return chosen

    def _take(self, connection: Connection, lanes: Sequence[int]) -> list[InboxRow]:
        if not lanes:
            return []
        claims = [(secrets.token_hex(8), self.worker, self.lease_ms, lane) for lane in lanes]
        connection.executemany(_CLAIM, claims)
        heads = connection.execute(_HEADS.format(marks=marks_for(lanes)), tuple(lanes)).fetchall()
        for lane in set(lanes).difference(head["lane"] for head in heads):
            settle(connection, lane)
        return [_claimed_row(head) for head in heads]


def arrive(connection: Connection, conversation: ConversationRef, sender: str, *, needs_channel: bool) -> Place:
    """A message comes in: its place, and its lane is due, unless it is claimed or waits for a time."""
    return Place(*connection.execute(_ARRIVED, (*lane_key(conversation), sender, needs_channel)).fetchone())


def hold(connection: Connection, lane: int, claim: str) -> Callable[[], Row]:
    """Lock a lane for what its turn commits; what gives the row with its `stop_seq`, to be asked before the commit.

    That raises ClaimLost where the claim is not this one any more.
    """
    sql = f"SELECT stop_seq FROM lanes WHERE id = ? AND claim = ? {connection.dialect.locked}"  # noqa: S608 (a word of the dialect)
    asked = connection.execute(sql, (lane, claim))

    def held() -> Row:
        row: Row | None = asked.fetchone()
        if row is None:
            raise ClaimLost("the conversation is no longer claimed by who answered here; nothing of that was committed")
        return row

    return held


def settle(connection: Connection, lane: int) -> bool:
    """Release a lane: due now where an unfinished message is left, which is returned, else idle.

    In a statement of its own, after the lane was locked: so it sees what was accepted while the lock was waited for.
    """
    row = connection.execute(_SETTLED, (lane,)).fetchone()
    return row is not None and row["due_at"] is not None


def put_off(connection: Connection, lane: int, seq: int, claim: str, after_s: float) -> bool:
    """Release a lane for some seconds, none where its message is to be stopped; False: the claim is another's."""
    return bool(connection.execute(_PUT_OFF, (lane, seq, round(after_s * 1000), claim)).rowcount)


def hasten(connection: Connection, place: Place) -> bool:
    """A `/retry` at this place: what waits in its lane for a time is due now; whether anything was."""
    return bool(connection.execute(_HASTEN, (place.lane,)).rowcount)


def stop(connection: Connection, place: Place) -> bool:
    """A `/stop` at this place: the turn that runs in its lane, or is the next, is to end; True: another has said so."""
    row = connection.execute(_STOP, tuple(place)).fetchone()
    if row is None:
        return False
    hasten(connection, place)
    return bool(row["stop_seq"] != place.seq)


def rest(connection: Connection, lane: int) -> None:
    """A lane in which nothing is open is idle, unless it is claimed."""
    connection.execute(_IDLE, (lane,))


def waken(connection: Connection, lanes: Collection[int]) -> None:
    """Rows of the inbox are open again: lanes that are not claimed are due where they have any, else idle."""
    for lane in lanes:
        if connection.execute("SELECT 1 FROM lanes WHERE id = ? AND claim IS NULL", (lane,)).fetchone() is not None:
            settle(connection, lane)


def _bury(connection: Connection, workers: Collection[str], after_s: Callable[[int], float], *, is_known: bool) -> int:
    """Free the lanes of workers that are gone; how many. A death is counted for all that they were answering.

    Which of several messages ended the process is not known: it is a lone death only where there was no other.

    Args:
        is_known: they are known to be dead. Else only leases that ran out are freed, and the others counted already.
    """
    freed = 0
    for worker in sorted(workers):
        held = connection.execute(f"{_HELD_BY} {connection.dialect.locked}", (worker,)).fetchall()
        lanes = [row["id"] for row in held]
        if not is_known and all(row["has_lease"] for row in held):
            continue  # another worker was here first, or it lives
        after_ms = 0
        if lanes and worker != _BURIED:
            is_lone = len(lanes) == 1
            died = connection.execute(_DIED.format(marks=marks_for(lanes)), (int(is_lone), *lanes)).fetchall()
            after_ms = round(after_s(died[0]["lone_deaths"]) * 1000) if is_lone and died else 0
        for row in held:
            if is_known or not row["has_lease"]:
                connection.execute(_FREE, (after_ms, row["id"], worker))
                freed += 1
            else:
                connection.execute("UPDATE lanes SET worker = ? WHERE id = ?", (_BURIED, row["id"]))
    return freed


def _claimed_row(head: Row) -> InboxRow:
    return value_of(
        InboxRow,
        head,
        message=inbound(head),
        attempts=head["attempts"] + 1,
        has_steps=bool(head["has_steps"]),
        had_effect=bool(head["had_effect"]),
        is_stopped=head["asks"] != "stop" and head["stop_seq"] is not None and head["stop_seq"] > head["seq"],
    )


def _numbered(sql: str, first: int) -> str:
    """With the numbers of its places, since a statement has numbers everywhere or nowhere."""
    parts = sql.split("?")
    return "".join(part + (f"?{first + place}" if place < len(parts) - 1 else "") for place, part in enumerate(parts))
