"""What every store of usage must do: count what was spent, and give no room twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

import pytest

from gateway.agent.budgets import Bill, Denied, Granted, Limit, PlannedCall, Scope, Totals, UsageStore, UsageSum
from gateway.agent.model import ModelUsage, Spender
from gateway.cluster.worker import Worker
from gateway.errors import ClaimLost
from gateway.people.linking.links import LinkStore
from gateway.store.workers import SqlWorkers
from tests.conformance.links import link
from tests.conformance.stores import House, claimed, ended, said

DAY = "2026-11-21"
ADA = Spender(user_id="u_ada", personality_id="assistant", turn_id="t_1")
BEN = Spender(user_id="u_ben", personality_id="assistant", turn_id="t_2")


class _Stores(Protocol):
    usage: UsageStore


def usage_of(house: House) -> UsageStore:
    store: _Stores = house.store  # type: ignore[assignment]
    return store.usage


def ask(spender: Spender = ADA, *, day: str = DAY, output_tokens: int = 100, usd_per_token: float = 0.0) -> PlannedCall:
    """A call that reads 10 tokens."""
    return PlannedCall(
        spender=spender,
        day=day,
        model="m",
        input_tokens=10,
        output_tokens=output_tokens,
        input_usd=10 * usd_per_token,
        output_usd_per_token=usd_per_token,
    )


def cost(output_tokens: int, usd: float | None = None) -> ModelUsage:
    return ModelUsage(model="m", input_tokens=10, output_tokens=output_tokens, cost_usd=usd)


def per_user(**limit: float) -> dict[Scope, Limit]:
    return {"user": Limit(**limit)}  # type: ignore[arg-type]


async def people(store: UsageStore) -> dict[tuple[str, str], tuple[Totals, Totals]]:
    """What each person spent of each personality, and has reserved."""
    found: dict[tuple[str, str], tuple[Totals, Totals]] = {}
    for one in await store.spending(DAY):
        spent, reserved = found.get((one.user_id, one.personality_id), (Totals(), Totals()))
        both = [
            Totals(turns=a.turns + b.turns, tokens=a.tokens + b.tokens, usd=a.usd + b.usd)
            for a, b in ((spent, one.spent), (reserved, one.reserved))
        ]
        found[one.user_id, one.personality_id] = (both[0], both[1])
    return found


async def granted(store: UsageStore, one: PlannedCall, limits: dict[Scope, Limit], owner: str = "me") -> Granted:
    answer = await store.reserve(one, limits, owner=owner)
    assert isinstance(answer, Granted), answer
    return answer


async def spend(
    stores: list[UsageStore], limits: dict[Scope, Limit], *, usd_per_token: float, times: int = 40
) -> tuple[int, int, float]:
    """Many turns at once, each as greedy as it may be; turns, tokens and dollars that were spent in all."""

    async def turn(number: int) -> None:
        store = stores[number % len(stores)]
        one = ask(replace(ADA, turn_id=f"t_{number}"), usd_per_token=usd_per_token)
        for _ in range(2):
            answer = await store.reserve(one, limits, owner=f"process {number % len(stores)}")
            if isinstance(answer, Granted):
                await asyncio.sleep(0)
                said = answer.output_tokens
                call = cost(said, (10 + said) * usd_per_token)
                await store.settle(Bill(answer.reservation, one.spender, DAY, [call]))

    await asyncio.gather(*(turn(number) for number in range(times)))
    rows = await stores[0].spent(since=DAY)
    turns, tokens = sum(row.turns for row in rows), sum(row.input_tokens + row.output_tokens for row in rows)
    return turns, tokens, sum(row.cost_usd for row in rows)


class UsageSuite:
    async def test_turns_at_once_do_not_spend_more_than_there_is(self, house: House) -> None:
        """Row 27."""
        turns, _, _ = await spend([usage_of(house)], per_user(turns=7), usd_per_token=0.0)
        assert turns == 7

    async def test_tokens_and_dollars_at_once_are_not_overspent(self, house: House) -> None:
        """Row 27."""
        limits: dict[Scope, Limit] = {"gateway": Limit(tokens=1_500), "personality": Limit(usd=0.9)}
        _, tokens, usd = await spend([usage_of(house)], limits, usd_per_token=0.001)
        assert 500 < tokens <= 1_500
        assert 0.5 < usd <= 0.9 + 1e-9

    async def test_what_a_call_did_not_need_is_there_again(self, house: House) -> None:
        store, limits = usage_of(house), per_user(tokens=400)
        first = await granted(store, ask(output_tokens=300), limits)
        denied = await store.reserve(ask(output_tokens=300), limits, owner="me")
        assert denied == Denied(scope="user", what="tokens", limit=400, is_final=False)
        await store.settle(Bill(first.reservation, ADA, DAY, [cost(5)]))
        assert (await granted(store, ask(output_tokens=300), limits)).output_tokens == 300

    async def test_what_is_spent_is_final_for_the_day_and_the_next_day_begins_with_nothing(self, house: House) -> None:
        store, limits = usage_of(house), per_user(usd=0.2)
        dear = ask(usd_per_token=0.001)
        await store.settle(Bill(None, ADA, DAY, [cost(5, 0.2)]))
        denied = await store.reserve(dear, limits, owner="me")
        assert denied == Denied(scope="user", what="usd", limit=0.2, is_final=True)
        await granted(store, replace(dear, day="2026-11-22"), limits)

    async def test_a_call_is_granted_no_longer_an_answer_than_is_left(self, house: House) -> None:
        limits: dict[Scope, Limit] = {"user": Limit(tokens=3_000), "gateway": Limit(usd=1.5)}
        answer = await granted(usage_of(house), ask(output_tokens=4_000, usd_per_token=0.001), limits)
        assert answer.output_tokens == 1_490

    async def test_a_turn_is_one_turn_however_many_calls_it_makes_and_a_summary_is_none(self, house: House) -> None:
        store, limits = usage_of(house), per_user(turns=1)
        first = await granted(store, ask(), limits)
        second = await granted(store, ask(), limits)
        for one in (first, second):
            await store.settle(Bill(one.reservation, ADA, DAY, [cost(1)]))
        await granted(store, ask(), limits)
        await granted(store, ask(replace(ADA, turn_id="")), limits)
        other = await store.reserve(ask(replace(ADA, turn_id="t_other")), limits, owner="me")
        assert other == Denied(scope="user", what="turns", limit=1, is_final=True)
        assert [row.turns for row in await store.spent(since=DAY)] == [1]

    async def test_a_call_that_came_to_nothing_leaves_nothing(self, house: House) -> None:
        store, limits = usage_of(house), per_user(turns=1, tokens=110)
        for number in range(3):
            spender = replace(ADA, turn_id=f"t_{number}")
            one = await granted(store, ask(spender), limits)
            await store.settle(Bill(one.reservation, spender, DAY, []))
        assert list(await store.spent(since=DAY)) == []

    @pytest.mark.parametrize("scope", ["user", "personality", "gateway"])
    async def test_a_limit_holds_for_those_whose_it_is(self, house: House, scope: Scope) -> None:
        store = usage_of(house)
        await store.settle(Bill(None, ADA, DAY, [cost(90)]))
        limits: dict[Scope, Limit] = {scope: Limit(tokens=150)}
        engineer = replace(BEN, personality_id="engineer")
        answers = [await store.reserve(ask(spender), limits, owner="me") for spender in (ADA, engineer)]
        is_denied = [isinstance(answer, Denied) for answer in answers]
        assert is_denied == [True, scope == "gateway"]

    async def test_a_model_that_costs_nothing_answers_when_all_money_is_spent(self, house: House) -> None:
        store = usage_of(house)
        await store.settle(Bill(None, ADA, DAY, [cost(1, 5.0)]))
        assert (await granted(store, ask(), per_user(usd=1.0))).output_tokens == 100

    async def test_a_process_that_died_leaves_no_reservation_and_what_it_had_read_is_counted(
        self, house: House
    ) -> None:
        limits = per_user(tokens=200)
        await granted(usage_of(house), ask(), limits, owner="dead")
        await house.reopen()
        store = usage_of(house)
        assert isinstance(await store.reserve(ask(output_tokens=150), limits, owner="me"), Denied)
        mine = await granted(store, ask(output_tokens=20), limits)
        assert await store.forgive("me") == 1
        assert await store.forgive("me") == 0
        assert [(row.turns, row.input_tokens, row.output_tokens) for row in await store.spent(since=DAY)] == [
            (1, 10, 0)
        ]
        await store.settle(Bill(mine.reservation, ADA, DAY, [cost(1)]))
        assert (await granted(store, ask(output_tokens=150), limits)).output_tokens == 150

    async def test_what_is_settled_twice_counts_once(self, house: House) -> None:
        """It was committed, and whoever asked did not hear of it."""
        store = usage_of(house)
        one = await granted(store, ask(), per_user(tokens=200))
        for _ in range(2):
            await store.settle(Bill(one.reservation, ADA, DAY, [cost(1), cost(2)], "bill"))
        assert [(row.turns, row.calls, row.output_tokens) for row in await store.spent(since=DAY)] == [(1, 2, 3)]

    async def test_a_bill_is_settled_with_its_turn_or_not_at_all_and_once(self, house: House) -> None:
        store, turns = usage_of(house), house.store.turns
        await house.store.inbox.add(said("a"), ADA.turn_id)
        row = await claimed(house.store)
        one = await granted(store, ask(), per_user(tokens=200))
        bill = Bill(one.reservation, ADA, DAY, [cost(1)], is_of_message=True)
        with pytest.raises(ClaimLost):
            await turns.commit_turn(replace(ended(row, bill=bill), claim="of another"))
        assert await people(store) == {("u_ada", "assistant"): (Totals(), Totals(turns=1, tokens=110))}
        await turns.commit_turn(ended(row, bill=bill))
        for _ in range(2):
            assert await people(store) == {("u_ada", "assistant"): (Totals(turns=1, tokens=11), Totals())}
            await store.settle(bill)

    async def test_calls_of_a_turn_that_end_at_once_count_the_turn_once(self, house: House) -> None:
        store = usage_of(house)
        await asyncio.gather(*(store.settle(Bill(None, ADA, DAY, [cost(1)])) for _ in range(8)))
        assert [(row.turns, row.calls) for row in await store.spent(since=DAY)] == [(1, 8)]

    async def test_reservations_of_processes_that_live_are_left_alone(self, house: House) -> None:
        store = usage_of(house)
        for owner in ("me", "other", "dead"):
            await granted(store, ask(), per_user(tokens=1_000), owner=owner)
        await SqlWorkers(house.store.engine).beat(Worker(id="other", name="other"))  # type: ignore[attr-defined]
        assert await store.forgive("me") == 1
        reserved = [one.reserved.tokens for one in await store.spending(DAY)]
        assert sum(reserved) == 220

    async def test_accounts_that_are_linked_share_what_was_spent_and_what_is_reserved(self, house: House) -> None:
        """Row 22: budgets follow the person, from the decision to its end."""
        store = usage_of(house)
        links: LinkStore = house.store.links  # type: ignore[attr-defined]
        await store.settle(Bill(None, BEN, DAY, [cost(50)]))
        await granted(store, ask(BEN), {})
        await links.decide(link(ADA.user_id, BEN.user_id), request_id=None)
        await links.advance("l_1", "linked")
        assert await store.reserve(ask(), per_user(tokens=170), owner="me") == Denied(
            scope="user", what="tokens", limit=170, is_final=False
        )
        assert [row.user_id for row in await store.spent(since=DAY, user_id=ADA.user_id)] == [BEN.user_id]
        await links.undo("l_1")
        await granted(store, ask(), per_user(tokens=110))
        assert await store.spent(since=DAY, user_id=ADA.user_id) == []

    async def test_what_a_day_costs_is_told_by_person_and_personality(self, house: House) -> None:
        store = usage_of(house)
        links: LinkStore = house.store.links  # type: ignore[attr-defined]
        await store.settle(Bill(None, ADA, DAY, [cost(50, 0.25)]))
        await store.settle(Bill(None, BEN, DAY, [cost(20)]))
        await store.settle(Bill(None, ADA, "2026-11-22", [cost(1)]))
        await granted(store, ask(ADA), {})  # of a turn that was counted
        await granted(store, ask(replace(BEN, turn_id="t_9"), usd_per_token=0.5), {})
        assert await people(store) == {
            ("u_ada", "assistant"): (Totals(turns=1, tokens=60, usd=0.25), Totals(turns=0, tokens=110, usd=0.0)),
            ("u_ben", "assistant"): (Totals(turns=1, tokens=30, usd=0.0), Totals(turns=1, tokens=110, usd=55.0)),
        }
        await links.decide(link(ADA.user_id, BEN.user_id), request_id=None)
        assert await people(store) == {
            ("u_ada", "assistant"): (Totals(turns=2, tokens=90, usd=0.25), Totals(turns=1, tokens=220, usd=55.0)),
        }

    async def test_usage_is_added_up_by_day_person_personality_and_model(self, house: House) -> None:
        store = usage_of(house)
        await store.settle(Bill(None, ADA, DAY, [cost(1, 0.25), cost(1)]))
        await store.settle(Bill(None, replace(ADA, turn_id="t_3"), DAY, [cost(1, 0.5)]))
        await store.settle(Bill(None, BEN, "2026-11-22", [replace(cost(1, 1.0), model="other")]))
        await house.reopen()
        store = usage_of(house)
        rows = [
            (row.day, row.user_id, row.model, row.turns, row.calls, row.input_tokens, row.output_tokens, row.cost_usd)
            for row in await store.spent(since=DAY)
        ]
        assert rows == [
            ("2026-11-22", "u_ben", "other", 1, 1, 10, 1, 1.0),
            (DAY, "u_ada", "m", 2, 3, 30, 3, 0.75),
        ]
        assert [row.user_id for row in await store.spent(since=DAY, user_id="u_ada")] == ["u_ada"]
        assert [row.day for row in await store.spent(since="2026-11-22")] == ["2026-11-22"]
        assert list(await store.spent(since="2026-11-23")) == []
        ada = UsageSum(turns=2, calls=3, input_tokens=30, output_tokens=3, cost_usd=0.75)
        ben = UsageSum(turns=1, calls=1, input_tokens=10, output_tokens=1, cost_usd=1.0)
        sums = await store.summed(since=DAY)
        assert await store.by_day(since=DAY) == {DAY: ada, "2026-11-22": ben}
        assert await store.by_day(since="2026-11-22") == {"2026-11-22": ben}
        assert sums.by_user == {"u_ada": ada, "u_ben": ben}
        assert sums.by_personality == {"assistant": ada + ben}
        assert (await store.summed(since="2026-11-22")).by_model == {"other": ben}

    async def test_what_passed_the_cache_of_a_provider_is_counted_apart_and_a_part_of_the_input(
        self, house: House
    ) -> None:
        store = usage_of(house)
        await store.settle(Bill(None, ADA, DAY, [replace(cost(1), cached_tokens=6, written_tokens=3), cost(1)]))
        await store.settle(Bill(None, BEN, DAY, [replace(cost(1), cached_tokens=9)]))
        await house.reopen()
        store = usage_of(house)
        rows = await store.spent(since=DAY, user_id="u_ada")
        assert [(row.input_tokens, row.cached_tokens, row.written_tokens) for row in rows] == [(20, 6, 3)]
        in_all = (await store.by_day(since=DAY))[DAY]
        assert (in_all.input_tokens, in_all.cached_tokens, in_all.written_tokens) == (30, 15, 3)
        assert in_all.cached_share == 0.5
        sums = await store.summed(since=DAY)
        assert (sums.by_user["u_ada"].cached_share, sums.by_user["u_ben"].cached_share) == (0.3, 0.9)
