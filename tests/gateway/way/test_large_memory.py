"""A MEMORY.md of the greatest size: the prompt has what the message needs, and nobody waits for it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.memory.markdown import MAX_FILE_BYTES
from gateway.ops.backup.taking import take_backup
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_traces import Worker, prompt_of, using
from tests.loop_watchdog import LIMIT_S, shortest_of

NEEDED = "The boiler's serial number is 4471-K."
WORDS = [f"{first}{last}" for first in ("bo", "ka", "mi", "ro", "tu", "ze") for last in ("lan", "mer", "nis", "pod")]


def write_memory(home: Path) -> Path:
    """A diary of half a megabyte; what is needed stands near its beginning."""
    path = home / "personalities" / "assistant" / "MEMORY.md"
    path.parent.mkdir(parents=True, mode=0o700)
    choose = random.Random(1)
    parts = ["# Diary", NEEDED]
    size = 0
    while size < MAX_FILE_BYTES - 20_000:
        parts.append(f"Day {len(parts)}: {' '.join(choose.choices(WORDS, k=40))}.")
        size += len(parts[-1]) + 2
    path.write_text("\n\n".join(parts) + "\n")
    return path


async def test_what_a_message_needs_of_a_long_memory_is_in_every_prompt(house: House) -> None:
    write_memory(house.home)
    model = Worker()
    async with house.gateway(model) as (gateway, channel):
        assert gateway.trace_store is None
        await channel.answers_to(await channel.say("What is the serial number of our boiler?"))
        await settled(gateway)
    prompt = prompt_of(model)
    assert NEEDED in prompt
    assert "# Diary" in prompt
    assert prompt.count("[...truncated]") >= 1
    assert len(prompt) < 25_000


async def test_who_wants_the_newest_alone_gets_it(house: House) -> None:
    write_memory(house.home)
    model = Worker()
    async with house.gateway(model, memory={"traces": {"recall": "tail"}}) as (gateway, channel):
        await channel.answers_to(await channel.say("What is the serial number of our boiler?"))
        await settled(gateway)
    assert NEEDED not in prompt_of(model)


async def ask(gateway: Gateway, channel: FakeChannel) -> None:
    await channel.answers_to(await channel.say("What is the serial number of our boiler?"))
    await settled(gateway)


async def test_a_turn_with_a_large_memory_that_it_changes_and_that_was_edited_keeps_nobody_waiting(
    house: House,
) -> None:
    path = write_memory(house.home)
    updates = [using("update_memory", action="add", store="memory", content=f"Fact {number}.") for number in range(8)]
    answers = [each for update in updates for each in (update, "Noted.")]
    async with house.gateway(Worker(*answers)) as (gateway, channel):
        await ask(gateway, channel)

        async def edit_and_ask() -> None:
            path.write_text(path.read_text() + "\nBy hand.\n")
            await ask(gateway, channel)

        watch = await shortest_of(edit_and_ask)
    assert watch.longest_cpu_s < LIMIT_S, watch.report


@pytest.mark.slow
@pytest.mark.parametrize("work", ["backup", "export"])
async def test_a_copy_of_a_large_memory_keeps_nobody_waiting(house: House, tmp_path: Path, work: str) -> None:
    write_memory(house.home)
    async with house.gateway() as (gateway, channel):
        await ask(gateway, channel)
        made: list[Path] = []

        async def copy() -> None:
            made.append(tmp_path / f"copy-{len(made)}")
            if work == "backup":
                await take_backup(house.home, made[-1])
                return
            await channel.answers_to(await channel.say("/export"))
            await settled(gateway)

        watch = await shortest_of(copy)
    assert watch.longest_cpu_s < LIMIT_S, watch.report
