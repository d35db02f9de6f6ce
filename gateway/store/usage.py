"""What model calls cost, and what is reserved for running ones; see `gateway.agent.budgets.UsageStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.agent.budgets import (
    Bill,
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
from gateway.store.engine import Connection, Engine
from gateway.store.persons import PERSON
from gateway.store.rows import columns_of, insert_numbered, value_of
from gateway.store.workers import IS_ALIVE

ADD_TO_DAY = """
    ON CONFLICT (day, user_id, personality_id, model) DO UPDATE SET
        turns = usage_days.turns + excluded.turns, calls = usage_days.calls + excluded.calls,
        input_tokens = usage_days.input_tokens + excluded.input_tokens,
        output_tokens = usage_days.output_tokens + excluded.output_tokens,
        cached_tokens = usage_days.cached_tokens + excluded.cached_tokens,
        written_tokens = usage_days.written_tokens + excluded.written_tokens,
        cost_usd = usage_days.cost_usd + excluded.cost_usd
"""
"""What becomes of a day's sum when more is added to it."""
ERASED = "erased"
"""The user id that replaces an erased one where a figure is kept: the sums of usage."""
_WHOSE: Mapping[Scope, str] = {
    "user": f" AND user_id IN {PERSON.format('?2')}",
    "personality": " AND personality_id = ?2",
    "gateway": "",
}
_SPENT = """
    SELECT {whom}'spent' AS kind, coalesce(sum(turns), 0) AS turns,
           coalesce(sum(input_tokens + output_tokens), 0) AS tokens, coalesce(sum(cost_usd), 0.0) AS usd
    FROM usage_days WHERE day = ?1{whose}
"""
# A turn whose earlier call is among the spent ones is no turn more.
_RESERVED = """
    SELECT {whom}'reserved' AS kind, count(DISTINCT CASE WHEN turn_id <> '' AND NOT EXISTS (
               SELECT 1 FROM usage WHERE usage.turn_id = reservations.turn_id
           ) THEN turn_id END) AS turns,
           coalesce(sum(input_tokens + output_tokens), 0) AS tokens, coalesce(sum(usd), 0.0) AS usd
    FROM reservations WHERE day = ?1{whose}
"""
# One statement, because a call that is settled between two would be in neither.
_BOTH = f"{_SPENT} UNION ALL {_RESERVED}"
_IS_KNOWN_TURN = """
    SELECT EXISTS (SELECT 1 FROM usage WHERE turn_id = ?1) OR EXISTS (SELECT 1 FROM reservations WHERE turn_id = ?1)
"""
_DEAD = """
    reservations WHERE owner <> ?
    AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = reservations.owner AND {is_alive})
"""
_ARE_DEAD = f"SELECT 1 FROM {_DEAD} LIMIT 1"  # noqa: S608 (constants)
_OF_THE_DEAD = f"DELETE FROM {_DEAD} RETURNING *"  # noqa: S608 (constants)
# Whose it was may have been erased since, also while this waited for the row of the reservation.
_USER = "coalesce((SELECT user_id FROM reservations WHERE id = :reservation), :user_id)"
# Of calls of a turn the first counts the turn, and a call counts once. Both are asked by the statement that adds up, so
# that a server is not waited for in between.
_ADD_CALL = f"""
    INSERT INTO usage_days (
        day, user_id, personality_id, model, turns, calls, input_tokens, output_tokens, cached_tokens, written_tokens,
        cost_usd
    )
    SELECT :day, {_USER}, :personality_id, :model,
           CASE WHEN :turn_id = '' OR EXISTS (SELECT 1 FROM usage WHERE turn_id = :turn_id) THEN 0 ELSE 1 END,
           1, :input_tokens, :output_tokens, :cached_tokens, :written_tokens, coalesce(:cost_usd, 0.0)
    WHERE NOT EXISTS (SELECT 1 FROM usage WHERE turn_id = :turn_id AND call_id = :call_id) {ADD_TO_DAY}
"""  # noqa: S608 (constants)
_NOTE_CALL = f"""
    INSERT INTO usage (
        call_id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cached_tokens, written_tokens,
        cost_usd, is_cut, at
    )
    VALUES (
        :call_id, :turn_id, {_USER}, :personality_id, :model, :input_tokens, :output_tokens, :cached_tokens,
        :written_tokens, :cost_usd, :is_cut, :at
    )
    ON CONFLICT DO NOTHING
"""  # noqa: S608 (a constant)
_OF_EACH = {"whom": "user_id, personality_id, ", "whose": " GROUP BY user_id, personality_id"}
_SURVIVORS = "SELECT absorbed, survivor FROM user_links WHERE undone_at IS NULL"
# Each walks one index in its own order, so nothing is sorted.
_SUMS = """
    sum(turns) AS turns, sum(calls) AS calls, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
    sum(cached_tokens) AS cached_tokens, sum(written_tokens) AS written_tokens, sum(cost_usd) AS cost_usd
    FROM usage_days
"""
_OF_DAYS = f"SELECT day, {_SUMS} WHERE day >= ? GROUP BY day"
_OF_SPENDERS = f"""
    SELECT user_id, personality_id, model, {_SUMS} {{by_spender}}
    WHERE day >= ? GROUP BY user_id, personality_id, model
"""
_SINCE = "SELECT * FROM usage_days WHERE day >= ?1{} ORDER BY day DESC, user_id, personality_id, model"


class SqlUsage:
    """Counts calls by day, and reserves what they may cost. Its commits survive a killed process, without an fsync."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def reserve(self, planned: PlannedCall, limits: Mapping[Scope, Limit], *, owner: str) -> Granted | Denied:
        spender = planned.spender

        def work(connection: Connection) -> Granted | Denied:
            totals = _totals(connection, planned, limits)
            granted = grant(
                planned,
                limits,
                spent=totals["spent"],
                reserved=totals["reserved"],
                is_new_turn=bool(spender.turn_id) and not _is_known_turn(connection, spender.turn_id),
            )
            if isinstance(granted, Denied):
                return granted
            row = columns_of(planned, without=("output_usd_per_token",)) | {
                "owner": owner,
                "output_tokens": granted,
                "usd": planned.input_usd + granted * planned.output_usd_per_token,
            }
            return Granted(reservation=insert_numbered(connection, "reservations", row), output_tokens=granted)

        return await self._engine.write(work, is_durable=False)

    async def settle(self, bill: Bill) -> None:
        """It shares the commit of what is written next."""

        def work(connection: Connection) -> None:
            is_erased = bill.is_of_message and not _has_message(connection, bill)
            whose = replace(bill.spender, user_id=ERASED) if is_erased else bill.spender
            add_bill(connection, replace(bill, spender=whose))

        # Of two calls of a turn one counts the turn; whatever else is added up is a row that is locked by its upsert.
        alone = (f"usage of {bill.spender.turn_id}",)
        await self._engine.write(work, is_durable=False, is_urgent=False, alone=alone)

    async def forgive(self, owner: str) -> int:
        def work(connection: Connection) -> int:
            rows = connection.execute(_OF_THE_DEAD.format(is_alive=IS_ALIVE), (owner,)).fetchall()
            for row in rows:
                call = ModelUsage(
                    model=row["model"], input_tokens=row["input_tokens"], output_tokens=0, cost_usd=row["input_usd"]
                )
                add_bill(connection, Bill(None, value_of(Spender, row), row["day"], (call,)))
            return len(rows)

        # Mostly there are none, and a question shares its round trip with others.
        of_the_dead = _ARE_DEAD.format(is_alive=IS_ALIVE)
        is_any = await self._engine.ask(lambda connection: connection.execute(of_the_dead, (owner,)).fetchone)
        return 0 if is_any is None else await self._engine.write(work)

    async def spending(self, day: str) -> Sequence[DaySpending]:
        def work(connection: Connection) -> list[DaySpending]:
            survivors = dict(iter(connection.execute(_SURVIVORS)))
            return [
                DaySpending(
                    user_id=person_of(row["user_id"], survivors),
                    personality_id=row["personality_id"],
                    **{row["kind"]: value_of(Totals, row)},
                )
                for row in connection.execute(_BOTH.format(**_OF_EACH), (day,))
            ]

        return await self._engine.read(work)

    async def by_day(self, *, since: str) -> Mapping[str, UsageSum]:
        rows = await self._engine.rows(_OF_DAYS, (since,))
        return {row["day"]: value_of(UsageSum, row) for row in rows}

    async def summed(self, *, since: str) -> UsageSums:
        def work(connection: Connection) -> UsageSums:
            sql = _OF_SPENDERS.format(by_spender=connection.dialect.by_spender)
            spenders = [(row, value_of(UsageSum, row)) for row in connection.execute(sql, (since,))]
            return UsageSums(
                by_user=added_up((row["user_id"], used) for row, used in spenders),
                by_personality=added_up((row["personality_id"], used) for row, used in spenders),
                by_model=added_up((row["model"], used) for row, used in spenders),
            )

        return await self._engine.read(work)

    async def spent(self, *, since: str, user_id: str | None = None) -> Sequence[DayUsage]:
        whose, values = ("", (since,)) if user_id is None else (_WHOSE["user"], (since, user_id))
        rows = await self._engine.rows(_SINCE.format(whose), values)
        return [value_of(DayUsage, row) for row in rows]


def add_bill(connection: Connection, bill: Bill | None) -> None:
    """Add what calls did cost to the sums, and end their reservation; a bill that was added before changes nothing."""
    if bill is None:
        return
    if bill.reservation is not None:
        locking = f"SELECT 1 FROM reservations WHERE id = ? {connection.dialect.locked}"  # noqa: S608 (a word of the dialect)
        connection.execute(locking, (bill.reservation,))
    whose = columns_of(bill.spender) | {"reservation": bill.reservation, "day": bill.day, "at": wall_ms()}
    for number, call in enumerate(bill.calls):
        noted = whose | columns_of(call) | {"call_id": f"{bill.id}-{number}"}
        connection.execute(_ADD_CALL, noted)
        connection.execute(_NOTE_CALL, noted)
    if bill.reservation is not None:
        connection.execute("DELETE FROM reservations WHERE id = ?", (bill.reservation,))


def _has_message(connection: Connection, bill: Bill) -> bool:
    """Whether the message of a turn is there; until this transaction ends its commit and its erasure wait for it."""
    sql = f"SELECT 1 FROM inbox WHERE turn_id = ? {connection.dialect.shared}"  # noqa: S608 (a word of the dialect)
    return connection.execute(sql, (bill.spender.turn_id,)).fetchone() is not None


def _totals(
    connection: Connection, planned: PlannedCall, limits: Mapping[Scope, Limit]
) -> Mapping[str, dict[Scope, Totals]]:
    """What is `spent` and what is `reserved`, for each scope that is limited."""
    whose = {"user": planned.spender.user_id, "personality": planned.spender.personality_id, "gateway": None}
    totals: dict[str, dict[Scope, Totals]] = {"spent": {}, "reserved": {}}
    for scope in limits:
        values = (planned.day,) if scope == "gateway" else (planned.day, whose[scope])
        for row in connection.execute(_BOTH.format(whom="", whose=_WHOSE[scope]), values):
            totals[row["kind"]][scope] = value_of(Totals, row)
    return totals


def _is_known_turn(connection: Connection, turn_id: str) -> bool:
    return bool(connection.execute(_IS_KNOWN_TURN, (turn_id,)).fetchone()[0])
