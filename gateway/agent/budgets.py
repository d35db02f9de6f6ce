"""Budgets: what may be spent in a day, by one person, by one personality, and in all.

Before a model is called, the most that the call can cost is reserved in the store; afterwards the reservation gives way
to what it did cost. So no number of turns at once, in any number of processes, spends more than there is.
`/usage` shows people what they spent.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, Protocol, get_args

from gateway.agent.model import ModelUsage, Spender

Scope = Literal["user", "personality", "gateway"]
What = Literal["turns", "tokens", "usd"]
# A call that may say less than this is not made: it would be cut, or end before a model that thinks has said a word.
LEAST_OUTPUT_TOKENS = 1_000
_NOTHING_USD = 1e-9
_GATEWAY = "the gateway"  # whose budget is that of all


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What may be spent in one day; None where there is no limit. Tokens are those of input and output together."""

    turns: int | None = None
    tokens: int | None = None
    usd: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether it limits anything."""
        return self != Limit()

    @property
    def limits_calls(self) -> bool:
        """Whether it limits what one call may cost."""
        return self.tokens is not None or self.usd is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """All limits that are configured.

    Attributes:
        zone: whose midnight begins a day.
        user: for each person.
        personality: for each personality that `personalities` does not name.
        gateway: for everything together.
    """

    zone: tzinfo = UTC
    user: Limit = field(default_factory=Limit)
    personality: Limit = field(default_factory=Limit)
    personalities: Mapping[str, Limit] = field(default_factory=dict)
    gateway: Limit = field(default_factory=Limit)

    def limits_of(self, spender: Spender) -> Mapping[Scope, Limit]:
        """The limits that hold for somebody, without those that limit nothing."""
        limits: dict[Scope, Limit] = {"gateway": self.gateway}
        if spender.user_id:
            limits["user"] = self.user
        if spender.personality_id:
            limits["personality"] = self.personalities.get(spender.personality_id, self.personality)
        return {scope: limit for scope, limit in limits.items() if limit.is_set}

    def day(self, now: datetime) -> str:
        """The day, as `2026-11-21`."""
        return now.astimezone(self.zone).date().isoformat()

    def day_began(self, now: datetime) -> datetime:
        """The midnight with which the day began, UTC."""
        day = now.astimezone(self.zone).date()
        return datetime(day.year, day.month, day.day, tzinfo=self.zone).astimezone(UTC)

    def left_s(self, now: datetime) -> float:
        """Seconds until the day turns; a day of a summer time's beginning or end is shorter or longer."""
        here = now.astimezone(self.zone)
        tomorrow = here.date() + timedelta(days=1)
        turns_at = datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=self.zone)
        return max(0.0, turns_at.timestamp() - now.timestamp())


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What was spent, or is reserved."""

    turns: int = 0
    tokens: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpending:
    """What a person spent of a personality in one day, or has reserved; of both there may be several, to be added up.

    Attributes:
        user_id: of the person, whichever of their users it was; empty where the person is not known.
        personality_id: empty where none is.
    """

    user_id: str
    personality_id: str
    spent: Totals = field(default_factory=Totals)
    reserved: Totals = field(default_factory=Totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """How far a budget is used, of one kind and one unit.

    Where it is many people's or personalities', these are the numbers of the one with the least left.
    """

    scope: Scope
    what: What
    used: float
    reserved: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call that is about to be made.

    Attributes:
        day: as `Budgets.day` has it.
        model: for the record, in case the cost is never reported.
        output_tokens: as many as it would like to say.
        input_usd: what reading costs at most.
        output_usd_per_token: what saying one token costs at most.
    """

    spender: Spender
    day: str
    model: str
    input_tokens: int
    output_tokens: int
    input_usd: float = 0.0
    output_usd_per_token: float = 0.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What calls did cost, none where nothing came of it; with it their reservation, where there is one, is over.

    Attributes:
        id: unique; what is settled under it a second time was not known to be settled, and counts once.
        is_of_message: the turn answers a message of the inbox. Where that is gone, its writer was erased meanwhile.
    """

    reservation: int | None
    spender: Spender
    day: str
    calls: Sequence[ModelUsage]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    is_of_message: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The call may be made, and say so much at most; `reservation` is to be settled."""

    reservation: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The call may not be made.

    Attributes:
        is_final: what is spent already leaves no room in this day; else what is reserved may still come back.
    """

    scope: Scope
    what: What
    limit: float
    is_final: bool

    def in_words(self, spender: Spender) -> str:
        """Why, for the operator."""
        whose = {
            "user": f"the user {spender.user_id}",
            "personality": f"the personality {spender.personality_id}",
            "gateway": "the gateway",
        }[self.scope]
        limit = f"{self.limit:g} USD" if self.what == "usd" else f"{int(self.limit)} {self.what}"
        return (
            f"{whose} may spend {limit} a day, and there is no room for this call; see `budgets` in the configuration"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DayUsage:
    """What one person used of one personality and one model in one day; fields as those of `UsageSum`."""

    day: str
    user_id: str
    personality_id: str
    model: str
    turns: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    cached_tokens: int = 0
    written_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """What one day, person, personality or model used.

    Attributes:
        cost_usd: of the calls with a price.
        cached_tokens: of the input, what providers read from their caches.
        written_tokens: of the input, what they wrote to them.
    """

    turns: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    cached_tokens: int = 0
    written_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Read and said."""
        return self.input_tokens + self.output_tokens

    @property
    def cached_share(self) -> float | None:
        """The part of the input that came from caches; None where none did, as of models without one."""
        return self.cached_tokens / self.input_tokens if self.cached_tokens else None

    def __add__(self, other: UsageSum | DayUsage) -> UsageSum:
        return UsageSum(
            turns=self.turns + other.turns,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSums:
    """What was used by all together, for each person, personality and model."""

    by_user: Mapping[str, UsageSum]
    by_personality: Mapping[str, UsageSum]
    by_model: Mapping[str, UsageSum]


def added_up(used: Iterable[tuple[str, UsageSum | DayUsage]]) -> Mapping[str, UsageSum]:
    """The sum for each name."""
    found: dict[str, UsageSum] = {}
    for name, one in used:
        found[name] = found.get(name, UsageSum()) + one
    return found


class UsageStore(Protocol):
    """What was spent, for ever, and what is reserved, until it is settled."""

    async def reserve(self, planned: PlannedCall, limits: Mapping[Scope, Limit], *, owner: str) -> Granted | Denied:
        """Reserve what the call may cost, if every limit has room for it; no two calls get the same room."""

    async def settle(self, bill: Bill) -> None:
        """Note what calls did cost. A turn that is committed may do it with that: see `TurnCommit.bill`."""

    async def forgive(self, owner: str) -> int:
        """End the reservations of all owners but this one and the workers that give signs of life; how many.

        What a call was given to read is counted, because the provider has most likely read it. An owner that was
        taken for dead, and settles after all, is counted with both.
        """

    async def spending(self, day: str) -> Sequence[DaySpending]:
        """What was spent in a day, and is reserved, by person and personality."""

    async def by_day(self, *, since: str) -> Mapping[str, UsageSum]:
        """What was used by all together on that day and on each after it."""

    async def summed(self, *, since: str) -> UsageSums:
        """What was used on that day and after it."""

    async def spent(self, *, since: str, user_id: str | None = None) -> Sequence[DayUsage]:
        """What was used on that day and after it, newest day first; by one person, or by all."""


def grant(
    planned: PlannedCall,
    limits: Mapping[Scope, Limit],
    *,
    spent: Mapping[Scope, Totals],
    reserved: Mapping[Scope, Totals],
    is_new_turn: bool,
) -> int | Denied:
    """How many tokens the call may say, or why it may not be made. The one rule, for every store.

    Args:
        spent: in the day, for each scope that is limited.
        reserved: in the day, by calls that are not settled.
        is_new_turn: the turn is neither among the spent nor among the reserved ones.
    """
    granted = planned.output_tokens
    for scope, limit in limits.items():
        before, pending = spent[scope], reserved[scope]
        if limit.turns is not None and is_new_turn and before.turns + pending.turns >= limit.turns:
            is_final = before.turns >= limit.turns
            return Denied(scope=scope, what="turns", limit=limit.turns, is_final=is_final)
        if limit.tokens is not None:
            room = limit.tokens - before.tokens - planned.input_tokens
            granted = min(granted, room - pending.tokens)
            if granted < _least(planned):
                return Denied(scope=scope, what="tokens", limit=limit.tokens, is_final=room < _least(planned))
        if limit.usd is not None:
            room_usd = limit.usd - before.usd - planned.input_usd
            granted = min(granted, _affordable(planned, room_usd - pending.usd))
            if granted < _least(planned):
                is_final = _affordable(planned, room_usd) < _least(planned)
                return Denied(scope=scope, what="usd", limit=limit.usd, is_final=is_final)
    return granted


def uses(budgets: Budgets, spending: Sequence[DaySpending]) -> list[BudgetUse]:
    """How far each kind of budget is used; those that are not set are left out."""
    found: list[BudgetUse] = []
    for scope in get_args(Scope):
        whose = [_whose(scope, one) for one in spending]
        for what in get_args(What):
            used: list[BudgetUse] = []
            for name in dict.fromkeys([_GATEWAY, *filter(None, whose)]):
                limit = getattr(_limit(budgets, scope, name), what)
                if limit is not None:
                    same_owner = [one for one, owner in zip(spending, whose, strict=True) if owner == name]
                    spent = sum(getattr(one.spent, what) for one in same_owner)
                    reserved = sum(getattr(one.reserved, what) for one in same_owner)
                    used.append(BudgetUse(scope=scope, what=what, used=spent, reserved=reserved, limit=limit))
            if used:
                found.append(max(used, key=lambda use: (use.used + use.reserved) / use.limit if use.limit else 1.0))
    return found


def person_of(user_id: str, survivors: Mapping[str, str]) -> str:
    """The user that stands for a person; `survivors` are who absorbed whom, without circles."""
    while user_id in survivors:
        user_id = survivors[user_id]
    return user_id


def _whose(scope: Scope, spending: DaySpending) -> str:
    return {"user": spending.user_id, "personality": spending.personality_id, "gateway": _GATEWAY}[scope]


def _limit(budgets: Budgets, scope: Scope, name: str) -> Limit:
    if scope == "personality":
        return budgets.personalities.get(name, budgets.personality)
    return budgets.user if scope == "user" else budgets.gateway


def _least(planned: PlannedCall) -> int:
    return min(planned.output_tokens, LEAST_OUTPUT_TOKENS)


def _affordable(planned: PlannedCall, usd: float) -> int:
    """The tokens that can be said for the money; a model that costs nothing may always say all."""
    if planned.input_usd <= 0 and planned.output_usd_per_token <= 0:
        return planned.output_tokens
    if usd < -_NOTHING_USD:
        return -1
    if planned.output_usd_per_token <= 0:
        return planned.output_tokens
    return int(min(planned.output_tokens, (usd + _NOTHING_USD) / planned.output_usd_per_token))
