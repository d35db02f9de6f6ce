"""Memory updates in their order, windows that are current, and both of them bounded."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from gateway.errors import FileError, InvalidId, StoreUnavailable
from gateway.memory import sync as memory_sync_module
from gateway.memory.sync import MemorySync
from gateway.pipeline import history as history_module
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate, SyncReport
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel


def scope(turn_id: str, user_id: str = "u") -> MemoryScope:
    return MemoryScope(personality_id="p", user_id=user_id, session_id=None, turn_id=turn_id)


def updates(turn_id: str) -> tuple[MemoryUpdate, ...]:
    return (MemoryUpdate.add("user", f"the text of {turn_id}"),)


class Provider:
    """Notes what is applied; fails as it is told to, and can be held."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.failures: list[Exception] = []
        self.is_held = False
        self.reached = asyncio.Event()
        self.released = asyncio.Event()
        self.has_applied = asyncio.Condition()

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:  # noqa: ARG002
        return None

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:  # noqa: ARG002
        if self.is_held:
            self.reached.set()
            await self.released.wait()
        if self.failures:
            raise self.failures.pop(0)
        async with self.has_applied:
            self.applied.append(scope.turn_id)
            self.has_applied.notify_all()
        return SyncReport(outcomes=("applied",))

    async def until_applied(self, amount: int) -> None:
        async with asyncio.timeout(10), self.has_applied:
            await self.has_applied.wait_for(lambda: len(self.applied) >= amount)


class Store:
    """A journal, whose texts are made when they are read. It settles, or fails to."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.committed: dict[str, MemoryScope] = {}
        self.settled: list[str] = []

    def commit(self, turn_id: str, user_id: str = "u") -> tuple[MemoryScope, tuple[MemoryUpdate, ...]]:
        """A turn that is to be applied."""
        self.committed[turn_id] = scope(turn_id, user_id)
        return self.committed[turn_id], updates(turn_id)

    async def unsettled_memory(
        self, *, after: str | None = None, limit: int | None = None
    ) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        turn_ids = list(self.committed)
        start = turn_ids.index(after) + 1 if after is not None else 0
        waiting = [turn_id for turn_id in turn_ids[start:] if turn_id not in self.settled][:limit]
        return [(self.committed[turn_id], updates(turn_id)) for turn_id in waiting]

    async def settle_memory(self, turn_id: str, outcomes: Sequence[str]) -> None:  # noqa: ARG002
        if self.failures:
            raise self.failures.pop(0)
        self.settled.append(turn_id)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_sync_module, "RETRY_S", 0.001)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def none_late(sync: MemorySync) -> None:
    async with asyncio.timeout(20):
        while sync.late:
            await asyncio.sleep(0)


async def test_an_update_that_comes_while_late_ones_are_tried_again_waits_behind_them() -> None:
    provider = Provider()
    store = Store()
    sync = MemorySync(provider, store)  # type: ignore[arg-type]
    provider.failures = [FileError("the lock is held")]
    await sync.apply(*store.commit("t1"))
    await sync.apply(*store.commit("t2"))  # behind t1
    assert sync.late == 2
    provider.is_held = True
    running = asyncio.create_task(sync.run())
    await asyncio.wait_for(provider.reached.wait(), 10)  # t1 is on its way
    third = asyncio.create_task(sync.apply(*store.commit("t3")))
    await asyncio.sleep(0)
    assert sync.late == 2  # they are late until they are there
    provider.is_held = False
    provider.released.set()
    await provider.until_applied(3)
    await third
    await none_late(sync)
    await ended(running)
    assert provider.applied == ["t1", "t2", "t3"]


async def test_late_updates_of_one_person_do_not_hold_up_those_of_another() -> None:
    provider = Provider()
    store = Store()
    sync = MemorySync(provider, store)  # type: ignore[arg-type]
    provider.failures = [FileError("the lock is held")] * 3
    await sync.apply(*store.commit("t1"))
    await sync.apply(*store.commit("t2", "other"))
    await sync.apply(*store.commit("t3"))
    running = asyncio.create_task(sync.run())
    await provider.until_applied(3)
    await ended(running)
    assert provider.applied == ["t2", "t1", "t3"]


@pytest.mark.parametrize("error", [RuntimeError("a fault"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a fault")])
async def test_an_update_that_meets_a_fault_is_kept_and_its_turn_is_well(error: Exception) -> None:
    provider = Provider()
    store = Store()
    sync = MemorySync(provider, store)  # type: ignore[arg-type]
    provider.failures = [error, error]
    await sync.apply(*store.commit("t1"))
    assert sync.late == 1
    running = asyncio.create_task(sync.run())
    await provider.until_applied(1)
    assert not running.done()
    await ended(running)


async def test_a_refused_update_that_cannot_be_settled_now_is_settled_later() -> None:
    provider, store = Provider(), Store()
    sync = MemorySync(provider, store)  # type: ignore[arg-type]
    provider.failures = [InvalidId("user", "../x")] * 3
    store.failures = [StoreUnavailable("the disk is full")] * 2
    await sync.apply(*store.commit("t1"))
    running = asyncio.create_task(sync.run())
    async with asyncio.timeout(10):
        while not store.settled:
            await asyncio.sleep(0)
    await ended(running)
    assert store.settled == ["t1"]


async def test_what_is_late_for_long_is_kept_in_the_journal_and_not_in_memory() -> None:
    """A file that cannot be written for a week costs a set of owners, and nothing is lost or overtaken."""
    provider, store = Provider(), Store()
    sync = MemorySync(provider, store)  # type: ignore[arg-type]
    provider.failures = [FileError("the disk is full")]
    names = [f"week-{number}" for number in range(3 * memory_sync_module.PAGE_TURNS + 7)]
    for name in names:
        await sync.apply(*store.commit(name))
    assert sync.late == len(names)
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, MemoryUpdate) and "week-" in one.content]
    running = asyncio.create_task(sync.run())
    await none_late(sync)
    await ended(running)
    assert provider.applied == names


async def test_a_journal_that_cannot_be_read_is_read_again_later() -> None:
    """Whatever goes wrong, the task that tries late updates again does not end with it."""
    provider, store = Provider(), Store()
    sync = MemorySync(provider, store)  # type: ignore[arg-type]
    provider.failures = [FileError("the lock is held")]
    await sync.apply(*store.commit("t1"))
    failures: list[Exception] = [StoreUnavailable("the disk is broken"), RuntimeError("a fault")]
    read = store.unsettled_memory

    async def fails_first(
        *, after: str | None = None, limit: int | None = None
    ) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        if failures:
            raise failures.pop(0)
        return await read(after=after, limit=limit)

    store.unsettled_memory = fails_first  # type: ignore[method-assign]
    running = asyncio.create_task(sync.run())
    await none_late(sync)
    await ended(running)
    assert provider.applied == ["t1"]


async def test_a_superseded_answer_does_not_come_back_while_a_summary_is_made(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel("word " * 700, "the wrong answer", "the right answer", "fine", "a summary", "a summary")
    reached, released = asyncio.Event(), asyncio.Event()

    class Model(ScriptedModel):
        async def stream(self, request):
            if request.purpose == "summary":
                reached.set()
                await released.wait()
                async for event in ScriptedModel("a summary").stream(request):
                    yield event
                return
            async for event in model.stream(request):
                yield event

    async with house.gateway(Model(), limits={"history_tokens": 1000}) as (gateway, channel):
        window = gateway.store.sessions.window

        async def held(*args, **keywords):
            messages = await window(*args, **keywords)
            task = asyncio.current_task()
            if task is not None and task.get_name().startswith("summary"):
                reached.set()
                await released.wait()
            return messages

        monkeypatch.setattr(gateway.store.sessions, "window", held)
        await channel.ask("a long one")
        await channel.ask("a short one")
        await asyncio.wait_for(reached.wait(), 10)
        await channel.ask("/retry")
        await settled(gateway)
        released.set()
        if gateway.history._tasks:
            await asyncio.wait(list(gateway.history._tasks.values()))
        await channel.ask("and now")
        said = [one.text for one in model.requests[-1].messages]
        assert "the right answer" in said
        assert "the wrong answer" not in said


async def test_few_windows_are_kept_however_many_conversations_there_are(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "KEPT_WINDOWS", 2, raising=False)
    async with house.gateway(ScriptedModel(*["hi"] * 6)) as (gateway, channel):
        for number in range(5):
            await channel.ask("hello", conversation=f"c{number}")
        assert len(gateway.history._kept) == 2
        assert gateway.history._kept_tokens == sum(window.tokens for window in gateway.history._kept.values())
