"""A process that writes memory, and may be killed at a named step.

It syncs each turn in order, and kills itself with SIGKILL when `step` comes for the `count`th time.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.memory_journal import SqlMemoryJournal, insert_pending
from gateway.store.sqlite.engine import SqliteEngine
from tests import forks

MAX_FILE_BYTES = 40


def turn_updates(turn: str) -> list[MemoryUpdate]:
    """What a turn of the tests does: add, take something out that another turn may have left, and both stores."""
    return [
        MemoryUpdate.add("memory", f"fact {turn}."),
        MemoryUpdate.remove("memory", "old line"),
        MemoryUpdate.add("user", f"trait {turn}."),
    ]


def turn_scope(turn: str) -> MemoryScope:
    """Its scope."""
    return MemoryScope(personality_id="assistant", user_id="u_1", session_id="s", turn_id=turn)


def started(root: Path, database: Path, step: str, count: int, turns: Sequence[str]) -> ForkServerProcess:
    """The process."""
    return forks.start(_main, root, database, step, count, turns)


def _main(root: Path, database: Path, step: str, count: int, turns: Sequence[str]) -> None:
    asyncio.run(_write(root, database, step, count, turns))


async def _write(root: Path, path: Path, step: str, left: int, turns: Sequence[str]) -> None:

    def kill_at(name: str) -> None:
        nonlocal left
        if name == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    database = SqliteEngine(path)
    provider = MarkdownFileMemoryProvider(
        root, SqlMemoryJournal(database), max_file_bytes=MAX_FILE_BYTES, on_step=kill_at
    )
    for turn in turns:
        scope, updates = turn_scope(turn), turn_updates(turn)
        # A turn is committed, with its updates, before they are applied.
        await database.write(lambda c, s=scope, u=updates: insert_pending(c, s, u, datetime.now(UTC)))
        await provider.sync(scope, updates)
    await provider.close()
    await database.close()
