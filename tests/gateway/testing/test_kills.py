"""Processes are killed at every step of a write in each memory; and the next one does it again: each update is once.

The Markdown files have more of it in `tests/gateway/memory/test_crashes.py`.
"""

from __future__ import annotations

import asyncio
import signal
from itertools import pairwise

import pytest

from gateway.protocols import MemoryUpdate
from gateway.runtime import failpoints
from tests import forks
from tests.gateway.testing import dying_process
from tests.gateway.testing.dying_process import ABSORBED, LINK, SURVIVOR, TURNS, do, scope_of
from tests.gateway.testing.places import FILE_STEPS, SERVERS

# By server: the points that a turn comes to, and those that an erasure and a union come to besides.
_POSTGRES = ("read", "writing", "committing", "committed")
_WEBDAV = ("put", "noted")
SYNC = {
    "markdown": FILE_STEPS,
    "redis": ("memory.redis.read", "memory.redis.committed"),
    "postgres": [f"memory.postgres.{step}" for step in ("prepared", *_POSTGRES)],
    "webdav-apache": [*(f"memory.webdav.{step}" for step in ("folder", *_WEBDAV)), *FILE_STEPS],
    "webdav-wsgidav": [f"memory.webdav.{step}" for step in _WEBDAV],
}
WHOLE = {
    "redis": ("memory.redis.replacing", "memory.redis.replaced"),
    "postgres": ("memory.postgres.replacing", "memory.postgres.replaced"),
}
AT = [(server, step, count) for server, steps in SYNC.items() for step in steps for count in (1, 2, 5)]
ONLY_ONCE = {("memory.postgres.prepared", 2), ("memory.postgres.prepared", 5)}
WHOLE_AT = [(server, step, count) for server, steps in WHOLE.items() for step in steps for count in (1, 2)]


@pytest.fixture
def place(request, server_of, tmp_path):
    return server_of(request.param)(tmp_path / "home")


async def killed(place, work, step, count):
    """The exit code of a process that does this work."""
    return await asyncio.to_thread(forks.ended, dying_process.started(place.arguments, work, step, count))


def lines(text):
    return [line for line in (text or "").split("\n") if line]


async def before(place):
    """The text from before the turns."""
    async with place.memory() as provider:
        await provider.sync(scope_of("before"), [MemoryUpdate.add("memory", "old line\nkept line")])
        if hasattr(provider, "settle"):
            await provider.settle()


async def assert_each_once(provider):
    assert getattr(provider, "late", 0) == 0
    found = await provider.prefetch(scope_of("look"))
    assert lines(found.project_memory) == ["kept line", *(f"fact {turn}." for turn, _ in TURNS)]
    for user in (SURVIVOR, ABSORBED):
        found = await provider.prefetch(scope_of("look", user))
        assert lines(found.user_memory) == [f"trait {turn}." for turn, who in TURNS if who == user]
    log = [one for one in await provider.log(scope_of("look"), limit=100) if one.outcome == "applied"]
    assert len(log) == len(TURNS) + 2  # what was there before, and the line that was taken out
    for newer, older in pairwise(log):
        assert newer.hash_before == older.hash_after


@pytest.mark.parametrize(
    ("place", "step", "count"), [each for each in AT if each[1:] not in ONLY_ONCE], indirect=["place"]
)
async def test_a_turn_that_was_killed_at_any_step_is_there_once_after_the_next_try(place, step, count):
    """Row 14."""
    if step not in ("memory.postgres.prepared", "memory.webdav.folder"):
        await before(place)
    died = await killed(place, "sync", step, count)
    if step == "memory.webdav.folder" and died == 0:
        pytest.skip("it makes fewer folders")
    assert died == -signal.SIGKILL
    async with place.memory() as provider:
        if step in ("memory.postgres.prepared", "memory.webdav.folder"):
            await do(provider, "sync")
            found = await provider.prefetch(scope_of("look"))
            assert lines(found.project_memory) == [f"fact {turn}." for turn, _ in TURNS]
            return
        await do(provider, "sync")
        await assert_each_once(provider)


@pytest.mark.parametrize(("place", "step", "count"), WHOLE_AT, indirect=["place"])
async def test_an_erasure_that_was_killed_at_any_step_is_whole_after_the_next_try(place, step, count):
    async with place.memory() as provider:
        await do(provider, "sync")
    assert await killed(place, "erase", step, count) == -signal.SIGKILL
    async with place.memory() as provider:
        await do(provider, "erase")
        assert await provider.export([SURVIVOR]) == {}
        kept = [(turn, user) for turn, user in TURNS if user != SURVIVOR]
        found = await provider.prefetch(scope_of("look", ABSORBED))
        assert lines(found.user_memory) == [f"trait {turn}." for turn, _ in kept]
        assert lines(found.project_memory) == [f"fact {turn}." for turn, _ in kept]
        assert all(one.user_id != SURVIVOR for one in await provider.log(limit=100))


@pytest.mark.parametrize("work", ["unite", "part"])
@pytest.mark.parametrize(("place", "step"), sorted({each[:2] for each in WHOLE_AT}), indirect=["place"])
async def test_a_union_that_was_killed_at_any_step_is_whole_after_the_next_try(place, step, work):
    united = [f"trait {turn}." for turn, user in TURNS if user == SURVIVOR]
    united += [f"trait {turn}." for turn, user in TURNS if user == ABSORBED]
    async with place.memory() as provider:
        await do(provider, "sync")
        if work == "part":
            await provider.unite(LINK, SURVIVOR, ABSORBED)
    points = [step] if work == "unite" else [step.replace("replacing", "read").replace("replaced", "committed")]
    for point in points:
        for count in (1, 2):
            died = await killed(place, work, point, count)
            assert died in (-signal.SIGKILL, 0)
            assert died or count == 2
    async with place.memory() as provider:
        await do(provider, work)
        found = await provider.prefetch(scope_of("look"))
        mine = [f"trait {turn}." for turn, user in TURNS if user == SURVIVOR]
        assert lines(found.user_memory) == (united if work == "unite" else mine)


def test_every_point_of_a_memory_on_a_server_is_killed_at():
    tried = {step for steps in (*SYNC.values(), *WHOLE.values()) for step in steps}
    later = {"memory.webdav.asked", "memory.webdav.merged", "memory.webdav.taken", "memory.webdav.locked"}
    assert set(failpoints.MEMORY_POINTS) == {step for step in tried if step not in FILE_STEPS} | later
    assert {*SYNC} <= {*SERVERS}


@pytest.mark.parametrize("place", ["webdav-apache"], indirect=True)
@pytest.mark.parametrize("step", ["memory.webdav.asked", "memory.webdav.merged", "memory.webdav.taken"])
async def test_an_edit_on_the_server_is_taken_in_once_however_a_process_dies_over_it(place, step):
    await before(place)
    async with place.editing() as edit:
        await edit("by hand")
    assert await killed(place, "sync", step, 1) == -signal.SIGKILL
    async with place.memory() as provider:
        await do(provider, "sync")
        found = await provider.prefetch(scope_of("look"))
        expected = {"kept line", "by hand", *(f"fact {turn}." for turn, _ in TURNS)}
        assert sorted(lines(found.project_memory)) == sorted(expected)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["webdav-wsgidav"], indirect=True)
async def test_a_file_that_a_dead_process_has_locked_is_written_when_the_lock_is_over(place):
    await before(place)
    assert await killed(place, "sync", "memory.webdav.locked", 1) == -signal.SIGKILL
    async with place.memory() as provider:
        async with asyncio.timeout(90):
            await do(provider, "sync")
        await assert_each_once(provider)
        assert provider.late == 0
