"""Many processes, kills, and a person who edits by `write` and past it: nothing is lost and nothing doubled."""

import asyncio
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from gateway.protocols import SyncReport
from gateway.testing.hammer import ANYWHERE, hammer
from tests.gateway.testing.notebook import Notebook
from tests.gateway.testing.places import FACTORY

PROCESSES, KILLS = 4, 2


@pytest.mark.slow
async def test_nothing_is_lost_and_nothing_doubled(place):
    async with place.editing() as edit:
        report = await hammer(
            FACTORY,
            place.arguments,
            updates=300,
            processes=PROCESSES,
            kills=KILLS,
            steps=place.steps,
            edit=edit if place.is_safe_to_edit else None,
            timeout_s=240,
        )
    assert report.is_clean, report
    assert report.edits
    assert sum(report.kills.values()) == PROCESSES * KILLS
    assert report.kills[ANYWHERE] >= PROCESSES


NOTEBOOK = "tests.gateway.testing.test_hammer:notebook"
WITHOUT_KILLS = {"updates": 200, "processes": 4, "kills": 0}


def notebook(path, fault=""):
    return Notebook(path, fault)


@pytest.mark.slow
async def test_a_memory_of_somebody_else_that_is_right_is_clean(tmp_path):
    report = await hammer(NOTEBOOK, {"path": str(tmp_path / "notes.db")}, updates=200, processes=4, kills=1)
    assert report.is_clean, report
    assert (report.edits, report.kills) == (0, {ANYWHERE: 4})
    assert 200 <= report.updates < 210


@pytest.mark.slow
async def test_what_a_memory_loses_is_found(tmp_path):
    report = await hammer(NOTEBOOK, {"path": str(tmp_path / "notes.db"), "fault": "overwrites"}, **WITHOUT_KILLS)
    assert report.lost
    assert not report.is_clean


@pytest.mark.slow
async def test_what_a_memory_doubles_is_found(tmp_path):
    arguments = {"path": str(tmp_path / "notes.db"), "fault": "doubles"}
    report = await hammer(NOTEBOOK, arguments, updates=200, processes=2, kills=2)
    assert report.doubled or report.left
    assert not report.is_clean


class Stuck:
    """Answers nothing once a process asks it to write."""

    async def prefetch(self, scope):
        pass

    async def sync(self, scope, updates):
        if scope.turn_id != "begin":
            await asyncio.Event().wait()
        return SyncReport(outcomes=("applied",) * len(updates))


def stuck():
    return Stuck()


def children() -> set[str]:
    """Processes of ours that run."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def test_after_its_time_it_ends_all_that_it_started(tmp_path):
    before = children()
    with pytest.raises(TimeoutError):
        await hammer("tests.gateway.testing.test_hammer:stuck", {}, updates=10, processes=2, timeout_s=3)
    assert children() <= before


async def test_a_process_that_fails_is_an_error_and_ends_the_others(tmp_path):
    before = children()
    with pytest.raises(ExceptionGroup) as caught:
        await hammer("tests.gateway.testing.test_hammer:failing", {}, updates=10, processes=2, timeout_s=60)
    assert "ended with 1" in "".join(traceback.format_exception(caught.value))
    assert children() <= before


class Failing(Stuck):
    async def sync(self, scope, updates):
        if scope.turn_id != "begin":
            raise SystemExit(1)
        return SyncReport(outcomes=("applied",) * len(updates))


def failing():
    return Failing()


@pytest.mark.slow
def test_it_can_be_run_from_a_shell(tmp_path):
    arguments = json.dumps({"path": str(tmp_path / "notes.db")})
    command = ["-m", "gateway.testing.hammer", NOTEBOOK, arguments, "--updates", "40", "--processes", "2"]
    done = subprocess.run([sys.executable, *command, "--kills", "0"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("HammerReport(updates=4")
