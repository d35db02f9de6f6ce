"""Turns beside one another, and one alone: who comes first goes first."""

from __future__ import annotations

import asyncio
import contextlib

from gateway.pipeline.crash_isolation import CrashIsolation


async def settled() -> None:
    """Let all go as far as they come."""
    for _ in range(10):
        await asyncio.sleep(0)


class Guests:
    """Tasks that enter, say so, and stay until they are let go."""

    def __init__(self) -> None:
        self.isolation = CrashIsolation()
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def comes(self, name: str, *, is_alone: bool = False) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._visit(name, is_alone=is_alone))
        await settled()

    async def goes(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await settled()

    async def _visit(self, name: str, *, is_alone: bool) -> None:
        async with self.isolation.alone() if is_alone else self.isolation.shared():
            self.inside.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.inside.remove(name)


async def test_one_alone_waits_for_the_others_and_they_for_it_and_nobody_is_overtaken() -> None:
    guests = Guests()
    await guests.comes("a")
    await guests.comes("b")
    await guests.comes("alone", is_alone=True)
    await guests.comes("c")
    assert guests.inside == ["a", "b"]
    await guests.goes("a")
    assert guests.inside == ["b"]
    await guests.goes("b")
    assert guests.inside == ["alone"]
    await guests.goes("alone")
    assert guests.inside == ["c"]
    await guests.goes("c")


async def test_nobody_waits_for_more_than_one_that_is_alone() -> None:
    guests = Guests()
    for name in ("poison 1", "poison 2", "poison 3"):
        await guests.comes(name, is_alone=True)
    await guests.comes("a")
    await guests.comes("b")
    await guests.goes("poison 1")
    assert guests.inside == ["a", "b"]
    await guests.comes("c")
    await guests.goes("a")
    await guests.goes("b")
    assert guests.inside == ["poison 2"]
    await guests.goes("poison 2")
    assert guests.inside == ["c"]
    await guests.goes("c")
    assert guests.inside == ["poison 3"]
    await guests.goes("poison 3")


async def test_one_that_is_cancelled_holds_nobody_up() -> None:
    guests = Guests()
    await guests.comes("a")
    await guests.comes("alone", is_alone=True)
    await guests.comes("b")
    guests.tasks["alone"].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await guests.tasks["alone"]
    await settled()
    assert guests.inside == ["a", "b"]
    await guests.comes("late", is_alone=True)
    guests._ends["a"].set()
    guests._ends["b"].set()
    await asyncio.gather(guests.tasks["a"], guests.tasks["b"])
    guests.tasks["late"].cancel()  # it is being let in, or has been
    with contextlib.suppress(asyncio.CancelledError):
        await guests.tasks["late"]
    await guests.comes("c")
    assert guests.inside == ["c"]
    await guests.goes("c")


async def test_all_may_be_cancelled_at_once() -> None:
    guests = Guests()
    await guests.comes("alone", is_alone=True)
    for name in "abc":
        await guests.comes(name, is_alone=name == "b")
    for task in guests.tasks.values():
        task.cancel()
    ended = await asyncio.gather(*guests.tasks.values(), return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * 4
    await guests.comes("late", is_alone=True)
    assert guests.inside == ["late"]
    await guests.goes("late")
