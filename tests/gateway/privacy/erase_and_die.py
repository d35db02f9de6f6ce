"""Begins to erase somebody, and is killed before a step.

::

    python -m tests.gateway.privacy.erase_and_die HOME USER STEP
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from gateway.ops.privacy.home import eraser_of, opened

STEPS = (
    "shared", "users", "traces", "chats", "copies", "database", "compact", "identities", "noted",
)  # fmt: skip


async def _begin(home: Path, user_id: str, last: str) -> None:
    def die(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async with opened(home) as store:
        eraser = replace(eraser_of(home, store), on_step=die)
        await eraser.erase(await eraser.bury(user_id))


if __name__ == "__main__":
    asyncio.run(_begin(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
