"""What model calls cost, without a disk: the twin of `usage.SqliteUsage`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from gateway.agent.budgets import (
    Ask,
    DaySpending,
    DayUsage,
    Denied,
    Granted,
    Limit,
    Scope,
    Totals,
    UsageSum,
    UsageSums,
    added_up,
    grant,
    person_of,
)
from gateway.agent.model import ModelUsage, Spender


@dataclass(frozen=True, slots=True)
class _Reserved:
    owner: str
    ask: Ask
    granted: int

    @property
    def usd(self) -> float:
        return self.ask.input_usd + self.granted * self.ask.output_usd_per_token


class InMemoryUsage:
    """Counts calls by day. Nothing here waits, so every method is one step."""

    def __init__(
        self,
        person_ids: Callable[[str], Collection[str]] = lambda user_id: (user_id,),
        survivors: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Nothing is counted yet.

        Args:
            person_ids: all ids of the person behind a user id.
            survivors: who was absorbed by whom.
        """
        self._person_ids = person_ids
        self._survivors = survivors
        self._days: dict[tuple[str, str, str, str], DayUsage] = {}
        self._turns: set[str] = set()
        self._reserved: dict[int, _Reserved] = {}
        self._numbers = count(1)

    async def reserve(self, ask: Ask, limits: Mapping[Scope, Limit], *, owner: str) -> Granted | Denied:
        """Reserve what the call may cost, if every limit has room for it; no two calls get the same room."""
        turn_id = ask.spender.turn_id
        pending = {held.ask.spender.turn_id for held in self._reserved.values()}
        granted = grant(
            ask,
            limits,
            spent={scope: self._spent(scope, ask) for scope in limits},
            reserved={scope: self._pending(scope, ask) for scope in limits},
            is_new_turn=bool(turn_id) and turn_id not in self._turns and turn_id not in pending,
        )
        if isinstance(granted, Denied):
            return granted
        number = next(self._numbers)
        self._reserved[number] = _Reserved(owner, ask, granted)
        return Granted(reservation=number, output_tokens=granted)

    async def settle(self, reservation: int | None, spender: Spender, day: str, calls: Sequence[ModelUsage]) -> None:
        """Note what calls did cost, none where nothing came of it; the reservation, where there is one, is over."""
        if reservation is not None:
            self._reserved.pop(reservation, None)
        self._save(spender, day, calls)

    async def forgive(self, owner: str) -> int:
        """For a start: end the reservations of other owners, who are known to be dead; how many."""
        dead = {number: held for number, held in self._reserved.items() if held.owner != owner}
        for number, held in dead.items():
            del self._reserved[number]
            ask = held.ask
            call = ModelUsage(model=ask.model, input_tokens=ask.input_tokens, output_tokens=0, cost_usd=ask.input_usd)
            self._save(ask.spender, ask.day, [call])
        return len(dead)

    async def spending(self, day: str) -> Sequence[DaySpending]:
        """What was spent in a day, and is reserved, by person and personality."""
        survivors = self._survivors()
        spent = [
            DaySpending(
                user_id=person_of(row.user_id, survivors),
                personality_id=row.personality_id,
                spent=Totals(turns=row.turns, tokens=row.input_tokens + row.output_tokens, usd=row.cost_usd),
            )
            for row in self._days.values()
            if row.day == day
        ]
        pending: dict[tuple[str, str], list[_Reserved]] = {}
        for held in self._reserved.values():
            if held.ask.day == day:
                spender = held.ask.spender
                pending.setdefault((spender.user_id, spender.personality_id), []).append(held)
        reserved = [
            DaySpending(user_id=person_of(who, survivors), personality_id=personality_id, reserved=self._sum(rows))
            for (who, personality_id), rows in pending.items()
        ]
        return [*spent, *reserved]

    async def by_day(self, *, since: str) -> Mapping[str, UsageSum]:
        """What was used by all together on that day and on each after it."""
        return added_up((row.day, row) for row in await self.spent(since=since))

    async def summed(self, *, since: str) -> UsageSums:
        """What was used on that day and after it."""
        rows = await self.spent(since=since)
        return UsageSums(
            by_user=added_up((row.user_id, row) for row in rows),
            by_personality=added_up((row.personality_id, row) for row in rows),
            by_model=added_up((row.model, row) for row in rows),
        )

    async def spent(self, *, since: str, user_id: str | None = None) -> Sequence[DayUsage]:
        """What was used on that day and after it, newest day first; by one person, or by all."""
        found = [row for row in self._days.values() if row.day >= since and self._is_by(row.user_id, user_id)]
        found.sort(key=lambda row: (row.user_id, row.personality_id, row.model))
        return sorted(found, key=lambda row: row.day, reverse=True)

    def _save(self, spender: Spender, day: str, calls: Iterable[ModelUsage]) -> None:
        for call in calls:
            key = (day, spender.user_id, spender.personality_id, call.model)
            row = self._days.get(key) or DayUsage(
                day=day,
                user_id=spender.user_id,
                personality_id=spender.personality_id,
                model=call.model,
                turns=0,
                calls=0,
                input_tokens=0,
                output_tokens=0,
                cost_usd=0.0,
            )
            is_new_turn = bool(spender.turn_id) and spender.turn_id not in self._turns
            self._turns |= {spender.turn_id} if is_new_turn else set()
            self._days[key] = replace(
                row,
                turns=row.turns + is_new_turn,
                calls=row.calls + 1,
                input_tokens=row.input_tokens + call.input_tokens,
                output_tokens=row.output_tokens + call.output_tokens,
                cost_usd=row.cost_usd + (call.cost_usd or 0.0),
            )

    def _spent(self, scope: Scope, ask: Ask) -> Totals:
        rows = [
            row
            for row in self._days.values()
            if row.day == ask.day and self._is_of(scope, ask, row.user_id, row.personality_id)
        ]
        return Totals(
            turns=sum(row.turns for row in rows),
            tokens=sum(row.input_tokens + row.output_tokens for row in rows),
            usd=sum(row.cost_usd for row in rows),
        )

    def _pending(self, scope: Scope, ask: Ask) -> Totals:
        rows = [
            held
            for held in self._reserved.values()
            if held.ask.day == ask.day
            and self._is_of(scope, ask, held.ask.spender.user_id, held.ask.spender.personality_id)
        ]
        return self._sum(rows)

    def _sum(self, rows: Sequence[_Reserved]) -> Totals:
        return Totals(
            turns=len({held.ask.spender.turn_id for held in rows} - self._turns - {""}),
            tokens=sum(held.ask.input_tokens + held.granted for held in rows),
            usd=sum(held.usd for held in rows),
        )

    def _is_of(self, scope: Scope, ask: Ask, user_id: str, personality_id: str) -> bool:
        if scope == "user":
            return self._is_by(user_id, ask.spender.user_id)
        return scope == "gateway" or personality_id == ask.spender.personality_id

    def _is_by(self, user_id: str, person: str | None) -> bool:
        return person is None or user_id in self._person_ids(person)
