"""Processes that write into the memory of the kind `traces` at once, and that are killed at any statement."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gateway.protocols import MemoryUpdate
from gateway.testing.memory import scope
from gateway.traces.trace_store import TRACES_NAME
from tests.gateway.memory.traces.writing_process import UPDATES, provider

ROOT = Path(__file__).parents[4]
DOCUMENT = "personalities/assistant/MEMORY.md"
_LINES = """
    SELECT content FROM traces JOIN owners ON owners.number = owner
    WHERE kind = 'document' AND owners.id = ? ORDER BY traces.position
"""


async def run(*arguments: str | Path | int) -> int:
    """A process of `writing_process`; how it ended."""
    command = [sys.executable, "-m", "tests.gateway.memory.traces.writing_process", *map(str, arguments)]
    return await (await asyncio.create_subprocess_exec(*command, cwd=ROOT)).wait()


def indexed(path: Path, key: str) -> list[str]:
    """The document's lines as its traces say them, in a file that is whole."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
        return [row[0] for row in connection.execute(_LINES, (key,))]


def lines_of(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]


@pytest.mark.slow
async def test_a_write_that_is_killed_before_any_of_its_statements_is_made_once(tmp_path: Path) -> None:
    before, after = "First.\nIt is wrong.\nLast.\n", "First.\nLast.\n\nIt is right.\nAnd it has two lines.\n"
    template = tmp_path / TRACES_NAME
    async with provider(str(template)) as memory:
        await memory.sync(scope("before"), [MemoryUpdate.add("memory", before)])

    async def killed_before(statement: int) -> bool:
        """Whether the process had as many statements to make."""
        path = tmp_path / str(statement) / TRACES_NAME
        path.parent.mkdir()
        shutil.copy(template, path)
        ended = await run(path, "t", 1, statement)
        assert ended in (0, -signal.SIGKILL)
        async with provider(str(path)) as memory:
            found = (await memory.read(scope("x"), "memory")).content
            assert found == (after if ended == 0 else before)
            assert indexed(path, DOCUMENT) == lines_of(found)
            outcomes = (await memory.sync(scope("t"), UPDATES)).outcomes
            assert outcomes == (("replayed",) * 2 if ended == 0 else ("applied",) * 2)
            assert (await memory.read(scope("x"), "memory")).content == after
            assert len(await memory.log(scope("x"))) == 3
        assert indexed(path, DOCUMENT) == lines_of(after)
        return ended != 0

    were_killed = [await killed_before(1)]
    while were_killed[-1]:
        first = len(were_killed) + 1
        were_killed += await asyncio.gather(*(killed_before(first + more) for more in range(3)))
    assert were_killed.count(True) > 12


@pytest.mark.slow
async def test_four_processes_at_once_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / TRACES_NAME
    async with provider(str(path)) as memory:
        await memory.sync(scope("first"), [MemoryUpdate.add("memory", "first")])
    assert await asyncio.gather(*(run(path, f"w{number}", 25) for number in range(4))) == [0] * 4
    async with provider(str(path)) as memory:
        text = (await memory.read(scope("x"), "memory")).content
    assert sorted(lines_of(text)) == sorted(["first", *(f"<w{one}-{turn}>" for one in range(4) for turn in range(25))])
    assert indexed(path, DOCUMENT) == lines_of(text)
