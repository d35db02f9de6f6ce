"""A process of the hammer in `test_hammer.py`: several tasks that write two stores, and that may be killed at a step.

Arguments: the data directory, the database, its name, tasks, turns of each, the step and a count. Started again with
the same name, it asks for the same turns; what is done is not done twice.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.memory_journal import SqlMemoryJournal, insert_pending
from gateway.store.sqlite.engine import SqliteEngine

Turn = tuple[MemoryScope, list[MemoryUpdate]]


def scope(turn: str, personality: str = "shared") -> MemoryScope:
    """The scope of a turn."""
    return MemoryScope(personality_id=personality, user_id="u_1", session_id="hammer", turn_id=turn)


def turns_of(task: str, count: int) -> Iterator[Turn]:
    """What a task asks for, each time the same: both stores, corrections, and a document of its own to replace."""
    choose = random.Random(task)
    mine: list[str] = []
    for number in range(count):
        turn, line, kind = f"{task}-{number}", f"<{task}-{number}>", choose.random()
        if kind < 0.2 and mine:
            yield scope(turn), [MemoryUpdate.remove("memory", mine.pop(choose.randrange(len(mine))))]
        elif kind < 0.3 and mine:
            old = mine.pop(choose.randrange(len(mine)))
            yield scope(turn), [MemoryUpdate.remove("memory", old), MemoryUpdate.add("memory", line)]
            mine.append(line)
        elif kind < 0.35:
            yield scope(turn), [MemoryUpdate.add("memory", line), MemoryUpdate.remove("memory", line)]
        elif kind < 0.45:
            yield scope(turn, task), [MemoryUpdate.replace("memory", line)]
        elif kind < 0.6:
            yield scope(turn), [MemoryUpdate.add("user", line), MemoryUpdate.add("memory", line)]
            mine.append(line)
        else:
            yield scope(turn), [MemoryUpdate.add("memory", line)]
            mine.append(line)


async def main() -> None:
    root, path, name, tasks, turns, step, count = sys.argv[1:]
    left = int(count)

    def kill_at(reached: str) -> None:
        nonlocal left
        if reached == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    database = SqliteEngine(Path(path))
    provider = MarkdownFileMemoryProvider(Path(root), SqlMemoryJournal(database), lock_timeout_s=60, on_step=kill_at)

    async def write(task: str) -> None:
        for at, updates in turns_of(task, int(turns)):
            commit = partial(insert_pending, scope=at, updates=updates, at=datetime.now(UTC))
            await database.write(commit, is_durable=False)
            await provider.prefetch(at)  # as the next turn does
            await provider.sync(at, updates)

    async with asyncio.TaskGroup() as group:
        for number in range(int(tasks)):
            group.create_task(write(f"{name}t{number}"))
    await provider.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
