"""Every failpoint is where its name says, each is really come to, and what kills and what does not is told apart."""

from __future__ import annotations

import ast
import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.runtime import failpoints
from tests.faults.platform import WirePlatform
from tests.faults.process import ROOT, Nursery
from tests.faults.stream import Fault, Stream
from tests.faults.traffic import Traffic, tokens

# Given with their step by the memory, whose steps `app.py` passes on.
STEPS = {name for name in failpoints.POINTS if name.startswith("memory.")}


def reached_in_the_code() -> list[str]:
    """The names in all calls of `reach` and, for the memory, of `_step`."""
    names = []
    for path in (ROOT / "gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
                continue
            if isinstance(node.func, ast.Name) and node.func.id == "reach":
                names.append(node.args[0].value)
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "_step":
                names.append(f"memory.{node.args[0].value}")
    return names


def test_the_list_and_the_code_name_the_same_points_each_in_one_place() -> None:
    named = [*failpoints.ALL]
    of_each_engine = ["database.committing", "database.committed", "schema.committing"]
    assert sorted(reached_in_the_code()) == sorted([*named, *of_each_engine])


@pytest.mark.slow
async def test_a_gateway_that_is_used_and_stopped_comes_to_every_point(tmp_path: Path) -> None:
    """`make faults` kills at each; this shows quickly that none of them is a dead letter."""
    noted = tmp_path / "noted"
    noted.touch()
    platform = WirePlatform("plain")
    async with Nursery() as nursery:
        stream = Stream(Fault("turn.released"), platform, nursery, seed="points", kills=0)
        await platform.start(stream._directory)
        stream._furnish()
        traffic, numbers = Traffic(), random.Random(1)
        for _ in range(10):  # a turn is cut short by a stop only if it runs at that moment
            serving = await nursery.start(stream._home, failpoint=f"note {noted}")
            for _ in range(60):
                said = traffic.write(numbers)
                await platform.say_as(said.person, said.text)
            async with asyncio.timeout(60):
                while len({token for _, text in platform.shown() for token in tokens(text)}) < len(traffic.said):
                    await platform.changed()
            for person in range(1, 9):
                await platform.say_as(person, "echo: " + "and on it goes " * 6000)
            serving.signal(signal.SIGTERM)
            assert await serving.ended(60) == 0
            if set(noted.read_text().split()) >= set(failpoints.POINTS):
                break
        await platform.close()
    assert set(failpoints.POINTS) - set(noted.read_text().split()) == set()


async def test_the_driver_sees_a_lost_answer_a_doubled_memory_and_a_fault_of_ours() -> None:
    """The comparison itself can fail: what it is shown here is not what was sent."""
    platform = WirePlatform("plain")
    async with Nursery() as nursery:
        stream = Stream(Fault("outbox.recorded"), platform, nursery, seed="lies", kills=1)
        original = stream._last_life

        async def last_life() -> None:
            await original()
            # An answer may name several messages; these two name one each.
            alone = [shown for shown in platform._shown if len(tokens(shown[2])) == 1]
            lost = alone[0][2]
            again = next(shown for shown in reversed(alone) if tokens(shown[2]) != tokens(lost))
            for at, (sent_id, person, text) in enumerate(platform._shown):  # in place: kills are noted by their place
                if tokens(text) == tokens(lost):
                    platform._shown[at] = (sent_id, person, "")
            platform._shown.append(("again", *again[1:]))
            memory = stream._home / "personalities" / "assistant" / "MEMORY.md"
            memory.write_text(memory.read_text() + "kept line\n")
            (stream._home.parent / "home.log").write_text('{"event": "queue_fault", "exception": "KeyError: 1"}\n')

        stream._last_life = last_life  # type: ignore[method-assign]
        tally = await stream.run()
    assert (tally.lost, tally.duplicated, tally.doubled, tally.problems) == (1, 1, 1, ["queue_fault: KeyError: 1"])
    assert not tally.is_clean


@pytest.mark.parametrize("setting", ["kill", "kill nowhere", "kill inbox.committed x", "note", "no such word"])
def test_a_setting_that_is_not_understood_is_refused_at_the_start_with_what_was_expected(setting: str) -> None:
    with pytest.raises(ValueError, match=r"ETHOS_FAILPOINTS.*expected"):
        failpoints.arm(setting)
    assert failpoints._act is None


def test_the_environment_variable_switches_a_point_on_in_the_real_command(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("web: {port: 0}\n")
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"],
        env={"ETHOS_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), failpoints.VARIABLE: "kill start.recovered"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert "killed at the failpoint start.recovered, as ETHOS_FAILPOINTS says" in done.stderr


def test_switched_off_again_nothing_happens() -> None:
    failpoints.arm("kill inbox.committed 1")
    failpoints.arm("")
    failpoints.reach("inbox.committed")
