"""A memory that is away, hangs or is broken: turns do without it, updates wait in order, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.errors import FileError, InvalidId, MemoryStoreError, MemoryUnavailable, NotOffered
from gateway.memory import availability as availability_module
from gateway.memory import sync as sync_module
from gateway.memory.offered import offered
from gateway.memory.sync import MemorySync
from gateway.protocols import (
    EditableMemory,
    HistoricMemory,
    MemoryContext,
    MemoryScope,
    MemoryUpdate,
    SyncReport,
)

KNOWN = MemoryContext(user_memory="Likes tea.", project_memory=None)
TIMEOUT_S = 0.05


def scope(turn_id: str, user_id: str | None = "u") -> MemoryScope:
    return MemoryScope(personality_id="p", user_id=user_id, session_id=None, turn_id=turn_id)


class Provider:
    """Does what `reading` and `writing` say; `None` is well."""

    def __init__(self) -> None:
        self.reading: Callable[[MemoryScope], Awaitable[Any]] | None = None
        self.writing: Callable[[MemoryScope], Awaitable[Any]] | None = None
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.applied: list[str] = []

    async def prefetch(self, scope: MemoryScope) -> Any:
        self.reads.append(scope.turn_id)
        return KNOWN if self.reading is None else await self.reading(scope)

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> Any:
        self.writes.append(scope.turn_id)
        if self.writing is not None:
            return await self.writing(scope)
        if scope.turn_id not in self.applied:
            self.applied.append(scope.turn_id)
        return SyncReport(outcomes=("applied",) * len(updates))

    def is_all(self, behaviour: Callable[[MemoryScope], Awaitable[Any]] | None) -> None:
        self.reading = self.writing = behaviour


class Journal:
    """What turns have committed."""

    def __init__(self) -> None:
        self.committed: dict[str, MemoryScope] = {}
        self.settled: list[str] = []
        self.pages_read = 0

    def commit(self, turn_id: str, user_id: str | None = "u") -> tuple[MemoryScope, tuple[MemoryUpdate, ...]]:
        self.committed[turn_id] = scope(turn_id, user_id)
        return self.committed[turn_id], (MemoryUpdate.add("memory", turn_id),)

    async def unsettled_memory(
        self, *, after: str | None = None, limit: int | None = None
    ) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        self.pages_read += 1
        turn_ids = list(self.committed)
        start = turn_ids.index(after) + 1 if after is not None else 0
        waiting = [turn_id for turn_id in turn_ids[start:] if turn_id not in self.settled][:limit]
        return [(self.committed[turn_id], (MemoryUpdate.add("memory", turn_id),)) for turn_id in waiting]

    async def settle_memory(self, turn_id: str, outcomes: Sequence[str]) -> None:  # noqa: ARG002
        self.settled.append(turn_id)


async def away(_scope: MemoryScope) -> Any:
    raise MemoryUnavailable("the memory at redis://here cannot be used now")


async def broken(_scope: MemoryScope) -> Any:
    raise TypeError("unsupported operand: a text of somebody")


async def hangs(_scope: MemoryScope) -> Any:
    await asyncio.Event().wait()


async def hangs_for_good(_scope: MemoryScope) -> Any:
    """As code does that catches everything."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if asyncio.current_task() in ENDED:
                raise


ENDED: set[asyncio.Task[Any] | None] = set()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_module, "RETRY_S", 0.001)
    monkeypatch.setattr(availability_module, "FIRST_PROBE_S", 0.001)
    monkeypatch.setattr(availability_module, "LONGEST_PROBE_S", 0.01)


@pytest.fixture
async def _none_left() -> AsyncIterator[None]:
    yield
    left = [task for task in asyncio.all_tasks() if task.get_name() == "memory call"]
    ENDED.update(left)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)


@asynccontextmanager
async def running(provider: Provider, journal: Journal) -> AsyncIterator[MemorySync]:
    sync = MemorySync(provider, journal, timeout_s=TIMEOUT_S)
    task = asyncio.create_task(sync.run())
    try:
        yield sync
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


# ---- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_none_left")
@pytest.mark.parametrize("behaviour", [hangs, hangs_for_good])
async def test_a_memory_that_hangs_delays_one_turn_by_its_time_and_no_later_one(
    behaviour: Callable[[MemoryScope], Awaitable[Any]],
) -> None:
    provider = Provider()
    sync = MemorySync(provider, Journal(), timeout_s=TIMEOUT_S)
    provider.reading = behaviour
    began_s = time.monotonic()
    with pytest.raises(MemoryUnavailable, match=r"has not answered within 0\.05 s"):
        await sync.prefetch(scope("t1"))
    assert time.monotonic() - began_s >= TIMEOUT_S
    assert sync.availability.state == "down"
    for number in range(2, 100):
        with pytest.raises(MemoryUnavailable, match="has not answered"):
            await sync.prefetch(scope(f"t{number}"))
    assert provider.reads == ["t1"]  # nobody asked it, so nobody waited


async def test_the_first_answer_brings_it_back_and_the_problem_is_known_until_then() -> None:
    provider = Provider()
    async with running(provider, Journal()) as sync:
        assert (sync.availability.state, sync.availability.problem) == ("up", None)
        before = sync.availability.since
        provider.reading = away
        with pytest.raises(MemoryUnavailable, match="redis://here"):
            await sync.prefetch(scope("t1"))
        assert sync.availability.problem == "the memory at redis://here cannot be used now"
        assert sync.availability.since > before
        await until(lambda: provider.reads.count("probe") > 3)
        assert sync.availability.state == "down"
        provider.reading = None
        await until(lambda: sync.availability.is_up)
        assert await sync.prefetch(scope("t2")) == KNOWN
        assert sync.availability.problem is None


async def test_it_is_asked_about_nobody_and_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    def delay(attempt: int, *, first_s: float, longest_s: float) -> float:
        assert (first_s, longest_s) == (2.0, 60.0)
        waits.append(attempt)
        return 0.0

    monkeypatch.undo()
    monkeypatch.setattr(availability_module, "delay_s", delay)
    provider = Provider()
    asked: list[MemoryScope] = []

    async def note(scope: MemoryScope) -> None:
        asked.append(scope)
        raise MemoryUnavailable("away")

    async with running(provider, Journal()) as sync:
        provider.reading = note
        with pytest.raises(MemoryUnavailable):
            await sync.prefetch(scope("t1"))
        await until(lambda: len(waits) >= 4)
    assert waits[:4] == [1, 2, 3, 4]
    assert {one.user_id for one in asked[1:]} == {None}


@pytest.mark.parametrize(
    "error", [FileError("her file cannot be read"), InvalidId("user", "../x"), TypeError("only her text")]
)
async def test_what_fails_for_one_person_takes_the_memory_from_nobody_else(error: Exception) -> None:
    provider = Provider()

    async def fails_for_her(scope: MemoryScope) -> MemoryContext:
        if scope.user_id == "her":
            raise error
        return KNOWN

    async with running(provider, Journal()) as sync:
        provider.reading = fails_for_her
        for number in range(3):
            with pytest.raises(MemoryUnavailable):
                await sync.prefetch(scope(f"t{number}", "her"))
            assert await sync.prefetch(scope(f"o{number}")) == KNOWN
        await until(lambda: "probe" in provider.reads)
        assert sync.availability.state == "up"


async def test_a_provider_that_raises_anything_is_away_until_it_answers() -> None:
    provider = Provider()
    with capture_logs() as logged:
        async with running(provider, Journal()) as sync:
            provider.is_all(broken)
            with pytest.raises(MemoryUnavailable, match="the memory failed with TypeError; see the log") as raised:
                await sync.prefetch(scope("t1"))
            assert "of somebody" not in str(raised.value)
            await until(lambda: not sync.availability.is_up)
            provider.is_all(None)
            await until(lambda: sync.availability.is_up)
    assert [one["event"] for one in logged if one.get("exc_info")] == ["memory_fault", "memory_fault"]
    assert [one["event"] for one in logged if not one.get("exc_info")] == ["memory_down", "memory_up"]


@pytest.mark.parametrize("found", ["a text", {"user_memory": "x"}, 7, ()])
async def test_what_is_no_context_is_a_fault_of_the_provider(found: Any) -> None:
    provider = Provider()

    async def gives(_scope: MemoryScope) -> Any:
        return found

    provider.reading = gives
    sync = MemorySync(provider, Journal(), kind="acme.memory", timeout_s=TIMEOUT_S)
    with pytest.raises(MemoryUnavailable, match="the memory failed with TypeError"):
        await sync.prefetch(scope("t1"))
    assert not await sync.availability.ask()  # it is no better when it is asked again


async def test_a_provider_that_cancels_itself_does_not_cancel_the_turn() -> None:
    provider = Provider()

    async def cancels(_scope: MemoryScope) -> Any:
        raise asyncio.CancelledError

    provider.reading = cancels
    sync = MemorySync(provider, Journal(), timeout_s=TIMEOUT_S)
    with pytest.raises(MemoryUnavailable, match="broke off"):
        await sync.prefetch(scope("t1"))


async def test_a_turn_that_is_stopped_ends_what_it_asked() -> None:
    provider = Provider()
    reached, ended = asyncio.Event(), asyncio.Event()

    async def held(_scope: MemoryScope) -> Any:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    provider.reading = held
    sync = MemorySync(provider, Journal(), timeout_s=60)
    turn = asyncio.create_task(sync.prefetch(scope("t1")))
    await asyncio.wait_for(reached.wait(), 60)
    turn.cancel()
    await asyncio.wait([turn])
    assert (turn.cancelled(), ended.is_set(), sync.availability.is_up) == (True, True, True)


@pytest.mark.usefixtures("_none_left")
async def test_calls_that_never_end_do_not_pile_up() -> None:
    provider = Provider()
    async with running(provider, Journal()) as sync:
        provider.reading = hangs_for_good
        with pytest.raises(MemoryUnavailable):
            await sync.prefetch(scope("t1"))
        await until(lambda: len(provider.reads) >= availability_module.MAX_ABANDONED)
        await asyncio.sleep(5 * TIMEOUT_S)
        assert len(provider.reads) == availability_module.MAX_ABANDONED


# ---- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_none_left")
@pytest.mark.parametrize("behaviour", [away, hangs, hangs_for_good, broken])
async def test_updates_wait_in_order_and_are_applied_once_when_it_is_back(
    behaviour: Callable[[MemoryScope], Awaitable[Any]],
) -> None:
    provider, journal = Provider(), Journal()
    async with running(provider, journal) as sync:
        provider.is_all(behaviour)
        for number in range(50):
            await sync.apply(*journal.commit(f"t{number}", f"u{number % 3}"))
        assert sync.late == 50
        assert provider.applied == []
        provider.is_all(None)
        await until(lambda: len(journal.settled) == 50)
        await until(lambda: not sync.late)
    assert provider.applied == [f"t{number}" for number in range(50)]
    assert sorted(journal.settled) == sorted(provider.applied)  # each once


@pytest.mark.usefixtures("_none_left")
async def test_an_update_that_hangs_delays_the_next_turn_by_its_time_once() -> None:
    provider, journal = Provider(), Journal()
    sync = MemorySync(provider, journal, timeout_s=TIMEOUT_S)
    provider.is_all(hangs)
    ended = asyncio.create_task(sync.apply(*journal.commit("t1")))
    await until(lambda: provider.writes == ["t1"])
    with pytest.raises(MemoryUnavailable):
        await sync.prefetch(scope("t2"))  # behind the update
    await ended
    await sync.apply(*journal.commit("t2"))
    assert (provider.writes, provider.reads) == (["t1"], [])


async def test_an_update_that_was_applied_and_answered_too_late_is_not_applied_twice() -> None:
    provider, journal = Provider(), Journal()

    async def too_late(scope: MemoryScope) -> Any:
        provider.applied.append(scope.turn_id)
        await asyncio.Event().wait()

    async with running(provider, journal) as sync:
        provider.writing = too_late
        await sync.apply(*journal.commit("t1"))
        provider.writing = None
        await until(lambda: journal.settled == ["t1"])
    assert provider.writes[:2] == ["t1", "t1"]
    assert provider.applied == ["t1"]


async def test_a_start_asks_a_memory_that_is_away_once_however_much_is_late() -> None:
    provider, journal = Provider(), Journal()
    for number in range(10_000):
        journal.commit(f"t{number}", f"u{number}")
    provider.is_all(hangs)
    sync = MemorySync(provider, journal, timeout_s=TIMEOUT_S)
    await sync.replay()
    assert (provider.writes, journal.pages_read) == (["t0"], 1)
    assert sync.late
    assert not sync._put_off
    assert not sync._late_owners


async def test_a_pass_ends_with_the_first_fault_of_a_memory_that_is_away() -> None:
    """Also where the memory is somebody else's, and says that it is away by an error that we do not know."""
    provider, journal = Provider(), Journal()
    for number in range(300):
        journal.commit(f"t{number}", f"u{number}")
    provider.is_all(broken)
    sync = MemorySync(provider, journal, timeout_s=TIMEOUT_S)
    await sync.replay()
    assert (provider.writes, provider.reads) == (["t0"], ["probe"])


async def test_nothing_newer_overtakes_what_an_earlier_process_left() -> None:
    """At the start the memory is away, so nobody knows whose updates wait; then a turn ends while they are applied."""
    provider, journal = Provider(), Journal()
    for number in range(250):
        journal.commit(f"old{number}", "ada")
    provider.is_all(away)
    reached, released = asyncio.Event(), asyncio.Event()

    async def held(scope: MemoryScope) -> Any:
        reached.set()
        await released.wait()
        provider.applied.append(scope.turn_id)
        return SyncReport(outcomes=("applied",))

    sync = MemorySync(provider, journal, timeout_s=60)
    await sync.replay()
    await sync.apply(*journal.commit("new0", "ada"))
    task = asyncio.create_task(sync.run())
    await until(lambda: "probe" in provider.reads)
    provider.reading, provider.writing = None, held
    await asyncio.wait_for(reached.wait(), 60)
    newest = asyncio.create_task(sync.apply(*journal.commit("new1", "ada")))
    await asyncio.sleep(0)
    released.set()
    provider.writing = None
    await newest
    await until(lambda: not sync.late)
    task.cancel()
    await asyncio.wait([task])
    assert provider.applied == [*(f"old{number}" for number in range(250)), "new0", "new1"]


async def test_while_it_is_away_for_long_no_turn_is_kept_in_memory() -> None:
    provider, journal = Provider(), Journal()
    sync = MemorySync(provider, journal, timeout_s=TIMEOUT_S)
    provider.is_all(away)
    for number in range(1_000):
        await sync.apply(*journal.commit(f"t{number}", f"u{number}"))
    assert sync.late == 1_000
    assert provider.writes == ["t0"]
    assert not sync._put_off
    assert not sync._late_owners


async def test_a_memory_that_can_only_be_read_is_read() -> None:
    """Such as a copy that takes no writes: turns have their memory, and the updates wait."""
    provider, journal = Provider(), Journal()
    async with running(provider, journal) as sync:
        provider.writing = away
        await sync.apply(*journal.commit("t1"))
        await until(lambda: provider.writes.count("t1") > 2)
        assert await sync.prefetch(scope("t2")) == KNOWN
        assert (sync.availability.state, sync.late) == ("up", 1)
        provider.writing = None
        await until(lambda: not sync.late)


@pytest.mark.parametrize("report", [None, SyncReport(outcomes=()), ("applied",)])
async def test_a_report_that_is_none_loses_no_update(report: Any) -> None:
    provider, journal = Provider(), Journal()

    async def gives(_scope: MemoryScope) -> Any:
        return report

    async with running(provider, journal) as sync:
        provider.writing = gives
        await sync.apply(*journal.commit("t1"))
        assert (sync.late, journal.settled) == (1, [])
        provider.writing = None
        await until(lambda: journal.settled == ["t1"])


async def test_an_error_of_the_provider_that_is_no_malformed_id_drops_no_update() -> None:
    provider, journal = Provider(), Journal()

    async def refuses(_scope: MemoryScope) -> Any:
        raise MemoryStoreError("not now")

    async with running(provider, journal) as sync:
        provider.writing = refuses
        await sync.apply(*journal.commit("t1"))
        assert journal.settled == []
        provider.writing = None
        await until(lambda: provider.applied == ["t1"] and not sync.late)


# ---- opening, and people who ask directly ---------------------------------------------------------------------------


class Opened(Provider):
    """Has to be opened, and cannot be at first."""

    def __init__(self, opening: Callable[[MemoryScope], Awaitable[Any]]) -> None:
        super().__init__()
        self.opening: Callable[[MemoryScope], Awaitable[Any]] | None = opening
        self.is_open = False

    async def open(self) -> None:
        if self.opening is not None:
            await self.opening(scope("open"))
        self.is_open = True

    async def close(self) -> None:
        await hangs(scope("close"))

    async def prefetch(self, scope: MemoryScope) -> Any:
        assert self.is_open
        return await super().prefetch(scope)


@pytest.mark.parametrize("opening", [away, hangs, broken])
async def test_what_cannot_be_opened_at_the_start_is_opened_when_it_is_back(
    opening: Callable[[MemoryScope], Awaitable[Any]],
) -> None:
    provider = Opened(opening)
    async with running(provider, Journal()) as sync:
        await sync.open()
        with pytest.raises(MemoryUnavailable):
            await sync.prefetch(scope("t1"))
        provider.opening = None
        await until(lambda: sync.availability.is_up)
        assert await sync.prefetch(scope("t2")) == KNOWN
    await sync.close()  # which hangs, and delays the end by no more than its time


class Edited(Provider):
    """Can be read by people, and has no history."""

    async def read(self, scope: MemoryScope, store: str) -> Any:  # noqa: ARG002
        return "the document" if self.reading is None else await self.reading(scope)

    async def write(self, *arguments: Any) -> Any: ...


async def test_who_asks_directly_has_an_answer_in_time_or_a_sentence() -> None:
    provider = Edited()
    sync = MemorySync(provider, Journal(), timeout_s=TIMEOUT_S)
    editable: Any = offered(sync.within_time, EditableMemory)
    assert await editable.read(scope("r"), "user") == "the document"
    for behaviour, sentence in ((away, "redis://here"), (broken, "TypeError"), (hangs, "has not answered within")):
        provider.reading = behaviour
        with pytest.raises(MemoryUnavailable, match=sentence):
            await editable.read(scope("r"), "user")
    provider.reading = None
    for _ in range(200):  # it is known to be down
        with pytest.raises(MemoryUnavailable, match="has not answered within"):
            await editable.read(scope("r"), "user")
    with pytest.raises(NotOffered):
        offered(sync.within_time, HistoricMemory)
