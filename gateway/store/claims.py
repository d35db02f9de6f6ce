"""Claims: which conversation is answered next, and by which worker; see `gateway.pipeline.queues.LaneStore`."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gateway.domain.sessions import LOCAL
from gateway.errors import StoreError
from gateway.messages import ConversationRef
from gateway.pipeline.queues import SUSPECT_DEATHS, Claimed, Held, InboxRow, Look
from gateway.store.engine import Connection, Engine, Row, at_once, require, statement
from gateway.store.lanes import HASTEN, put_off, settle
from gateway.store.payloads import inbound, storable
from gateway.store.queue_rows import LANE, correct_waits, lane_key
from gateway.store.rows import marks_for, value_of
from gateway.store.workers import IS_ALIVE

_BUSY = """
    (SELECT count(*) FROM lanes AS busy WHERE busy.claim IS NOT NULL AND busy.due_at > now_ms()
     AND busy.channel = lanes.channel AND busy.sender = lanes.sender)
"""
_MOST = f"CASE WHEN channel = '{LOCAL}' THEN ?2 ELSE ?3 END"
_HAS_COME = "due_at <= now_ms() AND order_at IS NOT NULL"
_IS_DUE = f"{_HAS_COME} AND (worker IS NULL OR worker <> ?1)"
_IN_ORDER = "order_at, waiting_since"
_DUE = f"""
    SELECT id, channel, sender, claim, worker, {_BUSY} AS turns FROM lanes
    WHERE {_IS_DUE} AND {_BUSY} < {_MOST} {{further}} ORDER BY {_IN_ORDER} LIMIT ?4
"""  # noqa: S608 (names of ours)
# Where nothing is read between the choice and the claim. Of one sender no more than may run at once.
_CLAIM_AT_ONCE = f"""
    WITH due AS MATERIALIZED (
        SELECT id, channel, sender, {_IN_ORDER}, {_BUSY} AS turns FROM lanes
        WHERE {_HAS_COME} AND claim IS NULL AND {_BUSY} < {_MOST} {{further}}
        ORDER BY {_IN_ORDER} LIMIT ?4 {{skip_locked}}
    ), chosen AS (
        SELECT id, turns + row_number() OVER (PARTITION BY channel, sender ORDER BY {_IN_ORDER}) <= {_MOST}
        AS is_let_in FROM due
    )
    UPDATE lanes SET claim = CAST(?5 AS text) || '-' || lanes.id, worker = ?1, due_at = now_ms() + ?6
    FROM chosen WHERE lanes.id = chosen.id AND is_let_in
"""  # noqa: S608 (names of ours)
# No worker with a lane to free is dead, and each lane that was claimed has a message that is no suspect.
_IS_PLAIN = f"""
    SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM lanes WHERE {_IS_DUE} AND claim IS NOT NULL {{further}})
    AND NOT EXISTS (
        SELECT 1 FROM lanes WHERE worker = ?1 AND claim > ?2 AND claim < ?3 AND coalesce((
            SELECT deaths FROM inbox WHERE lane = lanes.id AND ended_at IS NULL ORDER BY seq LIMIT 1
        ), ?4) >= ?4
    )
"""  # noqa: S608 (names of ours)
_CLAIM = "UPDATE lanes SET claim = ?, worker = ?, due_at = now_ms() + ? WHERE id = ?"
_HEADS = """
    SELECT inbox.*, lanes.claim, lanes.stop_seq, {is_more} AS is_more,
           EXISTS (SELECT 1 FROM turn_steps WHERE turn_steps.turn_id = inbox.turn_id) AS has_steps
    FROM lanes JOIN inbox ON inbox.lane = lanes.id AND inbox.seq = (
        SELECT min(head.seq) FROM inbox AS head WHERE head.lane = lanes.id AND head.ended_at IS NULL
    ) WHERE {these} ORDER BY lanes.order_at, lanes.id
"""
_IS_MORE = f"EXISTS (SELECT 1 FROM lanes WHERE {_HAS_COME} AND claim IS NULL AND {_BUSY} < {_MOST} {{further}})"  # noqa: S608 (names of ours)
_RENEW = """
    UPDATE lanes SET due_at = now_ms() + ? WHERE claim IS NOT NULL AND worker = ? RETURNING id, claim, stop_seq
"""
_HELD = "SELECT id, claim, stop_seq FROM lanes WHERE claim IS NOT NULL AND worker = ?"
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
_FREE_CLAIM = """
    UPDATE lanes SET claim = NULL, worker = NULL, due_at = now_ms(), waiting_since = now_ms() WHERE id = ? AND claim = ?
"""
# One machine's worker gives no signs of life: who holds a lane beside it is dead.
_DEAD = f"""
    SELECT DISTINCT worker FROM lanes WHERE claim IS NOT NULL AND worker <> ?
    AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = lanes.worker AND {IS_ALIVE})
"""  # noqa: S608 (a constant)
_LOOK = """
    SELECT min(due_at) - now_ms() AS first_ms,
           min(CASE WHEN due_at > now_ms() THEN due_at END) - now_ms() AS later_ms
    FROM lanes WHERE order_at IS NOT NULL AND (worker IS NULL OR worker <> ?)
"""
_NO_SUSPECT = 1 << 31
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
        has_files: bool = False,
        after_death_s: Callable[[int], float] = lambda _deaths: 0.0,
        alone: int | None = None,
    ) -> Claimed:
        claiming = _Claiming(
            worker=worker,
            lease_ms=round(lease_s * 1000),
            limit=limit,
            most=turns_of_one,
            elsewhere=elsewhere,
            has_files=has_files,
            alone=alone,
        )
        rows: list[InboxRow] = []
        while True:
            try:
                claimed = await self._engine.write_at_once(claiming.work, is_durable=False)
                if claiming.dead:
                    burying = partial(_bury, workers=claiming.dead, after_s=after_death_s, is_known=False)
                    await self._engine.write(burying, is_durable=False, alone=())
                    continue
            except StoreError:
                if not rows:
                    raise
                return Claimed(rows=rows, suspects=())  # these are held
            rows += claimed.rows
            if not claimed.rows or len(rows) >= limit or not claimed.is_more:
                return Claimed(rows=rows, suspects=claimed.suspects, is_more=claimed.is_more)
            claiming = replace(claiming, limit=limit - len(rows))

    async def renew(self, worker: str, lease_s: float) -> Sequence[Held]:
        def work(connection: Connection) -> Callable[[], list[Held]]:
            asked = connection.execute(_RENEW, (round(lease_s * 1000), worker))
            return lambda: [value_of(Held, row, lane=row["id"]) for row in asked]

        return await self._engine.write_at_once(work, is_durable=False)

    async def held(self, worker: str) -> Sequence[Held]:
        rows = await self._engine.ask(lambda connection: connection.execute(_HELD, (worker,)).fetchall)
        return [value_of(Held, row, lane=row["id"]) for row in rows]

    async def free(self, held: Held) -> None:
        await self._engine.write_at_once(at_once(_FREE_CLAIM, (held.lane, held.claim)), is_durable=False)

    async def release(self, row: InboxRow, *, after_s: float, error: str | None, is_counted: bool) -> None:
        def work(connection: Connection) -> None:
            if put_off(connection, row.lane, row.seq, row.claim, after_s):
                sql = "UPDATE inbox SET error = ?, attempts = attempts + ? WHERE lane = ? AND seq = ?"
                why = None if error is None else storable(error)
                connection.execute(sql, (why, 1 if is_counted else 0, row.lane, row.seq))

        await self._engine.write(work, is_durable=False, alone=())

    async def make_due(self, conversation: ConversationRef) -> None:
        sql = HASTEN.replace("id = ?", f"id = {LANE}")
        await self._engine.write(statement(sql, lane_key(conversation)), is_durable=False, alone=())

    async def recover(self, worker: str, after_death_s: Callable[[int], float] = lambda _deaths: 0.0) -> int:
        def work(connection: Connection) -> int:
            dead = [row["worker"] for row in connection.execute(_DEAD, (worker,)).fetchall()]
            freed = _bury(connection, dead, after_death_s, is_known=True)
            correct_waits(connection, "lanes")
            connection.execute("UPDATE lanes SET order_at = now_ms() WHERE order_at > now_ms() AND due_at <= now_ms()")
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
    has_files: bool
    alone: int | None
    dead: set[str] = field(default_factory=set)
    """Workers whose leases were found to be over: then nothing was claimed, as all that they held is freed first."""

    def work(self, connection: Connection) -> Callable[[], Claimed]:
        """Claim, and return what gives the lanes that were claimed."""
        self.dead.clear()
        if connection.is_at_once:
            return self._at_once(connection)
        claimed = self._step_by_step(connection)
        return lambda: claimed

    def _at_once(self, connection: Connection) -> Callable[[], Claimed]:
        """The plain case."""
        token = secrets.token_hex(8)
        whose, most = (self.worker, f"{token}-", f"{token}."), (self.most[LOCAL], self.most[""])
        further, more = self._further(())
        claim = _CLAIM_AT_ONCE.format(further=_numbered(further, 7), skip_locked=connection.dialect.skip_locked)
        connection.execute(claim, (self.worker, *most, self.limit, token, self.lease_ms, *more))
        suspect = SUSPECT_DEATHS if self.alone is None else _NO_SUSPECT
        require(connection, _IS_PLAIN.format(further=_numbered(further, 5)), (*whose, suspect, *more))
        is_more = _IS_MORE.format(further=_numbered(further, 6))
        these = "lanes.worker = ?1 AND lanes.claim > ?4 AND lanes.claim < ?5"
        asked = connection.execute(_HEADS.format(is_more=is_more, these=these), (self.worker, *most, *whose[1:], *more))

        def claimed() -> Claimed:
            heads = asked.fetchall()
            return Claimed(
                rows=[_claimed_row(head) for head in heads], is_more=bool(heads) and bool(heads[0]["is_more"])
            )

        return claimed

    def _step_by_step(self, connection: Connection) -> Claimed:
        """A lane that turns out empty is released. A message that may end the process is left to who is alone."""
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
        further, more = self._further(suspects)
        sql = _DUE.format(further=_numbered(further, 5)) + connection.dialect.skip_locked
        return connection.execute(sql, (self.worker, self.most[LOCAL], self.most[""], limit, *more)).fetchall()

    def _further(self, suspects: Sequence[int]) -> tuple[str, tuple[object, ...]]:
        """Conditions besides, and their values."""
        further = ""
        if suspects:
            further += f"AND id NOT IN ({marks_for(suspects)}) "
        if self.alone is not None:
            further += "AND id = ? "
        if self.has_files:
            further += "AND needs_channel "
        if self.elsewhere:
            further += f"AND NOT (needs_channel AND channel IN ({marks_for(self.elsewhere)})) "
        return further, (*suspects, *(() if self.alone is None else (self.alone,)), *self.elsewhere)

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
        heads = connection.execute(
            _HEADS.format(is_more="FALSE", these=f"lanes.id IN ({marks_for(lanes)})"), tuple(lanes)
        ).fetchall()
        for lane in set(lanes).difference(head["lane"] for head in heads):
            settle(connection, lane)
        return [_claimed_row(head) for head in heads]


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
