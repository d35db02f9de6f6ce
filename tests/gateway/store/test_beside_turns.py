"""What happens to a person beside a turn of theirs on another worker, step by step, on one PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gateway.agent.budgets import Bill, PlannedCall
from gateway.agent.model import ModelUsage, Spender
from gateway.errors import ClaimLost, PersonChanged
from gateway.people.identity.file import Move
from gateway.pipeline.queues import InboxRow
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store import erasure
from gateway.store.accounts import SqlAccounts
from gateway.store.engine import Connection, Engine
from gateway.store.gathering import Person
from gateway.store.stores import Stores, open_postgres
from gateway.store.turns import SqlTurns
from gateway.store.usage import ERASED, SqlUsage
from tests.conformance.stores import HERE, answer, call_row, claimed, ended, said, session_of, try_claim, written

DAY = "2026-11-20"
LATER_MS = 4_000_000_000_000
TABLES = ("inbox", "outbox", "messages", "sessions", "memory_journal", "turn_steps", "tool_calls")


class Paused:
    """An engine whose work is done, and waits before its COMMIT."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_done, self.may_end = threading.Event(), threading.Event()

    async def write(self, work: Callable[[Connection], Any], **options: Any) -> Any:
        return await self._engine.write(self._paused(work), **options)

    async def write_at_once(self, work: Callable[[Connection], Any], **options: Any) -> Any:
        return await self._engine.write_at_once(self._paused(work), **options)

    def _paused(self, work: Callable[[Connection], Any]) -> Callable[[Connection], Any]:
        def paused(connection: Connection) -> Any:
            result = work(connection)
            connection.execute("SELECT 1").fetchone()  # the server has it all
            self.is_done.set()
            self.may_end.wait(60)
            return result

        return paused


@pytest.fixture
async def workers(postgres_url: str) -> AsyncIterator[tuple[Stores, Stores]]:
    one, other = open_postgres(postgres_url), open_postgres(postgres_url)
    yield one, other
    await one.close()
    await other.close()


async def a_turn(stores: Stores, name: str = "a") -> tuple[InboxRow, str, Any]:
    """A message of Ada that is claimed, who she is, and all that its turn would commit."""
    ada = await SqlAccounts(stores.engine.of("accounts")).resolve("web:1", "Ada")
    await stores.inbox.add(said(name), f"t_{name}")
    row = await claimed(stores)
    session = session_of("k", ada)
    scope = MemoryScope(personality_id="assistant", user_id=ada, session_id=session.id, turn_id=row.turn_id)
    commit = ended(
        row,
        session=session,
        messages=(written(session, row.turn_id, "hello", user_id=ada),),
        replies=(answer(f"r_{name}"),),
        memory=(scope, (MemoryUpdate.add("user", "Likes tea."),)),
        answered=("web:1", ada),
    )
    return row, ada, commit


def erasing(ada: str) -> Callable[[Connection], None]:
    person = Person(
        user_ids=frozenset([ada]),
        accounts=frozenset([("web", "1")]),
        keys=frozenset(["web:1"]),
        erased_at_ms=LATER_MS,
    )
    return partial(erasure.erase, person=person)


async def wait(stores: Stores, *tasks: asyncio.Task[Any]) -> None:
    """Until the server has them all wait for another transaction."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while len(await stores.engine.rows(waiting)) < len(tasks):
        assert not any(task.done() for task in tasks)


async def left(stores: Stores) -> dict[str, int]:
    """The rows of each table."""
    counts = {}
    for table in TABLES:
        [(count,)] = await stores.engine.rows(f"SELECT count(*) FROM {table}")  # noqa: S608 (names of ours)
        counts[table] = count
    return {table: count for table, count in counts.items() if count}


async def test_a_commit_that_holds_its_lane_is_waited_for_and_erased(workers: tuple[Stores, Stores]) -> None:
    one, other = workers
    _, ada, commit = await a_turn(one)
    paused = Paused(one.engine)
    committing = asyncio.create_task(SqlTurns(paused).commit_turn(commit))  # type: ignore[arg-type]
    await asyncio.to_thread(paused.is_done.wait, 60)
    erased = asyncio.create_task(other.engine.write_long(erasing(ada), alone=erasure.ALONE))
    await wait(other, erased)
    paused.may_end.set()
    await committing
    await erased
    assert await left(one) == {}


async def test_what_a_turn_does_after_its_person_was_erased_is_refused(workers: tuple[Stores, Stores]) -> None:
    """Its commit, its steps, its tools and a second delivery of its message, each beside the erasure or after it."""
    one, other = workers
    row, ada, commit = await a_turn(one)
    planned = PlannedCall(
        spender=Spender(user_id=ada, personality_id="assistant", turn_id=row.turn_id),
        model="m",
        day=DAY,
        input_tokens=1,
        output_tokens=1,
        input_usd=0.0,
        output_usd_per_token=0.0,
    )
    granted = await one.usage.reserve(planned, {}, owner="one")
    spent = [ModelUsage(model="m", input_tokens=1, output_tokens=1)]
    await one.turns.save_steps(row.turn_id, "steps", is_durable=False)
    paused = Paused(other.engine)
    erased = asyncio.create_task(paused.write(erasing(ada), alone=erasure.ALONE))
    await asyncio.to_thread(paused.is_done.wait, 60)
    turns = one.turns
    late = [
        asyncio.create_task(work)
        for work in (
            turns.commit_turn(commit),
            turns.save_steps(row.turn_id, "more", is_durable=False),
            turns.begin_call(call_row(row.turn_id)),
            one.inbox.add(said("a"), "t_again"),
            one.usage.settle(Bill(granted.reservation, planned.spender, planned.day, spent)),  # type: ignore[union-attr]
        )
    ]
    await wait(other, *late)
    paused.may_end.set()
    await erased
    *refused, again, noted = await asyncio.gather(*late, return_exceptions=True)
    assert [type(error) for error in refused] == [ClaimLost] * 3
    assert (again, noted) == (None, None)
    assert await one.inbox.add(said("a"), "t_later") is None
    assert await summed(one) == [(ERASED, 1), (ERASED, 1, 1)]
    assert await left(one) == {}
    assert await try_claim(one) is None


async def test_an_account_that_became_another_user_has_its_turn_run_again(workers: tuple[Stores, Stores]) -> None:
    one, other = workers
    row, ada, commit = await a_turn(one)
    accounts = SqlAccounts(other.engine.of("accounts"))
    bob = await accounts.resolve("web:2", "Bob")
    await accounts.move({"web:1": Move(from_users=(ada,), to_user=bob, via="link-code")})
    bill = bill_of(row, ada)
    with pytest.raises(PersonChanged):
        await one.turns.commit_turn(replace(commit, bill=bill))
    assert await left(one) == {"inbox": 1}
    assert await summed(one) == []
    await one.usage.settle(bill)
    assert await summed(one) == [(ada, 1), (ada, 1, 1)]
    await one.lanes.release(row, after_s=0, error=None, is_counted=False)
    again = await claimed(one)
    await one.turns.commit_turn(ended(again, replies=commit.replies, answered=("web:1", bob)))
    assert await left(one) == {"inbox": 1, "outbox": 1}


def bill_of(row: InboxRow, ada: str) -> Bill:
    """What a call of the turn did cost."""
    spender = Spender(user_id=ada, personality_id="assistant", turn_id=row.turn_id)
    return Bill(None, spender, DAY, [ModelUsage(model="m", input_tokens=1, output_tokens=1)], is_of_message=True)


async def summed(stores: Stores) -> list[tuple[Any, ...]]:
    """Whose the calls are, and how many turns and calls; of all users, as they stand in the sums and one by one."""
    ones = await stores.engine.rows("SELECT user_id, count(*) FROM usage GROUP BY user_id")
    sums = await stores.engine.rows("SELECT user_id, turns, calls FROM usage_days")
    return [tuple(row) for row in (*ones, *sums)]


async def test_a_bill_that_is_settled_beside_its_commit_counts_once_and_so_does_its_turn(
    workers: tuple[Stores, Stores],
) -> None:
    """The commit of a turn that was cancelled goes on, and another worker's call for the same turn is counted, too."""
    one, other = workers
    row, ada, commit = await a_turn(one)
    bill, paused = bill_of(row, ada), Paused(one.engine)
    committing = asyncio.create_task(SqlTurns(paused).commit_turn(replace(commit, bill=bill)))  # type: ignore[arg-type]
    await asyncio.to_thread(paused.is_done.wait, 60)
    late = [asyncio.create_task(other.usage.settle(each)) for each in (bill, bill_of(row, ada))]
    await wait(other, *late)
    paused.may_end.set()
    await asyncio.gather(committing, *late)
    assert await summed(one) == [(ada, 2), (ada, 1, 2)]


async def test_a_bill_names_nobody_who_was_erased_beside_it_or_before(workers: tuple[Stores, Stores]) -> None:
    one, other = workers
    row, ada, commit = await a_turn(one)
    paused = Paused(one.engine)
    first = asyncio.create_task(SqlUsage(paused).settle(bill_of(row, ada)))  # type: ignore[arg-type]
    await asyncio.to_thread(paused.is_done.wait, 60)
    erased = asyncio.create_task(other.engine.write_long(erasing(ada), alone=erasure.ALONE))
    await wait(other, erased)
    paused.may_end.set()
    await asyncio.gather(first, erased)
    bill = bill_of(row, ada)
    with pytest.raises(ClaimLost):
        await one.turns.commit_turn(replace(commit, bill=bill))
    await one.usage.settle(bill)
    assert await summed(one) == [(ERASED, 2), (ERASED, 1, 2)]


class Doubting:
    """An engine whose work may have been committed before, by a run whose connection broke in COMMIT."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def write(self, work: Callable[[Connection], Any], **options: Any) -> Any:
        def again(connection: Any) -> Any:
            connection.may_be_done = True
            return work(connection)

        return await self._engine.write(again, **options)

    async def write_at_once(self, work: Callable[[Connection], Any], **options: Any) -> Any:
        return await self.write(lambda connection: work(connection)(), **options)


class Broken(Doubting):
    """And it was."""

    async def write_at_once(self, work: Callable[[Connection], Any], **options: Any) -> Any:
        await self._engine.write_at_once(work, **options)
        return await super().write_at_once(work, **options)


@pytest.mark.parametrize("end", ["done", "parked", "dead"])
async def test_a_commit_that_may_be_done_and_is_counts_as_done(workers: tuple[Stores, Stores], end: Any) -> None:
    one, _ = workers
    await one.inbox.add(said("a"), "t_a")
    row = await claimed(one)
    commit = ended(row, replies=(answer("r"),), end=end, again_after_s=60.0, bill=bill_of(row, "u_ada"))
    assert await SqlTurns(Broken(one.engine)).commit_turn(commit)  # type: ignore[arg-type]
    assert await summed(one) == [("u_ada", 1), ("u_ada", 1, 1)]
    elsewhere = replace(commit, bill=bill_of(row, "u_ada"))  # another worker had committed the turn
    assert await SqlTurns(Doubting(one.engine)).commit_turn(elsewhere)  # type: ignore[arg-type]
    assert await summed(one) == [("u_ada", 2), ("u_ada", 1, 2)]
    assert len(await one.outbox.unsent()) == 1
    with pytest.raises(ClaimLost):
        await one.turns.commit_turn(commit)
    assert [entry.state for entry in await one.log.read(HERE) if entry.direction == "in"] == [end]
