"""What model calls cost, and what is reserved for running ones; see `gateway.agent.budgets.UsageStore`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.agent.budgets import (
    DaySpending,
    DayUsage,
    Denied,
    Granted,
    Limit,
    PlannedCall,
    Scope,
    Totals,
    UsageSum,
    UsageSums,
    added_up,
    grant,
    person_of,
)
from gateway.agent.model import ModelUsage, Spender
from gateway.store.clock import wall_ms
from gateway.store.database import Database
from gateway.store.persons import PERSON

_SAVE = """
    INSERT INTO usage (turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_TO_DAY = """
    INSERT INTO usage_days VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?)
    ON CONFLICT DO UPDATE SET
        turns = turns + excluded.turns, calls = calls + 1, input_tokens = input_tokens + excluded.input_tokens,
        output_tokens = output_tokens + excluded.output_tokens, cost_usd = cost_usd + excluded.cost_usd
"""
_RESERVE = """
    INSERT INTO reservations (owner, day, user_id, personality_id, turn_id, model, input_tokens, output_tokens,
                              input_usd, usd)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
"""
_WHOSE: Mapping[Scope, str] = {
    "user": f" AND user_id IN {PERSON.format('?2')}",
    "personality": " AND personality_id = ?2",
    "gateway": "",
}
_SPENT = """
    SELECT ifnull(sum(turns), 0), ifnull(sum(input_tokens + output_tokens), 0), total(cost_usd)
    FROM usage_days WHERE day = ?1
"""
# A turn whose earlier call is among the spent ones is no turn more.
_RESERVED = """
    SELECT count(DISTINCT iif(turn_id = '' OR EXISTS (SELECT 1 FROM usage WHERE usage.turn_id = reservations.turn_id),
                              NULL, turn_id)),
           ifnull(sum(input_tokens + output_tokens), 0), total(usd)
    FROM reservations WHERE day = ?1
"""
_IS_KNOWN_TURN = """
    SELECT EXISTS (SELECT 1 FROM usage WHERE turn_id = ?1) OR EXISTS (SELECT 1 FROM reservations WHERE turn_id = ?1)
"""
_SPENDING = """
    SELECT user_id, personality_id, sum(turns), sum(input_tokens + output_tokens), total(cost_usd)
    FROM usage_days WHERE day = ? GROUP BY user_id, personality_id
"""
_RESERVING = _RESERVED.replace("SELECT", "SELECT user_id, personality_id,", 1) + " GROUP BY user_id, personality_id"
_SURVIVORS = "SELECT absorbed, survivor FROM user_links WHERE undone_at IS NULL"
# Each walks one index in its own order, so nothing is sorted.
_SUMS = "sum(turns), sum(calls), sum(input_tokens), sum(output_tokens), total(cost_usd) FROM usage_days"
_OF_DAYS = f"SELECT day, {_SUMS} WHERE day >= ? GROUP BY day"
_OF_SPENDERS = f"""
    SELECT user_id, personality_id, model, {_SUMS} INDEXED BY usage_days_by_spender
    WHERE day >= ? GROUP BY user_id, personality_id, model
"""
_SINCE = "SELECT * FROM usage_days WHERE day >= ? ORDER BY day DESC, user_id, personality_id, model"
_SINCE_OF_PERSON = f"""
    SELECT * FROM usage_days WHERE day >= ?1 AND user_id IN {PERSON.format("?2")}
    ORDER BY day DESC, user_id, personality_id, model
"""  # noqa: S608 (a constant)


class SqliteUsage:
    """Counts calls by day, and reserves what they may cost. Its commits survive a killed process, without an fsync."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, planned: PlannedCall, limits: Mapping[Scope, Limit], *, owner: str) -> Granted | Denied:
        spender = planned.spender

        def work(connection: sqlite3.Connection) -> Granted | Denied:
            granted = grant(
                planned,
                limits,
                spent=_totals(connection, _SPENT, planned, limits),
                reserved=_totals(connection, _RESERVED, planned, limits),
                is_new_turn=bool(spender.turn_id) and not _is_known_turn(connection, spender.turn_id),
            )
            if isinstance(granted, Denied):
                return granted
            usd = planned.input_usd + granted * planned.output_usd_per_token
            whose = (owner, planned.day, spender.user_id, spender.personality_id, spender.turn_id)
            row = (*whose, planned.model, planned.input_tokens, granted, planned.input_usd, usd)
            return Granted(reservation=connection.execute(_RESERVE, row).fetchone()[0], output_tokens=granted)

        return await self._database.write(work, is_durable=False)

    async def settle(self, reservation: int | None, spender: Spender, day: str, calls: Sequence[ModelUsage]) -> None:
        """Note what calls did cost, none where nothing came of it; the reservation, where there is one, is over.

        It shares the commit of what is written next, which is mostly the turn's own.
        """

        def work(connection: sqlite3.Connection) -> None:
            if reservation is not None:
                connection.execute("DELETE FROM reservations WHERE id = ?", (reservation,))
            _save(connection, spender, day, calls)

        await self._database.write(work, is_durable=False, is_urgent=False)

    async def forgive(self, owner: str) -> int:
        def work(connection: sqlite3.Connection) -> int:
            rows = connection.execute("DELETE FROM reservations WHERE owner <> ? RETURNING *", (owner,)).fetchall()
            for row in rows:
                call = ModelUsage(
                    model=row["model"], input_tokens=row["input_tokens"], output_tokens=0, cost_usd=row["input_usd"]
                )
                spender = Spender(user_id=row["user_id"], personality_id=row["personality_id"], turn_id=row["turn_id"])
                _save(connection, spender, row["day"], [call])
            return len(rows)

        return await self._database.write(work)

    async def spending(self, day: str) -> Sequence[DaySpending]:
        def work(connection: sqlite3.Connection) -> list[DaySpending]:
            survivors = dict(iter(connection.execute(_SURVIVORS)))
            return [
                DaySpending(
                    user_id=person_of(user_id, survivors),
                    personality_id=personality_id,
                    **{kind: Totals(turns=turns, tokens=tokens, usd=usd)},
                )
                for kind, sql in (("spent", _SPENDING), ("reserved", _RESERVING))
                for user_id, personality_id, turns, tokens, usd in connection.execute(sql, (day,))
            ]

        return await self._database.read(work)

    async def by_day(self, *, since: str) -> Mapping[str, UsageSum]:
        rows = await self._database.rows(_OF_DAYS, (since,))
        return {day: _sum(sums) for day, *sums in rows}

    async def summed(self, *, since: str) -> UsageSums:
        def work(connection: sqlite3.Connection) -> UsageSums:
            spenders = [
                (user, personality, model, _sum(sums))
                for user, personality, model, *sums in connection.execute(_OF_SPENDERS, (since,))
            ]
            return UsageSums(
                by_user=added_up((user, used) for user, _, _, used in spenders),
                by_personality=added_up((personality, used) for _, personality, _, used in spenders),
                by_model=added_up((model, used) for _, _, model, used in spenders),
            )

        return await self._database.read(work)

    async def spent(self, *, since: str, user_id: str | None = None) -> Sequence[DayUsage]:
        sql, values = (_SINCE, (since,)) if user_id is None else (_SINCE_OF_PERSON, (since, user_id))
        rows = await self._database.rows(sql, values)
        return [DayUsage(**dict(row)) for row in rows]


def _sum(sums: Sequence[Any]) -> UsageSum:
    turns, calls, input_tokens, output_tokens, cost_usd = sums
    return UsageSum(turns=turns, calls=calls, input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)


def _save(connection: sqlite3.Connection, spender: Spender, day: str, calls: Iterable[ModelUsage]) -> None:
    whose = (spender.turn_id, spender.user_id, spender.personality_id)
    for call in calls:
        is_counted = connection.execute("SELECT 1 FROM usage WHERE turn_id = ? LIMIT 1", (spender.turn_id,)).fetchone()
        turns = int(bool(spender.turn_id) and is_counted is None)
        tokens = (call.input_tokens, call.output_tokens)
        connection.execute(_SAVE, (*whose, call.model, *tokens, call.cost_usd, wall_ms()))
        connection.execute(_ADD_TO_DAY, (day, *whose[1:], call.model, turns, *tokens, call.cost_usd or 0.0))


def _totals(
    connection: sqlite3.Connection, sql: str, planned: PlannedCall, limits: Mapping[Scope, Limit]
) -> Mapping[Scope, Totals]:
    whose = {"user": planned.spender.user_id, "personality": planned.spender.personality_id, "gateway": None}
    totals = {}
    for scope in limits:
        values = (planned.day,) if scope == "gateway" else (planned.day, whose[scope])
        turns, tokens, usd = connection.execute(sql + _WHOSE[scope], values).fetchone()
        totals[scope] = Totals(turns=turns, tokens=tokens, usd=usd)
    return totals


def _is_known_turn(connection: sqlite3.Connection, turn_id: str) -> bool:
    return bool(connection.execute(_IS_KNOWN_TURN, (turn_id,)).fetchone()[0])
