"""When a trace store is consolidated by itself: at night, after a night that was missed, and when somebody wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, time, timedelta

import pytest

from gateway.errors import StoreUnavailable
from gateway.traces import schedule as schedule_module
from gateway.traces.consolidation import Consolidation, ConsolidationReport
from gateway.traces.schedule import ConsolidationSchedule, next_at
from gateway.traces.trace import Viewer
from gateway.traces.trace_store import TraceStore
from tests.gateway.memory.traces.people import ADA, BEN, Clock, of

NIGHT = time(3)


@asynccontextmanager
async def running(schedule: ConsolidationSchedule) -> AsyncIterator[None]:
    task = asyncio.create_task(schedule.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def reasons(trace_store: TraceStore) -> list[str]:
    return await trace_store.database.read(
        lambda connection: [row[0] for row in connection.execute("SELECT reason FROM consolidation_log ORDER BY id")]
    )


async def until(trace_store: TraceStore, amount: int) -> list[str]:
    async with asyncio.timeout(60):
        while len(found := await reasons(trace_store)) < amount:
            await asyncio.sleep(0.005)
    return found


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (datetime(2026, 11, 20, 2, 59, tzinfo=UTC), datetime(2026, 11, 20, 3, tzinfo=UTC)),
        (datetime(2026, 11, 20, 3, tzinfo=UTC), datetime(2026, 11, 21, 3, tzinfo=UTC)),
        (datetime(2026, 12, 31, 23, tzinfo=UTC), datetime(2027, 1, 1, 3, tzinfo=UTC)),
    ],
)
def test_the_next_night_is_the_next_time_that_it_is_three(after: datetime, expected: datetime) -> None:
    assert next_at(NIGHT, after) == expected


async def test_at_night_everything_is_consolidated_once_and_the_next_night_again(
    trace_store: TraceStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_module, "_LONGEST_SLEEP_S", 0.005)  # so often it looks at the clock
    for viewer in (ADA, BEN):
        await trace_store.add(viewer, of(viewer, "faded", strength=0.01))
    async with running(ConsolidationSchedule(trace_store, Consolidation(trace_store), at=NIGHT)):
        clock.move(hours=14)
        await asyncio.sleep(0.05)
        assert await reasons(trace_store) == []
        clock.move(hours=2)
        assert await until(trace_store, 1) == ["nightly"]
        assert (await trace_store.count(ADA), await trace_store.count(BEN)) == (0, 0)
        await asyncio.sleep(0.05)
        assert await reasons(trace_store) == ["nightly"]
        clock.move(hours=24)
        assert await until(trace_store, 2) == ["nightly", "nightly"]


async def test_a_night_in_which_the_gateway_was_off_is_made_up_for(trace_store: TraceStore, clock: Clock) -> None:
    await Consolidation(trace_store).run(reason="nightly")
    clock.move(days=3)
    async with running(ConsolidationSchedule(trace_store, Consolidation(trace_store), at=NIGHT)):
        assert await until(trace_store, 2) == ["nightly", "nightly"]


async def test_who_wants_it_gets_their_own_consolidated_and_nobody_elses(trace_store: TraceStore) -> None:
    for viewer in (ADA, BEN):
        await trace_store.add(viewer, of(viewer, "faded", strength=0.01))
    schedule = ConsolidationSchedule(trace_store, Consolidation(trace_store), at=NIGHT)
    async with running(schedule):
        schedule.want(ADA, "50 turns")
        await asyncio.wait_for(schedule.idle(), 60)
        assert await reasons(trace_store) == ["50 turns"]
        assert (await trace_store.count(ADA), await trace_store.count(BEN)) == (0, 1)


async def test_a_full_disk_or_a_fault_is_no_end_of_the_schedule(trace_store: TraceStore) -> None:
    failures: list[Exception] = [StoreUnavailable("full"), RuntimeError("a bug")]

    class Failing(Consolidation):
        async def run(
            self, viewer: Viewer | None = None, *, reason: str = "schedule", derives: bool = True
        ) -> ConsolidationReport:
            if failures:
                raise failures.pop(0)
            return await super().run(viewer, reason=reason, derives=derives)

    schedule = ConsolidationSchedule(trace_store, Failing(trace_store), at=NIGHT)
    async with running(schedule):
        for number in range(3):
            schedule.want(ADA, f"try {number}")
            await asyncio.wait_for(schedule.idle(), 60)
        assert await reasons(trace_store) == ["try 2"]


async def test_old_traces_are_shortened_after_the_night_where_that_is_wanted(
    trace_store: TraceStore, clock: Clock
) -> None:
    nights: list[int] = []

    async def gists() -> int:
        nights.append(len(await reasons(trace_store)))
        return 0

    await Consolidation(trace_store).run(reason="nightly")
    clock.move(days=2)
    async with running(ConsolidationSchedule(trace_store, Consolidation(trace_store), at=NIGHT, gists=gists)):
        await until(trace_store, 2)
        async with asyncio.timeout(60):
            while not nights:
                await asyncio.sleep(0.005)
    assert nights == [2]


async def test_the_log_tells_what_each_consolidation_did_newest_first(trace_store: TraceStore, clock: Clock) -> None:
    consolidation = Consolidation(trace_store)
    for number in range(3):
        await trace_store.add(ADA, of(ADA, f"faded {number}", strength=0.01))
        await consolidation.run(ADA, reason=f"run {number}")
        clock.move(days=1)
    entries = await consolidation.log(limit=2)
    assert [(entry.reason, entry.pruned) for entry in entries] == [("run 2", 1), ("run 1", 1)]
    assert entries[0].started_at == clock.now - timedelta(days=1)
    assert [entry.reason for entry in await consolidation.log(before=entries[-1].id)] == ["run 0"]
