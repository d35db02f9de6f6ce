"""A process that writes memory, and may be killed at a named step.

Arguments: the data directory, the database, the step, a count, and the turns.

It syncs each turn in order, and kills itself with SIGKILL when `step` comes for the `count`th time.
"""

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.database import Database
from gateway.store.memory_journal import SqliteMemoryJournal, insert_pending

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


async def main() -> None:
    root, path, step, count, *turns = sys.argv[1:]
    left = int(count)

    def kill_at(name: str) -> None:
        nonlocal left
        if name == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    database = Database(Path(path))
    provider = MarkdownFileMemoryProvider(
        Path(root), SqliteMemoryJournal(database), max_file_bytes=MAX_FILE_BYTES, on_step=kill_at
    )
    for turn in turns:
        scope, updates = turn_scope(turn), turn_updates(turn)
        # A turn is committed, with its updates, before they are applied.
        await database.write(lambda c, s=scope, u=updates: insert_pending(c, s, u, datetime.now(UTC)))
        await provider.sync(scope, updates)
    await provider.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
