"""The meter: what passes is paid for, whatever becomes of it, and what is not in the budget does not pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.budgets import Bill, Budgets, DayUsage, Denied, Granted, Limit, PlannedCall, Totals, grant
from gateway.agent.meter import LOOK_AGAIN_S, OUTPUT_TOKENS, Meter, Tab, most_input_tokens
from gateway.agent.model import (
    ChatMessage,
    Model,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelUsage,
    Spender,
    StreamRestarted,
)
from gateway.errors import BudgetExhausted, ConfigError, ModelUnavailable, StoreUnavailable
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.usage import SqlUsage
from tests.scripted_model import Hang, ScriptedModel
from tests.stores import empty_database

ADA = Spender(user_id="u_ada", personality_id="assistant", turn_id="t_1")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Prices:
    """A dollar for a thousand tokens in, and two for a thousand out."""

    def usd(self, name: str | None, input_tokens: int, output_tokens: int) -> float | None:
        del name
        return input_tokens / 1_000 + output_tokens / 500

    def output_tokens(self, name: str | None) -> int | None:
        del name
        return None

    def helper(self, name: str | None) -> str | None:
        return name


Make = Callable[..., "House"]


class House:
    """A meter over a database of its own, at noon."""

    def __init__(
        self,
        database: SqliteEngine,
        model: Model,
        budgets: Budgets | None = None,
        store: Callable[[SqliteEngine], SqlUsage] = SqlUsage,
    ) -> None:
        self.now = NOON
        self.database = database
        self.store = store(database)
        self.meter = Meter(
            lambda _name: model, self.store, budgets or Budgets(), Prices(), owner="me", now=lambda: self.now
        )

    async def ask(self, text: str = "hello", spender: Spender = ADA, tab: Tab | None = None) -> str:
        reply = ""
        request = ModelRequest(system="", messages=(ChatMessage(role="user", text=text),), spender=spender)
        async for event in self.meter.model(None, tab).stream(request):
            if isinstance(event, ModelReply):
                reply = event.message.text
        return reply

    async def settled(self) -> None:
        """Let the store write down what it was given."""
        await self.database.write(lambda _connection: None)

    async def has_reservations(self) -> bool:
        await self.settled()
        return any(one.reserved != Totals() for one in await self.store.spending("2026-11-21"))

    async def spent(self) -> DayUsage | None:
        await self.settled()
        rows = await self.store.spent(since="2026-11-20")
        return rows[0] if rows else None


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes houses, each with a database of its own."""
    async with AsyncExitStack() as stack:

        def made(model: Model, budgets: Budgets | None = None, store: Any = SqlUsage) -> House:
            number = len(list(tmp_path.glob("*.sqlite")))
            database = SqliteEngine(empty_database(tmp_path / f"{number}.sqlite"))
            stack.push_async_callback(database.close)
            return House(database, model, budgets, store)

        yield made


async def test_what_a_call_did_cost_is_counted_where_nothing_is_limited(make: Make) -> None:
    house = make(ScriptedModel("one", "two"))
    for _ in range(2):
        await house.ask()
    spent = await house.spent()
    assert spent is not None
    assert (spent.turns, spent.calls, spent.input_tokens, spent.cost_usd) == (1, 2, 20, 0.02)


async def test_a_tab_holds_the_bill_of_its_last_answer_and_leaves_it_with_the_block(make: Make) -> None:
    house = make(ScriptedModel("one", "two"), Budgets(user=Limit(tokens=OUTPUT_TOKENS)))  # room for one at a time
    async with asyncio.timeout(60), Tab(house.meter) as tab:
        assert [await house.ask(tab=tab) for _ in range(2)] == ["one", "two"]
        spent = await house.spent()
        assert (spent and spent.calls, await house.has_reservations()) == (1, True)
    spent = await house.spent()
    assert (spent and spent.calls, await house.has_reservations()) == (2, False)


async def test_a_call_without_room_is_not_made_and_says_when_there_is_room_again(make: Make) -> None:
    model = ScriptedModel("one")
    house = make(model, Budgets(user=Limit(turns=1), zone=ZoneInfo("Asia/Tokyo")))  # where it is nine in the evening
    await house.ask()
    with pytest.raises(BudgetExhausted, match="the user u_ada may spend 1 turns a day") as caught:
        await house.ask(spender=Spender(user_id="u_ada", personality_id="assistant", turn_id="t_2"))
    assert len(model.requests) == 1
    assert (caught.value.budget, caught.value.day_turns_in_s) == ("user", 3 * 3600)
    assert caught.value.retry_after_s == LOOK_AGAIN_S
    house.now += timedelta(hours=3)
    house.meter.change(Budgets(user=Limit(turns=1), zone=ZoneInfo("Asia/Tokyo")))
    with pytest.raises(AssertionError, match="was asked 2 times"):  # the model is asked again
        await house.ask(spender=Spender(user_id="u_ada", personality_id="assistant", turn_id="t_2"))


async def test_an_answer_is_no_longer_than_what_was_reserved_for_it(make: Make) -> None:
    model = ScriptedModel("one", "two", "three")
    await make(model).ask()
    await make(model, Budgets(gateway=Limit(tokens=10_000))).ask()
    await make(model, Budgets(gateway=Limit(tokens=2_000))).ask()
    limits = [request.max_output_tokens for request in model.requests]
    assert limits == [None, OUTPUT_TOKENS, 2_000 - most_input_tokens(model.requests[2])]


async def test_a_call_that_is_cut_is_counted_with_what_it_had_read_and_said(make: Make) -> None:
    hang = Hang()
    house = make(ScriptedModel(["word " * 40, hang]), Budgets(user=Limit(tokens=100_000)))
    task = asyncio.create_task(house.ask())
    await asyncio.wait_for(hang.started.wait(), 60)
    task.cancel()
    await asyncio.wait([task])
    spent = await house.spent()
    assert spent is not None
    assert spent.input_tokens > 0
    assert spent.output_tokens >= 40
    assert spent.cost_usd == pytest.approx(spent.input_tokens / 1_000 + spent.output_tokens / 500)
    assert not await house.has_reservations()


async def test_whoever_stops_listening_pays_for_what_was_read(make: Make) -> None:
    house = make(ScriptedModel(["one", "two"]), Budgets(user=Limit(tokens=100_000)))
    request = ModelRequest(system="", messages=(ChatMessage(role="user", text="hello"),), spender=ADA)
    stream = house.meter.model(None).stream(request)
    async with aclosing(stream) as events:  # type: ignore[type-var]
        async for _ in events:
            break
    spent = await house.spent()
    assert spent is not None
    assert spent.calls == 1
    assert not await house.has_reservations()


async def test_an_attempt_that_broke_midway_is_paid_for_and_the_next_one_needs_room_of_its_own(make: Make) -> None:
    house = make(ScriptedModel(["half", StreamRestarted(), "whole"]), Budgets(user=Limit(tokens=100_000)))
    assert await house.ask() == "whole"
    spent = await house.spent()
    assert spent is not None
    assert (spent.turns, spent.calls) == (1, 2)
    poor = make(ScriptedModel(["half " * 4_000, StreamRestarted(), "whole"]), Budgets(user=Limit(tokens=5_000)))
    with pytest.raises(BudgetExhausted):
        await poor.ask()
    assert not await poor.has_reservations()


async def test_a_call_that_failed_before_a_word_costs_nothing(make: Make) -> None:
    house = make(ScriptedModel([ModelUnavailable("down")]), Budgets(user=Limit(turns=1)))
    with pytest.raises(ModelUnavailable, match="down"):
        await house.ask()
    assert await house.spent() is None
    assert not await house.has_reservations()


async def test_a_call_waits_for_one_that_holds_what_it_needs_and_is_made_when_that_gives_it_back(make: Make) -> None:
    class Telling(SqlUsage):
        async def reserve(self, *args: Any, **keywords: Any) -> Granted | Denied:
            answer = await super().reserve(*args, **keywords)
            if isinstance(answer, Denied):
                denied.set()
            return answer

    hang, denied = Hang(), asyncio.Event()
    model = ScriptedModel([hang, "first"], "second")
    house = make(model, Budgets(user=Limit(tokens=OUTPUT_TOKENS)), Telling)
    first = asyncio.create_task(house.ask())
    await asyncio.wait_for(hang.started.wait(), 60)
    second = asyncio.create_task(house.ask())
    await asyncio.wait_for(denied.wait(), 20)
    assert len(model.requests) == 1
    hang.released.set()
    assert await asyncio.wait_for(first, 60) == "first"
    assert await asyncio.wait_for(second, 60) == "second"


async def test_what_could_not_be_written_down_on_a_full_disk_is_written_before_the_next_call(make: Make) -> None:
    class Full(SqlUsage):
        is_full = True

        async def settle(self, bill: Bill) -> None:
            if self.is_full:
                raise StoreUnavailable("full")
            await super().settle(bill)

    house = make(ScriptedModel("one", "two"), store=Full)
    assert await house.ask() == "one"
    house.store.is_full = False
    assert await house.ask() == "two"
    spent = await house.spent()
    assert spent is not None
    assert spent.calls == 2


async def test_a_model_whose_settings_are_wrong_is_unavailable_and_not_a_fault(make: Make) -> None:
    def broken(_name: str | None) -> Model:
        raise ConfigError(["model cloud: api_key is missing"])

    house = make(ScriptedModel())
    model = Meter(broken, house.store, Budgets(), Prices(), owner="me").model("cloud")
    assert model.name == "cloud"
    with pytest.raises(ModelUnavailable, match="api_key is missing"):
        async for _ in model.stream(ModelRequest(system="", messages=())):
            pass


async def test_a_price_that_the_model_does_not_say_is_taken_from_the_list(make: Make) -> None:
    class Silent:
        name = "silent"

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            del request
            usage = ModelUsage(model="silent", input_tokens=1_000, output_tokens=1_000)
            yield ModelReply(message=ChatMessage(role="assistant", text="x"), usage=usage)

    house = make(Silent())
    await house.ask()
    spent = await house.spent()
    assert spent is not None
    assert spent.cost_usd == 3.0


@pytest.mark.parametrize(
    ("now", "left_h"),
    [
        (datetime(2026, 3, 29, 0, 30, tzinfo=ZoneInfo("Europe/Berlin")), 22.5),  # the day has 23 hours
        (datetime(2026, 10, 25, 0, 30, tzinfo=ZoneInfo("Europe/Berlin")), 24.5),  # and this one 25
        (datetime(2026, 11, 20, 23, 59, 59, tzinfo=ZoneInfo("Europe/Berlin")), 1 / 3600),
    ],
)
def test_a_day_lasts_until_midnight_in_its_zone(now: datetime, left_h: float) -> None:
    budgets = Budgets(zone=ZoneInfo("Europe/Berlin"))
    assert budgets.left_s(now.astimezone(UTC)) == pytest.approx(left_h * 3600)
    assert budgets.day(now.astimezone(UTC)) == now.date().isoformat()


def test_a_named_personality_has_its_own_limit_and_nobody_has_none() -> None:
    own, other = Limit(usd=1.0), Limit(usd=2.0)
    budgets = Budgets(personality=other, personalities={"assistant": own}, user=Limit(turns=1))
    assert budgets.limits_of(ADA) == {"user": Limit(turns=1), "personality": own}
    assert budgets.limits_of(Spender(personality_id="engineer")) == {"personality": other}
    assert budgets.limits_of(Spender()) == {}


@given(
    call=st.tuples(st.integers(0, 5_000), st.integers(1, 5_000)),
    price=st.floats(0, 0.01),
    before=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
    limit=st.tuples(st.integers(0, 20_000), st.floats(0, 50)),
)
def test_what_is_granted_always_fits(
    call: tuple[int, int], price: float, before: tuple[int, int], limit: tuple[int, float]
) -> None:
    (read, wanted), (spent, reserved), (tokens, usd) = call, before, limit
    ask = PlannedCall(
        spender=ADA,
        day="d",
        model="m",
        input_tokens=read,
        output_tokens=wanted,
        input_usd=read * price,
        output_usd_per_token=price,
    )
    answer = grant(
        ask,
        {"user": Limit(tokens=tokens, usd=usd)},
        spent={"user": Totals(tokens=spent, usd=spent * price)},
        reserved={"user": Totals(tokens=reserved, usd=reserved * price)},
        is_new_turn=True,
    )
    if isinstance(answer, Denied):
        assert answer.scope == "user"
    else:
        assert 0 < answer <= wanted
        assert spent + reserved + read + answer <= tokens
        assert (spent + reserved + read + answer) * price <= usd + 1e-6


async def test_a_turn_that_is_cancelled_while_it_reserves_leaves_no_reservation(make: Make) -> None:
    class Slow(SqlUsage):
        async def reserve(self, *args: Any, **keywords: Any) -> Granted | Denied:
            answer = await super().reserve(*args, **keywords)
            reserved.set()
            await released.wait()
            return answer

    reserved, released = asyncio.Event(), asyncio.Event()
    house = make(ScriptedModel(), Budgets(user=Limit(turns=1)), Slow)
    task = asyncio.create_task(house.ask())
    await asyncio.wait_for(reserved.wait(), 60)
    task.cancel()
    await asyncio.sleep(0)
    released.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not await house.has_reservations()


async def test_of_two_calls_that_ask_at_the_same_moment_the_second_waits_for_the_first(make: Make) -> None:
    """Nobody is told that the day's budget is used up because somebody else was asking for it just then."""

    class Together(SqlUsage):
        """As a commit that two callers share: both are answered at its end."""

        answered = 0

        async def reserve(self, *args: Any, **keywords: Any) -> Granted | Denied:
            answer = await super().reserve(*args, **keywords)
            self.answered += 1
            if self.answered == 2:
                shared.set()
            await shared.wait()
            return answer

    shared = asyncio.Event()
    hang = Hang()
    house = make(ScriptedModel([hang, "first"], "second"), Budgets(user=Limit(tokens=OUTPUT_TOKENS)), Together)
    calls = [asyncio.create_task(house.ask()) for _ in range(2)]
    await asyncio.wait_for(hang.started.wait(), 60)
    hang.released.set()
    assert await asyncio.wait_for(asyncio.gather(*calls), 60) == ["first", "second"]


async def test_calls_that_all_find_no_room_do_not_wait_for_one_another(make: Make) -> None:
    """What somebody else holds, of whom we know nothing, is given back we do not know when."""

    class Held(SqlUsage):
        async def reserve(self, *args: Any, **keywords: Any) -> Granted | Denied:
            del args, keywords
            await asyncio.sleep(0)
            return Denied(scope="user", what="tokens", limit=1, is_final=False)

    house = make(ScriptedModel(), Budgets(user=Limit(tokens=OUTPUT_TOKENS)), Held)
    calls = [asyncio.create_task(house.ask()) for _ in range(5)]
    done, _ = await asyncio.wait(calls, timeout=60)
    assert [type(call.exception()) for call in done] == [BudgetExhausted] * 5


async def test_a_call_that_is_denied_while_the_budget_is_raised_is_made(make: Make) -> None:
    class Late(SqlUsage):
        async def reserve(self, *args: Any, **keywords: Any) -> Granted | Denied:
            answer = await super().reserve(*args, **keywords)
            if isinstance(answer, Denied):
                house.meter.change(Budgets(user=Limit(turns=2)))
            return answer

    house = make(ScriptedModel("one", "two"), Budgets(user=Limit(turns=1)), Late)
    await house.ask()
    assert await house.ask(spender=Spender(user_id="u_ada", personality_id="assistant", turn_id="t_2")) == "two"


async def test_a_bill_that_is_being_written_late_is_written_once_though_the_turn_is_cancelled(make: Make) -> None:
    class Slow(SqlUsage):
        """The second time it works, slowly, and what was begun cannot be taken back, as in a writer thread."""

        tries = 0

        async def settle(self, bill: Bill) -> None:
            self.tries += 1
            if self.tries == 1:
                raise StoreUnavailable("full")
            await super().settle(bill)
            begun.set()
            await released.wait()

    begun, released = asyncio.Event(), asyncio.Event()
    house = make(ScriptedModel("one", "two"), store=Slow)
    await house.ask()
    task = asyncio.create_task(house.ask())
    await asyncio.wait_for(begun.wait(), 60)
    task.cancel()
    await asyncio.wait([task])
    released.set()
    assert await house.ask() == "two"
    spent = await house.spent()
    assert spent is not None
    assert spent.calls == 2


async def test_a_model_whose_price_nobody_knows_is_not_called_while_a_budget_of_dollars_holds(make: Make) -> None:
    class NoPrices(Prices):
        def usd(self, name: str | None, input_tokens: int, output_tokens: int) -> float | None:
            del name, input_tokens, output_tokens
            return None

    model = ScriptedModel("one")
    house = make(model, Budgets(user=Limit(usd=1.0)))
    house.meter._prices = NoPrices()
    with pytest.raises(ModelUnavailable, match="the price of the model scripted is unknown"):
        await house.ask()
    assert not model.requests
    house.meter.change(Budgets(user=Limit(turns=1)))
    assert await house.ask() == "one"
