"""Many processes, kills, and a person who edits by `write` and past the gateway: nothing is lost and nothing doubled."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.protocols import MemoryContext, SyncReport
from gateway.testing.hammer import ANYWHERE, hammer
from tests.gateway.testing.places import FACTORY

PROCESSES, KILLS = 4, 2


async def test_nothing_is_lost_and_nothing_doubled(place):
    async with place.editing() as edit:
        report = await hammer(
            FACTORY,
            place.arguments,
            updates=300,
            processes=PROCESSES,
            kills=KILLS,
            steps=place.steps,
            edit=edit,
            timeout_s=240,
        )
    assert report.is_clean, report
    assert report.edits
    assert sum(report.kills.values()) == PROCESSES * KILLS
    assert report.kills[ANYWHERE] == PROCESSES
