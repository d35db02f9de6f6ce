"""A process of the hammer. It writes its turns in order, and goes on after the last one that it has noted as done.

It is given a `Task` as JSON. It answers with one line when it has come to the turn at which it is to be killed.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.errors import FileError, MemoryUnavailable, StoreError
from gateway.protocols import MemoryProvider, MemoryScope, MemoryUpdate
from gateway.runtime import failpoints
from gateway.testing.opening import opened

PERSONALITY, USER = "shared", "u_1"
# So many turns before the last one that was noted come again after a kill, as from a journal that is behind.
REPEATED = 3
_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one process is to do.

    Attributes:
        factory, arguments: of the memory; see `hammer`.
        writer: its name; the same name asks for the same turns.
        updates: so many.
        progress: the file that says which turn was done last.
        kill_at: the turn at which it is killed, None for never.
        step: the failpoint at which it kills itself then; None where that is done from outside.
    """

    factory: str
    arguments: Mapping[str, Any]
    writer: str
    updates: int
    progress: str
    kill_at: int | None = None
    step: str | None = None


def scope(turn: str) -> MemoryScope:
    """Of a turn; all processes write the same two documents."""
    return MemoryScope(personality_id=PERSONALITY, user_id=USER, session_id="hammer", turn_id=turn)


def turns_of(writer: str, updates: int) -> Iterator[tuple[MemoryScope, list[MemoryUpdate]]]:
    """What a process asks for, each time the same: both stores, corrections, and lines that are taken out again."""
    choose = random.Random(writer)  # noqa: S311 (chance that can be repeated)
    mine: list[str] = []
    done = number = 0
    while done < updates:
        line, kind = f"<{writer}-{number}>", choose.random()
        if kind < 0.2 and mine:
            wanted = [MemoryUpdate.remove("memory", mine.pop(choose.randrange(len(mine))))]
        elif kind < 0.3 and mine:
            wanted = [MemoryUpdate.remove("memory", mine.pop()), MemoryUpdate.add("memory", line)]
            mine.append(line)
        elif kind < 0.5:
            wanted = [MemoryUpdate.add("user", line), MemoryUpdate.add("memory", line)]
            mine.append(line)
        else:
            wanted = [MemoryUpdate.add("memory", line)]
            mine.append(line)
        yield scope(f"{writer}-{number}"), wanted
        done += len(wanted)
        number += 1


def made(factory: str, arguments: Mapping[str, Any]) -> Any:
    """What the factory gives; see `opened`."""
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)(**arguments)


async def work(task: Task) -> None:
    """Do it to its end, or until killed."""
    progress = Path(task.progress)
    done = int(progress.read_text() or 0) if progress.exists() else 0
    begun, first = time.monotonic(), max(0, done - REPEATED)
    is_announced = False
    async with opened(made(task.factory, task.arguments)) as provider:
        for number, (at, wanted) in enumerate(turns_of(task.writer, task.updates)):
            if number < first:
                continue
            if task.kill_at is not None and number >= max(task.kill_at, done) and not is_announced:
                is_announced = True
                if task.step is not None:
                    failpoints.arm(f"kill {task.step} 1")
                print((time.monotonic() - begun) / (number - first + 1), flush=True)
            await _write(provider, at, wanted)
            if number >= done:
                _note(progress, number + 1)
        if is_announced and task.step is None:
            await asyncio.Event().wait()  # the kill comes


async def _write(provider: MemoryProvider, at: MemoryScope, wanted: list[MemoryUpdate]) -> None:
    """One turn, as often as it takes."""
    while True:
        with suppress(FileError, MemoryUnavailable, StoreError):
            await provider.prefetch(at)
            await provider.sync(at, wanted)
            return
        await asyncio.sleep(_AGAIN_S)


def _note(progress: Path, number: int) -> None:
    new = progress.with_suffix(".new")
    new.write_text(str(number))
    new.replace(progress)


if __name__ == "__main__":
    asyncio.run(work(Task(**json.loads(sys.argv[1]))))
