"""What every store of leases must do. A test module makes a subclass and gives it a fixture `house`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import ClaimLost
from gateway.store.leases import SqlLeases, hold_epoch
from tests.conformance.stores import House

NAME = "channel:chat"


class LeaseSuite:
    """The suite; `house.wait` lets time of the database pass."""

    @staticmethod
    def leases(house: House) -> SqlLeases:
        store: Any = house.store
        return SqlLeases(store.engine)

    async def test_one_worker_has_it_and_another_when_its_time_is_over(self, house: House) -> None:
        leases = self.leases(house)
        assert await leases.take(NAME, worker="a", lease_s=6) == 1
        assert await leases.take(NAME, worker="b", lease_s=6) is None
        house.wait(5.5)
        assert await leases.take(NAME, worker="b", lease_s=6) is None
        house.wait(0.6)
        assert await leases.take(NAME, worker="b", lease_s=6) == 2
        assert await leases.take(NAME, worker="a", lease_s=6) is None

    async def test_the_holder_that_asks_again_keeps_its_epoch_until_its_time_is_over(self, house: House) -> None:
        leases = self.leases(house)
        assert await leases.take(NAME, worker="a", lease_s=6) == 1
        house.wait(5)
        assert await leases.take(NAME, worker="a", lease_s=6) == 1
        house.wait(5)
        assert await leases.take(NAME, worker="b", lease_s=6) is None
        house.wait(2)
        assert await leases.take(NAME, worker="a", lease_s=6) == 2

    async def test_a_renewal_tells_what_is_still_held(self, house: House) -> None:
        leases = self.leases(house)
        for name in ("channel:one", "channel:two", "job:night"):
            await leases.take(name, worker="a", lease_s=6)
        house.wait(4)
        still = await leases.renew({"channel:one": 1, "job:night": 1}, worker="a", lease_s=6)
        assert still == {"channel:one", "job:night"}
        house.wait(3)
        assert await leases.take("channel:two", worker="b", lease_s=6) == 2
        epochs = {"channel:one": 1, "channel:two": 1, "job:night": 1, "job:none": 1}
        assert await leases.renew(epochs, worker="a", lease_s=6) == {"channel:one", "job:night"}
        house.wait(7)
        assert await leases.renew(epochs, worker="a", lease_s=6) == frozenset(), "what is over is not renewed"
        assert await leases.renew({}, worker="a", lease_s=6) == frozenset()
        assert await leases.take("channel:one", worker="a", lease_s=6) == 2
        assert await leases.renew({"channel:one": 1}, worker="a", lease_s=6) == frozenset(), "it was taken again"
        assert await leases.renew({"channel:one": 2}, worker="a", lease_s=6) == {"channel:one"}

    async def test_what_is_given_back_is_free_at_once_and_the_epoch_grows(self, house: House) -> None:
        leases = self.leases(house)
        await leases.take(NAME, worker="a", lease_s=6)
        await leases.give_back(NAME, 1, worker="a")
        assert await leases.take(NAME, worker="b", lease_s=6) == 2
        await leases.give_back(NAME, 1, worker="a")
        assert await leases.take(NAME, worker="c", lease_s=6) is None, (
            "a late word of an earlier holder changes nothing"
        )
        await leases.take("session:s", worker="a", lease_s=6)
        await leases.give_back("session:s", 1, worker="a")
        store: Any = house.store
        rows = await store.engine.rows("SELECT name FROM leases ORDER BY name")
        assert [row["name"] for row in rows] == [NAME], "nothing is left of a session's"

    async def test_a_late_word_of_a_paused_worker_leaves_the_session_to_the_one_that_answers_in_it(
        self, house: House
    ) -> None:
        leases = self.leases(house)
        paused = await leases.take("session:s", worker="a", lease_s=6)
        house.wait(7)
        following = await leases.take("session:s", worker="b", lease_s=6)
        assert paused
        assert following
        await leases.give_back("session:s", following, worker="b")
        assert await leases.take("session:s", worker="c", lease_s=6) == paused, "nothing was left"
        await leases.give_back("session:s", paused, worker="a")
        assert await leases.take("session:s", worker="d", lease_s=6) is None

    async def test_nothing_is_left_of_the_session_of_a_killed_worker(self, house: House) -> None:
        leases = self.leases(house)
        for name in ("session:s", NAME):
            await leases.take(name, worker="a", lease_s=6)
        await leases.forget_sessions()
        assert await leases.take("session:s", worker="b", lease_s=6) is None, "it still answers"
        house.wait(7)
        await leases.forget_sessions()
        store: Any = house.store
        assert [row["name"] for row in await store.engine.rows("SELECT name FROM leases")] == [NAME], "its epoch counts"

    async def test_what_an_operator_releases_cannot_be_renewed_and_is_free_when_its_time_is_over(
        self, house: House
    ) -> None:
        leases = self.leases(house)
        assert not await leases.release(NAME)
        await leases.take(NAME, worker="a", lease_s=6)
        assert await leases.release(NAME)
        assert not await leases.release(NAME)
        assert await leases.renew({NAME: 1}, worker="a", lease_s=6) == frozenset()
        assert await leases.take(NAME, worker="b", lease_s=6) is None, "its holder trusts it yet"
        await leases.give_back(NAME, 1, worker="a")
        assert await leases.take(NAME, worker="b", lease_s=6) == 2, "its holder has stopped"
        await leases.release(NAME)
        house.wait(7)
        assert await leases.take(NAME, worker="a", lease_s=6) == 3

    async def test_who_holds_which_channel_or_job_is_told_with_the_time_that_is_left(self, house: House) -> None:
        leases = self.leases(house)
        for name in (NAME, "job:night", "channel_", "session:x"):
            await leases.take(name, worker="a", lease_s=6)
        house.wait(2)
        found = await leases.standing()
        assert [(row.name, row.worker, row.epoch) for row in found] == [(NAME, "a", 1), ("job:night", "a", 1)]
        assert all(3.5 < row.for_s <= 4 for row in found)
        house.wait(7)
        assert all(row.for_s < 0 for row in await leases.standing())

    async def test_of_many_that_ask_at_once_one_has_it(self, house: House) -> None:
        leases = self.leases(house)
        for round_ in range(1, 4):
            took = await asyncio.gather(*(leases.take(NAME, worker=f"w{n}", lease_s=6) for n in range(16)))
            assert sorted(epoch for epoch in took if epoch is not None) == [round_]
            house.wait(7)

    async def test_work_under_an_epoch_is_refused_when_a_later_holder_took_it(self, house: House) -> None:
        store: Any = house.store
        leases = self.leases(house)
        await leases.take(NAME, worker="a", lease_s=6)
        await store.engine.write(lambda connection: hold_epoch(connection, NAME, 1))
        house.wait(7)
        await store.engine.write(lambda connection: hold_epoch(connection, NAME, 1))
        await leases.take(NAME, worker="b", lease_s=6)
        for epoch in (1, 3):
            with pytest.raises(ClaimLost):
                await store.engine.write(lambda connection, epoch=epoch: hold_epoch(connection, NAME, epoch))
