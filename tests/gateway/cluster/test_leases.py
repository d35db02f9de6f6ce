"""A worker holds a lease for as long as it renews it, and always stops before another begins."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.cluster.jobs import LeasedJobs, OwnJobs
from gateway.cluster.leases import Leases, steady_s
from gateway.errors import StoreUnavailable
from gateway.store.leases import SqlLeases
from tests.stores import opened_database

LEASE_S = 0.9
PATIENCE_S = 10.0


class Cut(SqlLeases):
    """Can be cut off from its database."""

    is_cut = False

    async def take(self, name: str, *, worker: str, lease_s: float) -> int | None:
        self._look()
        return await super().take(name, worker=worker, lease_s=lease_s)

    async def renew(self, epochs: Mapping[str, int], *, worker: str, lease_s: float) -> Any:
        self._look()
        return await super().renew(epochs, worker=worker, lease_s=lease_s)

    async def give_back(self, name: str, epoch: int, *, worker: str) -> None:
        self._look()
        await super().give_back(name, epoch, worker=worker)

    async def standing(self) -> Any:
        self._look()
        return await super().standing()

    def _look(self) -> None:
        if self.is_cut:
            raise StoreUnavailable("cut")


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[tuple[Cut, Cut]]:
    async with opened_database(tmp_path / "ethos.db") as database:
        yield Cut(database), Cut(database)


@contextlib.asynccontextmanager
async def running(store: SqlLeases, worker: str, **changes: Any) -> AsyncIterator[Leases]:
    leases = Leases(store, worker, lease_s=LEASE_S, **changes)
    task = asyncio.create_task(leases.run())
    try:
        yield leases
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_lease_is_renewed_for_as_long_as_its_holder_runs(stores) -> None:
    async with asyncio.timeout(PATIENCE_S), running(stores[0], "a") as one, running(stores[1], "b") as two:
        held = await one.wait_for("channel:x")
        assert await two.take("channel:x") is None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * LEASE_S):
                await asyncio.wait(
                    [asyncio.ensure_future(held.lost()), asyncio.ensure_future(two.wait_for("channel:x"))],
                    return_when=asyncio.FIRST_COMPLETED,
                )
        assert held.is_good


async def test_who_is_cut_off_stops_before_the_next_can_begin(stores) -> None:
    async with asyncio.timeout(PATIENCE_S), running(stores[0], "a") as one, running(stores[1], "b") as two:
        held = await one.wait_for("channel:x")
        stores[0].is_cut = True
        waiting = asyncio.create_task(two.wait_for("channel:x"))
        await held.lost()
        lost_s = steady_s()
        assert not held.is_good
        assert not waiting.done()
        next_ = await waiting
        assert steady_s() - lost_s < LEASE_S
        assert (held.epoch, next_.epoch) == (1, 2)
        stores[0].is_cut = False
        again = asyncio.create_task(one.wait_for("channel:x"))
        await two.give_back("channel:x", next_.epoch)
        assert (await again).epoch == 3


async def test_a_holder_that_slept_knows_it_before_anything_runs_again(stores) -> None:
    """Its clock goes on while it is paused, and no timer has run yet when it wakes up."""
    clock_s = 0.0
    leases = Leases(stores[0], "a", lease_s=LEASE_S, clock=lambda: steady_s() + clock_s)
    held = await leases.take("channel:x")
    assert held
    assert held.is_good
    clock_s = 60.0
    assert not held.is_good


async def test_an_answer_that_comes_late_is_no_lease(stores) -> None:
    clock_s = 0.0

    class Slow(SqlLeases):
        async def take(self, name: str, *, worker: str, lease_s: float) -> int | None:
            nonlocal clock_s
            epoch = await super().take(name, worker=worker, lease_s=lease_s)
            clock_s += lease_s
            return epoch

    leases = Leases(Slow(stores[0]._engine), "a", lease_s=LEASE_S, clock=lambda: steady_s() + clock_s)
    assert await leases.take("channel:x") is None


async def test_what_is_given_back_is_the_next_ones_at_once_where_news_tell(stores) -> None:
    hearing = running(stores[1], "b", hears_news=lambda: True)
    async with asyncio.timeout(PATIENCE_S), running(stores[0], "a") as one, hearing as two:
        held = await one.wait_for("channel:x")
        waiting = asyncio.create_task(two.wait_for("channel:x"))
        await asyncio.sleep(0)
        await one.give_back("channel:x", held.epoch)
        began_s = steady_s()
        two.look()
        assert (await waiting).epoch == 2
        assert steady_s() - began_s < LEASE_S / 2
        await held.lost()


async def test_a_lease_is_of_one_part_of_a_worker(stores) -> None:
    leases = Leases(stores[0], "a", lease_s=LEASE_S)
    assert await leases.take("session:s") is not None
    assert await leases.take("session:s") is None


async def test_one_that_is_not_waited_for_any_more_is_free(stores) -> None:
    async with asyncio.timeout(PATIENCE_S), running(stores[0], "a") as one, running(stores[1], "b") as two:
        held = await one.wait_for("channel:x")
        waiting = asyncio.create_task(two.wait_for("channel:x"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await one.give_back("channel:x", held.epoch)
        assert not two.held
        assert (await one.wait_for("channel:x")).epoch == 2


async def test_channels_spread_over_workers_that_wait_for_them(stores) -> None:
    """One that holds many waits a little longer before it takes another."""
    names = [f"channel:{number}" for number in range(6)]
    async with asyncio.timeout(PATIENCE_S), running(stores[0], "a") as one, running(stores[1], "b") as two:
        tasks = {name: [asyncio.create_task(each.wait_for(name)) for each in (one, two)] for name in names}
        for pair in tasks.values():
            await asyncio.wait(pair, return_when=asyncio.FIRST_COMPLETED)
        assert sorted([*one.held, *two.held]) == names
        assert min(len(one.held), len(two.held)) >= 2
        for task in (task for pair in tasks.values() for task in pair):
            task.cancel()


async def test_everything_is_given_back_at_the_end(stores) -> None:
    one = Leases(stores[0], "a", lease_s=60)
    for name in ("channel:x", "job:night"):
        await one.take(name)
    await one.close()
    two = Leases(stores[1], "b", lease_s=60)
    assert await two.take("channel:x")
    assert await two.take("job:night")


# ---- jobs ------------------------------------------------------------------------------------------------------------


async def test_a_job_is_done_by_one_worker_and_by_the_next_when_that_is_cut_off(stores) -> None:
    begun: asyncio.Queue[str] = asyncio.Queue()
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def work(name: str) -> None:
        begun.put_nowait(name)
        try:
            await asyncio.Event().wait()
        finally:
            ended.put_nowait(name)

    async with asyncio.timeout(PATIENCE_S), running(stores[0], "a") as one, running(stores[1], "b") as two:
        first = asyncio.create_task(LeasedJobs(one).keep("night", lambda: work("a")))
        assert await begun.get() == "a"
        second = asyncio.create_task(LeasedJobs(two).keep("night", lambda: work("b")))
        stores[0].is_cut = True
        assert await ended.get() == "a"
        assert begun.empty(), "it ends before the next begins"
        assert await begun.get() == "b"
        stores[0].is_cut = False
        second.cancel()
        assert await ended.get() == "b"
        assert await begun.get() == "a", "the first one waits again"
        first.cancel()
        await asyncio.wait([first, second])
        assert first.cancelled()


async def test_a_job_that_ends_gives_its_lease_back_and_one_that_fails_says_so(stores) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("done")

    async def fail() -> None:
        raise ZeroDivisionError

    async with asyncio.timeout(PATIENCE_S), running(stores[0], "a") as one, running(stores[1], "b") as two:
        await LeasedJobs(one).keep("night", work)
        await LeasedJobs(two).keep("night", work)
        await OwnJobs().keep("night", work)
        assert done == ["done"] * 3
        with pytest.raises(ZeroDivisionError):
            await LeasedJobs(one).keep("night", fail)
        assert not one.held


async def test_a_job_for_the_moment_is_left_out_while_another_worker_does_it(stores) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def work(name: str) -> None:
        begun.set()
        await go_on.wait()
        done.append(name)

    async with asyncio.timeout(PATIENCE_S), running(stores[0], "a") as one, running(stores[1], "b") as two:
        first = asyncio.create_task(LeasedJobs(one).once("night", lambda: work("a")))
        await begun.wait()
        assert not await LeasedJobs(two).once("night", lambda: work("b"))
        go_on.set()
        assert await first
        assert await LeasedJobs(two).once("night", lambda: work("b"))
        assert await OwnJobs().once("night", lambda: work("alone"))
        assert done == ["a", "b", "alone"]
        go_on.clear()
        begun.clear()
        cut = asyncio.create_task(LeasedJobs(two).once("night", lambda: work("b")))
        await begun.wait()
        stores[1].is_cut = True
        assert not await cut, "it is over before another worker can begin"
        assert len(done) == 3
