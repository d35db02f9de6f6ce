"""A file system of 20 MB that is full: nothing acknowledged is lost, it is said, and it goes on by itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.faults.full_disk import DISK_MB, Ballast, FullDiskStream, health_of
from tests.faults.platform import WirePlatform
from tests.faults.process import Nursery, small_disk_missing
from tests.faults.stream import Fault


@pytest.fixture
async def nursery() -> AsyncIterator[Nursery]:
    if (missing := small_disk_missing()) is not None:
        pytest.skip(missing)
    async with Nursery(disk_mb=DISK_MB) as nursery:
        yield nursery


def without_numbers(health: Mapping[str, Any]) -> list[str]:
    """The problems, whatever is free on the disk at the moment."""
    return [re.sub(r"\d+", "some", problem) for problem in health["problems"]]


async def test_health_and_log_say_that_the_disk_is_full_and_all_is_well_again_when_there_is_room(
    nursery: Nursery,
) -> None:
    platform = WirePlatform("plain")
    stream = FullDiskStream(Fault("full disk"), platform, nursery, seed="health", kills=0)
    await platform.start(stream._directory)
    stream._furnish()
    serving = await stream._begin("")
    assert not await stream._answered_or_ended(serving)
    before = await asyncio.to_thread(health_of, stream._home, serving)
    assert not any("disk is full" in problem for problem in before["problems"]), before
    ballast = Ballast(stream._home.parent)
    ballast.fill(0)
    async with asyncio.timeout(60):
        while "database or disk is full" not in stream._log.read_text():
            await stream._write()
            await asyncio.wait([serving.status], timeout=0.1)
        said = await asyncio.to_thread(health_of, stream._home, serving)
        while not any("disk is full" in problem for problem in said["problems"]):
            said = await asyncio.to_thread(health_of, stream._home, serving)
    assert said["status"] != "ok", said
    ballast.empty()
    assert not await stream._answered_or_ended(serving)
    said = await asyncio.to_thread(health_of, stream._home, serving)
    assert (said["status"], without_numbers(said)) == (before["status"], without_numbers(before)), said
    assert stream._tally.is_clean
    await stream._killed(serving)
    await platform.close()


@pytest.mark.slow
async def test_a_disk_that_fills_and_empties_in_the_middle_of_turns_and_memory_writes_costs_nothing(
    nursery: Nursery,
) -> None:
    stream = FullDiskStream(Fault("full disk"), WirePlatform("lookup"), nursery, seed="again and again", kills=5)
    tally = await stream.run()
    assert tally.is_clean, (tally.problems, tally.notes)
    assert tally.kills == 5
