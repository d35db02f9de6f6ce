"""A process that does something with a memory, and kills itself when it comes to a failpoint for so many times."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from typing import Any

from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.runtime import failpoints
from tests import forks
from tests.memories import memory

DOCUMENT = "personalities/shared/MEMORY.md"
LINK, SURVIVOR, ABSORBED = "link1", "u_1", "u_2"
Turn = tuple[str, str]
TURNS: Sequence[Turn] = [(f"t{number}", ("u_1", "u_2")[number % 3 // 2]) for number in range(6)]


def scope_of(turn: str, user: str = SURVIVOR) -> MemoryScope:
    """The scope of a turn."""
    return MemoryScope(personality_id="shared", user_id=user, session_id="s", turn_id=turn)


def updates_of(turn: str) -> list[MemoryUpdate]:
    """Adds to both stores, and takes out a line that an earlier turn may have left."""
    return [
        MemoryUpdate.add("memory", f"fact {turn}."),
        MemoryUpdate.remove("memory", "old line"),
        MemoryUpdate.add("user", f"trait {turn}."),
    ]


async def do(provider: Any, work: str) -> None:
    """The work of a process: it may be done again, from its beginning."""
    if work == "sync":
        for turn, user in TURNS:
            await provider.sync(scope_of(turn, user), updates_of(turn))
    elif work == "note":
        await provider.sync(scope_of("note"), [MemoryUpdate.add("memory", "Noted.")])
    elif work == "unite":
        await provider.unite(LINK, SURVIVOR, ABSORBED)
    elif work == "part":
        await provider.part(LINK, SURVIVOR, ABSORBED, [SURVIVOR])
    elif work == "look":
        for _ in range(100):  # until the server answers in time
            await provider.prefetch(scope_of("look"))
            await asyncio.sleep(0.1)
    elif work == "erase":
        await provider.erase([SURVIVOR], {DOCUMENT: [f"fact {turn}." for turn, user in TURNS if user == SURVIVOR]})
    if hasattr(provider, "settle"):  # what is sent to a server in the background
        await provider.settle()


def started(arguments: Mapping[str, Any], work: str, step: str, count: int) -> ForkServerProcess:
    """The process."""
    return forks.start(_main, dict(arguments), work, step, count)


def _main(arguments: Mapping[str, Any], work: str, step: str, count: int) -> None:
    asyncio.run(_work(arguments, work, step, count))


async def _work(arguments: Mapping[str, Any], work: str, step: str, count: int) -> None:
    async with memory(**arguments) as provider:
        failpoints.arm(f"kill {step} {count}")
        await do(provider, work)
