"""What a store of lanes must do for many workers: who gets what, in which order, and what a `/stop` does to it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.cluster.worker import SILENT_S, Worker
from gateway.errors import ClaimLost
from gateway.messages import Attachment, ConversationRef, Sender
from gateway.pipeline.queues import InboxRow, Look
from gateway.store.workers import SqlWorkers
from tests.conformance.stores import HERE, NOTHING, THERE, House, answer, claimed, ended, looks, said, turn

PICTURE = Attachment(media_type="image/png", filename="a.png", size_bytes=3, ref="r")


def place(name: str) -> ConversationRef:
    """A conversation of its own."""
    return ConversationRef(channel="web", conversation=name)


async def write(house: House, name: str, where: ConversationRef = HERE, user: str = "1", **changes: Any) -> None:
    """A message of somebody; it must be a new one."""
    asks = changes.pop("asks", None)
    sender = Sender(channel=where.channel, user=user, display_name=user, is_verified=True)
    assert await house.store.inbox.add(said(name, where, sender=sender, **changes), f"t_{name}", asks=asks) is not None


async def take(
    house: House,
    worker: str = "one",
    *,
    limit: int = 1,
    most: int = 100,
    elsewhere: Collection[str] = (),
    has_files: bool = False,
) -> Sequence[InboxRow]:
    """What a worker claims, for a minute."""
    of_one = {"": most, "local": most}
    got = await house.store.lanes.claim(
        worker, lease_s=60, limit=limit, turns_of_one=of_one, elsewhere=elsewhere, has_files=has_files
    )
    return got.rows


async def answered(house: House, row: InboxRow, **effects: Any) -> bool:
    """End a turn; whether its conversation has more."""
    return await house.store.turns.commit_turn(ended(row, **effects))


def names(rows: Sequence[InboxRow]) -> list[str]:
    """The messages."""
    return [row.message.id for row in rows]


class LaneSuite:
    async def test_two_workers_never_get_the_same_conversation(self, house: House) -> None:
        for number in range(20):
            await write(house, f"m{number}", place(f"c{number}"), f"u{number}")
        taken = await asyncio.gather(*(take(house, f"worker {number % 2}", limit=4) for number in range(10)))
        found = [name for rows in taken for name in names(rows)]
        assert sorted(found) == sorted(f"m{number}" for number in range(20))

    async def test_what_is_claimed_shows_it_with_a_claim_of_its_own(self, house: House) -> None:
        await write(house, "a")
        [first] = await take(house)
        await house.store.lanes.release(first, after_s=0, error=None, is_counted=False)
        [second] = await take(house)
        assert first.claim != second.claim
        with pytest.raises(ClaimLost):
            await answered(house, first)
        assert not await answered(house, second)

    async def test_only_what_is_still_held_is_renewed(self, house: House) -> None:
        await write(house, "a")
        await write(house, "b", THERE)
        [lost, kept] = await take(house, limit=2)
        house.wait(61)
        [taken] = await take(house, "two")
        assert taken.message.id == lost.message.id
        assert [held.claim for held in await house.store.lanes.renew("two", 60)] == [taken.claim]
        assert kept.claim not in [held.claim for held in await house.store.lanes.renew("one", 60)], "it was let go"

    async def test_to_ask_what_is_held_puts_nothing_off(self, house: House) -> None:
        await write(house, "a")
        [taken] = await take(house)
        house.wait(40)
        assert [held.claim for held in await house.store.lanes.held("one")] == [taken.claim]
        assert await house.store.lanes.held("two") == []
        house.wait(21)
        assert len(await take(house, "two")) == 1

    async def test_a_message_that_comes_beside_the_commit_is_answered_next(self, house: House) -> None:
        await write(house, "a")
        [row] = await take(house)
        await write(house, "b")
        assert await take(house, "two") == []
        assert await answered(house, row)
        assert names(await take(house, "two")) == ["b"]

    async def test_an_event_that_comes_again_wakes_nobody_and_changes_no_wait(self, house: House) -> None:
        await turn(house.store)
        await looks(house, NOTHING)
        await write(house, "a")
        [row] = await take(house)
        await house.store.lanes.release(row, after_s=30, error=None, is_counted=False)
        assert await house.store.inbox.add(said("a"), "t_again") is None
        await looks(house, Look(is_due=False, next_s=30.0))
        house.wait(30)
        [row] = await take(house)
        await answered(house, row)
        assert await house.store.inbox.add(said("a"), "t_again") is None
        await looks(house, NOTHING)

    async def test_a_lane_that_turns_out_empty_is_released(self, house: House) -> None:
        await write(house, "a")
        assert await house.store.deliveries.drop("inbox", "t_a") == HERE  # type: ignore[attr-defined]
        assert await take(house) == []
        await looks(house, NOTHING)

    @pytest.mark.parametrize("conversations", [1, 7, 50])
    async def test_a_flood_of_one_person_delays_others_by_one_turn_at_most(
        self, house: House, conversations: int
    ) -> None:
        for number in range(50):
            await write(house, f"f{number}", place(f"flood {number % conversations}"), "flood")
        for number in range(10):
            await write(house, f"o{number}", place(f"o{number}"), f"o{number}")
            for own in range(1, 3):
                [row] = await take(house)
                await answered(house, row)
                if row.message.id == f"o{number}":
                    break
                assert own == 1, "a second message of the flood went before"

    async def test_two_floods_take_turns(self, house: House) -> None:
        for number in range(20):
            await write(house, f"a{number}", place(f"a{number}"), "a")
        for number in range(20):
            await write(house, f"b{number}", place("b"), "b")
        order = ""
        for _ in range(20):
            [row] = await take(house)
            order += row.message.id[0]
            await answered(house, row)
        assert 8 <= order.count("a") <= 12, order

    async def test_people_whose_turn_is_the_same_are_answered_in_the_order_in_which_they_wrote(
        self, house: House
    ) -> None:
        """Whichever of their conversations is the oldest."""
        for name in ("c", "a", "b"):
            await write(house, f"first {name}", place(name), name)
            [row] = await take(house)
            await answered(house, row)
        for name in ("a", "b", "c"):
            house.wait(1)
            await write(house, name, place(name), name)
        assert [name for _ in range(3) for name in names(await take(house))] == ["a", "b", "c"]

    async def test_what_runs_of_one_sender_is_counted_over_all_workers(self, house: House) -> None:
        for number in range(5):
            await write(house, f"a{number}", place(f"a{number}"), "a")
        await write(house, "b", place("b"), "b")
        first = await take(house, "one", limit=1, most=2)
        assert sorted(names(await take(house, "two", limit=9, most=2))) == ["a1", "b"]
        assert await take(house, "three", limit=9, most=2) == []
        await answered(house, first[0])
        assert names(await take(house, "three", limit=9, most=2)) == ["a2"]

    async def test_files_are_fetched_by_who_holds_the_channel(self, house: House) -> None:
        await write(house, "a", attachments=(PICTURE,))
        await write(house, "b", THERE)
        await write(house, "c", THERE, attachments=(PICTURE,))
        [row] = await take(house, limit=9, elsewhere=["web"])
        assert row.message.id == "b"
        assert await answered(house, row)
        assert await take(house, limit=9, elsewhere=["mail", "web"]) == []
        assert sorted(names(await take(house, limit=9, elsewhere=["mail"]))) == ["a", "c"]

    async def test_who_only_holds_the_channel_gets_what_has_files_and_nothing_else(self, house: House) -> None:
        await write(house, "a", attachments=(PICTURE,))
        await write(house, "b", THERE)
        assert await take(house, limit=9, elsewhere=["web"], has_files=True) == []
        assert names(await take(house, limit=9, elsewhere=["mail"], has_files=True)) == ["a"]
        assert names(await take(house, limit=9)) == ["b"]

    async def test_at_a_start_nothing_is_taken_from_a_worker_that_lives(self, house: House) -> None:
        workers = SqlWorkers(house.store.engine)
        await workers.beat(Worker(id="lives", name="one"))
        await write(house, "a")
        await write(house, "b", THERE)
        await take(house, "lives")
        await take(house, "died")
        assert await house.store.lanes.recover("new") == 1
        assert names(await take(house, "new", limit=9)) == ["b"]
        house.wait(SILENT_S + 1)
        assert await house.store.lanes.recover("newer") == 2

    async def test_a_death_is_counted_once_for_all_that_a_worker_was_answering(self, house: House) -> None:
        await write(house, "a")
        [first] = await take(house)
        house.wait(30)
        await write(house, "b", THERE)
        await take(house)
        house.wait(31)
        [taken] = await take(house, "two")
        assert (taken.lane, taken.deaths, taken.lone_deaths) == (first.lane, 1, 0)
        house.wait(30)
        await house.store.lanes.renew("two", 60)
        [other] = await take(house, "three")
        assert (other.message.id, other.deaths, other.lone_deaths) == ("b", 1, 0)

    async def test_a_stop_ends_the_turn_that_runs_and_is_known_to_have_had_its_effect(self, house: House) -> None:
        await write(house, "a")
        [row] = await take(house)
        await write(house, "stop", asks="stop")
        [held] = await house.store.lanes.renew("one", 60)
        assert held.stop_seq is not None
        assert held.stop_seq > row.seq
        await answered(house, row, is_stopped=True)
        stop = await claimed(house.store)
        assert (stop.message.id, stop.had_effect, stop.is_stopped) == ("stop", True, False)

    async def test_a_stop_that_came_too_late_ends_the_next_turn(self, house: House) -> None:
        await write(house, "a")
        [row] = await take(house)
        await write(house, "b")
        await write(house, "stop", asks="stop")
        await answered(house, row)
        next_row = await claimed(house.store)
        assert (next_row.message.id, next_row.is_stopped) == ("b", True)
        await answered(house, next_row, is_stopped=True)
        assert (await claimed(house.store)).had_effect

    async def test_a_stop_does_not_stop_another_one(self, house: House) -> None:
        await write(house, "first", asks="stop")
        await write(house, "second", asks="stop")
        for name in ("first", "second"):
            row = await claimed(house.store)
            assert (row.message.id, row.is_stopped, row.had_effect) == (name, False, False)
            await answered(house, row)

    async def test_a_stop_with_nothing_before_it_has_no_effect(self, house: House) -> None:
        await write(house, "stop", asks="stop")
        await write(house, "b")
        stop = await claimed(house.store)
        assert not stop.had_effect
        await answered(house, stop)
        assert not (await claimed(house.store)).is_stopped

    @pytest.mark.parametrize("asks", ["stop", "retry"])
    async def test_what_waits_for_its_time_does_not_wait_when_it_is_stopped_or_retried(
        self, house: House, asks: str
    ) -> None:
        await write(house, "a")
        [row] = await take(house)
        await house.store.turns.commit_turn(ended(row, end="parked", again_after_s=3600.0, replies=(answer("r"),)))
        await write(house, asks, asks=asks)
        [again] = await take(house)
        assert (again.message.id, again.is_stopped) == ("a", asks == "stop")
        await answered(house, again, is_stopped=again.is_stopped)
        assert (await claimed(house.store)).had_effect

    async def test_what_is_parked_while_it_is_stopped_does_not_wait(self, house: House) -> None:
        await write(house, "a")
        [row] = await take(house)
        await write(house, "stop", asks="stop")
        await house.store.turns.commit_turn(ended(row, end="parked", again_after_s=3600.0))
        [again] = await take(house)
        assert again.is_stopped

    async def test_a_thread_is_a_lane_of_its_own_with_numbers_of_its_own(self, house: House) -> None:
        thread = replace(HERE, thread="t")
        assert await house.store.inbox.add(said("a"), "t_a") == 1
        assert await house.store.inbox.add(said("b"), "t_b") == 2
        assert await house.store.inbox.add(said("c", thread), "t_c") == 1
        assert sorted(names(await take(house, limit=9))) == ["a", "c"]
