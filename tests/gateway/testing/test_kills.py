"""A process is killed at every step of a write of each kind; the next one does it again, and each update is there once.

The Markdown files have more of it in `tests/gateway/memory/test_crashes.py`, the traces theirs in
`tests/gateway/memory/traces/test_provider_kills.py`.
"""

from __future__ import annotations

import asyncio
import signal
from itertools import pairwise

import httpx
import pytest

from gateway.protocols import MemoryUpdate
from gateway.runtime import failpoints
from tests import forks
from tests.gateway.testing import dying_process
from tests.gateway.testing.dying_process import ABSORBED, DOCUMENT, SURVIVOR, TURNS, do, scope_of
from tests.gateway.testing.places import FILE_STEPS, SERVERS
from tests.memories import memory

pytestmark = pytest.mark.slow

# By server: the points that a turn comes to, and those that an erasure and a union come to besides.
_POSTGRES = ("read", "writing", "committing", "committed")
_WEBDAV = ("sending", "put", "noted")
SYNC = {
    "markdown": FILE_STEPS,
    "database": ("database.committing", "database.committed"),
    "redis": ("memory.redis.read", "memory.redis.committed"),
    "postgres": [f"memory.postgres.{step}" for step in ("prepared", *_POSTGRES)],
    "webdav-apache": [*(f"memory.webdav.{step}" for step in ("folder", *_WEBDAV)), *FILE_STEPS],
    "webdav-wsgidav": [f"memory.webdav.{step}" for step in _WEBDAV],
}
WHOLE = {
    "redis": ("memory.redis.replacing", "memory.redis.replaced"),
    "traces": ("database.committing", "database.committed"),
    "database": ("database.committing", "database.committed"),
    "postgres": ("memory.postgres.replacing", "memory.postgres.replaced"),
}
_ERASED = ("lines_erased", "sending", "put", "noted", "user_erased")
ERASE = {**WHOLE, "webdav-apache": [f"memory.webdav.{step}" for step in _ERASED]}
UNITE = [
    *((server, step, count) for server, steps in WHOLE.items() for step in steps for count in (1, 2)),
    *((server, "memory.renamed", 1) for server in ("markdown", "webdav-apache")),
]
PART = [
    ("redis", "memory.redis.read", 1),
    ("redis", "memory.redis.committed", 1),
    ("postgres", "memory.postgres.committing", 1),
    ("postgres", "memory.postgres.committed", 1),
    *((server, "memory.renamed", 1) for server in ("markdown", "webdav-apache")),
]
FIRST = {"memory.postgres.prepared", "memory.webdav.folder"}


def cases(steps, *counts):
    """One for each server, step and count; wsgidav is slow, because locks of the dead are held for ten seconds."""
    return [
        pytest.param(
            server, step, count, marks=[pytest.mark.slow] if server == "webdav-wsgidav" else [],
            id=f"{server}-{step.removeprefix('memory.')}-{count}",
        )
        for server, names in steps.items()
        for step in names
        for count in (counts if step not in FIRST else (1,))
    ]  # fmt: skip


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
    assert getattr(provider, "late", 0) == 0, provider.problems
    found = await provider.prefetch(scope_of("look"))
    assert lines(found.project_memory) == ["kept line", *(f"fact {turn}." for turn, _ in TURNS)]
    for user in (SURVIVOR, ABSORBED):
        found = await provider.prefetch(scope_of("look", user))
        assert lines(found.user_memory) == [f"trait {turn}." for turn, who in TURNS if who == user]
    log = [one for one in await provider.log(scope_of("look"), limit=100) if one.outcome == "applied"]
    assert len(log) == len(TURNS) + 2  # what was there before, and the line that was taken out
    for newer, older in pairwise(log):
        assert newer.hash_before == older.hash_after


@pytest.mark.parametrize(("place", "step", "count"), cases(SYNC, 1, 2, 5), indirect=["place"])
async def test_a_turn_that_was_killed_at_any_step_is_there_once_after_the_next_try(place, step, count):
    """Row 14."""
    if step not in FIRST:
        await before(place)
    assert await killed(place, "sync", step, count) == -signal.SIGKILL
    async with place.memory() as provider:
        if step in FIRST:
            await before(place)
        await do(provider, "sync")
        if step in FIRST:
            found = await provider.prefetch(scope_of("look"))
            assert sorted(lines(found.project_memory)) == sorted(["kept line", *(f"fact {turn}." for turn, _ in TURNS)])
        else:
            await assert_each_once(provider)


@pytest.mark.parametrize(("place", "step", "count"), cases(ERASE, 1), indirect=["place"])
async def test_an_erasure_that_was_killed_at_any_step_is_whole_after_the_next_try(place, step, count):
    async with place.memory() as provider:
        await do(provider, "sync")
    assert await killed(place, "erase", step, count) == -signal.SIGKILL
    async with place.memory() as provider:
        await do(provider, "erase")
        assert await provider.export([SURVIVOR]) == {}
        kept = [turn for turn, user in TURNS if user != SURVIVOR]
        found = await provider.prefetch(scope_of("look", ABSORBED))
        assert lines(found.user_memory) == [f"trait {turn}." for turn in kept]
        assert lines(found.project_memory) == [f"fact {turn}." for turn in kept]
        assert all(one.user_id != SURVIVOR for one in await provider.log(limit=100))


MINE = [f"trait {turn}." for turn, user in TURNS if user == SURVIVOR]
THEIRS = [f"trait {turn}." for turn, user in TURNS if user == ABSORBED]


@pytest.mark.parametrize(("place", "step", "count"), UNITE, indirect=["place"])
async def test_a_union_that_was_killed_at_any_step_is_whole_after_the_next_try(place, step, count):
    async with place.memory() as provider:
        await do(provider, "sync")
    assert await killed(place, "unite", step, count) == -signal.SIGKILL
    async with place.memory() as provider:
        await do(provider, "unite")
        assert lines((await provider.prefetch(scope_of("look"))).user_memory) == [*MINE, *THEIRS]


@pytest.mark.parametrize(("place", "step", "count"), PART, indirect=["place"])
async def test_two_people_are_two_again_however_the_process_dies_over_it(place, step, count):
    async with place.memory() as provider:
        await do(provider, "sync")
        await do(provider, "unite")
    assert await killed(place, "part", step, count) == -signal.SIGKILL
    async with place.memory() as provider:
        await do(provider, "part")
        assert lines((await provider.prefetch(scope_of("look"))).user_memory) == MINE
        assert lines((await provider.prefetch(scope_of("look", ABSORBED))).user_memory) == THEIRS


def test_every_point_of_a_memory_on_a_server_is_killed_at():
    tried = {step for steps in (*SYNC.values(), *ERASE.values()) for step in steps}
    later = {"memory.webdav.asked", "memory.webdav.merged", "memory.webdav.taken", "memory.webdav.locked"}
    tried = {step for step in tried if step not in FILE_STEPS and not step.startswith("database.")}
    assert set(failpoints.MEMORY_POINTS) == tried | later
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


@pytest.mark.parametrize("place", ["webdav-apache"], indirect=True)
@pytest.mark.parametrize("is_edit", [False, True])
async def test_what_a_dead_process_had_no_time_to_note_is_not_taken_for_an_edit(place, is_edit):
    """It is ours, or was taken in. Merged with a text that goes on from it, it would be there twice."""
    async with place.memory() as provider:
        await provider.sync(scope_of("before"), [MemoryUpdate.add("memory", "A"), MemoryUpdate.add("memory", "B")])
        await provider.settle()
    if is_edit:
        await put_there(place, b"A\n\nB\n\nNoted.\n")
        assert await killed(place, "look", "memory.webdav.merged", 1) == -signal.SIGKILL
    else:
        assert await killed(place, "note", "memory.webdav.put", 1) == -signal.SIGKILL
    async with memory(**{**place.arguments, "password": "wrong"}) as provider:  # as if it were away
        await provider.sync(scope_of("next"), [MemoryUpdate.remove("memory", "B"), MemoryUpdate.add("memory", "C")])
    async with place.memory() as provider:
        await provider.settle()
        found = await provider.prefetch(scope_of("look"))
        assert lines(found.project_memory) == ["A", "Noted.", "C"]
        assert provider.late == 0


async def put_there(place, data):
    """Save the whole text on the server, as a person does."""
    async with httpx.AsyncClient(auth=(place.arguments["username"], place.arguments["password"])) as client:
        assert (await client.put(f"{place.arguments['url']}/{DOCUMENT}", content=data)).is_success


@pytest.mark.parametrize("place", ["webdav-wsgidav"], indirect=True)
async def test_a_file_that_a_dead_process_has_locked_is_written_when_the_lock_is_over(place):
    await before(place)
    assert await killed(place, "sync", "memory.webdav.locked", 1) == -signal.SIGKILL
    async with place.memory() as provider:
        async with asyncio.timeout(90):
            await do(provider, "sync")
        await assert_each_once(provider)
        assert provider.late == 0
