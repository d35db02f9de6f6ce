"""What many schedules cost: nothing while none is due, and when all are, nobody more than a turn of another's."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from benchmarks.start import resident_mb
from gateway.app.gateway import Gateway
from gateway.messages import ConversationRef
from gateway.pipeline import clock
from gateway.schedules.rule import Once
from gateway.schedules.schedule import MOST_OF_PERSON, Mode, Schedule
from gateway.store.rows import insert
from gateway.store.schedules import _columns
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_limits import Clerk

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
MANY = 10_000


async def plan_many(gateway: Gateway, amount: int, *, due: datetime, mode: Mode, people: int) -> None:
    """So many schedules of so many people, each in a conversation of its own, due at times up to a minute later."""
    users = [await gateway.identities.resolve(f"fake:{number}", f"Person {number}") for number in range(people)]
    made = [
        Schedule(
            key=f"k{number}",
            user_id=users[number % people],
            personality_id="assistant",
            conversation=ConversationRef(channel="fake", conversation=f"c{number}"),
            account=str(number % people),
            display_name=f"Person {number % people}",
            is_direct=True,
            mode=mode,
            text=f"text {number}",
            rule=Once(at=due),
            zone="UTC",
            missed="late",
            next_at=due + timedelta(milliseconds=6 * number),
            created_at=due - timedelta(hours=1),
        )
        for number in range(amount)
    ]

    def work(connection: Any) -> None:
        for schedule in made:
            insert(connection, "schedules", _columns(schedule))

    await gateway.store.engine.write(work)


async def test_a_thousand_schedules_that_are_not_due_cost_no_model_and_a_look_a_minute(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 13, for an hour, on a clock that runs ahead."""
    model = Clerk()
    async with house.gateway(model) as (gateway, channel):
        await channel.connected()
        await plan_many(gateway, 1_000, due=datetime.now(UTC) + timedelta(days=2), mode="do", people=50)
        await settled(gateway)
        looks: list[float] = []
        look = gateway.store.schedules.look
        loop = asyncio.get_running_loop()
        now, ahead_s = loop.time, 0.0

        async def counted(at: datetime, *, limit: int) -> Any:
            looks.append(loop.time())
            return await look(at, limit=limit)

        clock_looks, is_looking = gateway.clock.look, False

        async def looked() -> datetime | None:
            nonlocal is_looking
            is_looking = True
            try:
                return await clock_looks()
            finally:
                is_looking = False

        monkeypatch.setattr(gateway.store.schedules, "look", counted)
        monkeypatch.setattr(gateway.clock, "look", looked)
        monkeypatch.setattr(loop, "time", lambda: now() + ahead_s)
        for _ in range(3_600):
            ahead_s += 1.0
            for _ in range(3):
                await asyncio.sleep(0)
            while is_looking:  # no time passes meanwhile, however busy the machine is
                await asyncio.sleep(0)
        assert model.asked == []
        assert 50 <= len(looks) <= 65


async def test_however_often_the_clock_is_woken_it_looks_once_a_second(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(Clerk()) as (gateway, _):
        looks: list[float] = []
        look = gateway.store.schedules.look

        async def counted(at: datetime, *, limit: int) -> Any:
            looks.append(time.monotonic())
            return await look(at, limit=limit)

        monkeypatch.setattr(gateway.store.schedules, "look", counted)
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            gateway.clock.wake()
            await asyncio.sleep(0.01)
        assert 2 <= len(looks) <= 4
        assert all(later - earlier > 0.9 for earlier, later in itertools.pairwise(looks))


@pytest.mark.slow
async def test_ten_thousand_that_are_due_in_a_minute_are_taken_up_in_order_and_in_small_commits(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(Clerk(), limits={"running_turns": 1}, shutdown_s=0) as (gateway, _):
        monkeypatch.setattr(gateway.dispatcher, "look", lambda: None)  # the turns are another test's
        await plan_many(gateway, MANY, due=NOON, mode="do", people=MANY // MOST_OF_PERSON)
        fire, sizes = gateway.store.schedules.fire, []

        async def counted(firings: Any, **options: Any) -> Any:
            sizes.append(len(firings))
            return await fire(firings, **options)

        monkeypatch.setattr(gateway.store.schedules, "fire", counted)
        gateway.clock.now = lambda: NOON + timedelta(minutes=1)
        began_s, before_mb = time.monotonic(), resident_mb(os.getpid())
        slowest_s = 0.0

        async def watch() -> None:
            nonlocal slowest_s
            while True:
                before_s = time.thread_time()  # of this thread alone, however busy the machine is
                await asyncio.sleep(0)
                slowest_s = max(slowest_s, time.thread_time() - before_s)

        watching = asyncio.create_task(watch())
        await gateway.clock.look()
        watching.cancel()
        took_s = time.monotonic() - began_s
        assert resident_mb(os.getpid()) - before_mb < 60
        rows = await gateway.store.engine.rows("SELECT schedule_id FROM inbox ORDER BY accepted_at, lane, seq")
        assert [row["schedule_id"] for row in rows] == [*range(1, MANY + 1)]
        assert max(sizes) == clock.AT_ONCE
        assert sum(sizes) == MANY
        assert slowest_s < 0.5, "others go on meanwhile"
        assert took_s < 120
        sql = "SELECT outcome, count(*) AS amount FROM occurrences GROUP BY outcome"
        assert [(row["outcome"], row["amount"]) for row in await gateway.store.engine.rows(sql)] == [("begun", MANY)]


@pytest.mark.parametrize("people", [1, 40])
async def test_what_one_person_has_due_delays_another_by_one_turn_at_most(house: House, people: int) -> None:
    """Counted in turns, with one that runs at a time: each of those before is another person's."""
    model = Clerk()
    async with house.gateway(model, limits={"running_turns": 1}) as (gateway, channel):
        await channel.connected()
        await plan_many(gateway, 200, due=NOON, mode="do", people=people)
        gateway.clock.now = lambda: NOON + timedelta(minutes=1)
        await gateway.clock.look()
        begun = len(model.asked)
        other = await channel.say("other", conversation="o", user="other")
        assert await channel.answers_to(other) == ["here"]
        before = model.asked[begun : model.asked.index("other")]
        of_each = Counter(int(text.split()[1]) % people for text in before if text.startswith("text"))
        assert max(of_each.values(), default=0) <= 2, "one that ran, and one of its turn"
        assert sum(of_each.values()) <= people + 1


async def test_what_all_have_due_at_once_is_said_once_each(house: House) -> None:
    async with house.gateway(Clerk()) as (gateway, channel):
        await channel.connected()
        await plan_many(gateway, 300, due=NOON, mode="say", people=6)
        gateway.clock.now = lambda: NOON + timedelta(minutes=1)
        await asyncio.gather(gateway.clock.look(), gateway.clock.look())
        await settled(gateway)
        assert sorted(one.text for one in channel.sent) == sorted(f"text {number}" for number in range(300))
