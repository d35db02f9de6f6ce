"""Begins to erase somebody, and is killed before a step; in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

from gateway.ops.privacy.home import eraser_of, opened

STEPS = (
    "files", "memory", "traces", "chats", "copies", "database", "compact", "identities", "noted",
)  # fmt: skip


def begin(home: Path, user_id: str, last: str) -> None:
    asyncio.run(_begin(home, user_id, last))


async def _begin(home: Path, user_id: str, last: str) -> None:
    def die(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async with opened(home) as store:
        eraser = replace(eraser_of(home, store), on_step=die)
        await eraser.erase(await eraser.schedule(user_id))
