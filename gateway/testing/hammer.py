"""Many processes on one memory, killed again and again, with a person who edits beside them: what is lost or doubled?

::

    report = await hammer("my_package.tests:provider", {"url": url}, updates=10_000)
    assert report.is_clean, report

`provider(**arguments)` gives an asynchronous context manager of the memory. Each process writes turns that can be worked
out again; one that is killed is started anew and asks again for its last turn, as the gateway's journal does.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.errors import FileError, MemoryUnavailable
from gateway.protocols import MemoryContext, MemoryProvider, MemoryScope, MemoryUpdate

PERSONALITY, USER = "shared", "u_1"
Edit = Callable[[str], Awaitable[None]]
"""Adds a line to the document `personalities/shared/MEMORY.md`, past the provider, as a person would."""
_AGAIN_S = 0.05
_BETWEEN_KILLS_S = (0.2, 2.0)
_BETWEEN_EDITS_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class HammerReport:
    """What was done and what was found.

    Attributes:
        lost: lines that were written and are not there.
        doubled: lines that are there more than once.
        left: lines that were taken out and are there.
    """

    updates: int
    seconds: float
    kills: int
    edits: int
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled or left."""
        return not (self.lost or self.doubled or self.left)


def scope(turn: str) -> MemoryScope:
    """Of a turn; all write the same two documents."""
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


async def hammer(
    factory: str,
    arguments: Mapping[str, Any],
    *,
    updates: int = 10_000,
    processes: int = 8,
    has_kills: bool = True,
    edit: Edit | None = None,
    between_edits_s: float = _BETWEEN_EDITS_S,
) -> HammerReport:
    """Run the processes to their end, and compare.

    Args:
        factory: `module:function`, which every process calls with the arguments.
        arguments: as JSON can hold them.
        updates: of all processes together.
        processes: at once.
        has_kills: whether they are killed meanwhile, at any moment.
        edit: by hand, now and then.
        between_edits_s: so long.
    """
    begun = time.monotonic()
    share = updates // processes
    edited: list[str] = []
    kills = 0

    async def write(directory: Path, number: int) -> None:
        nonlocal kills
        command = [factory, json.dumps(arguments), f"w{number}", str(share), str(directory / f"w{number}")]
        choose = random.Random(number)  # noqa: S311 (as above)
        while True:
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, *command, stdout=PIPE)
            try:
                assert process.stdout is not None
                await process.stdout.readline()  # it writes from now on
                await asyncio.wait_for(process.wait(), choose.uniform(*_BETWEEN_KILLS_S) if has_kills else None)
            except TimeoutError:
                process.kill()
                await process.wait()
                kills += 1
                continue
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
            if process.returncode != 0:
                raise RuntimeError(f"a process of the hammer ended with {process.returncode}")
            return

    async def edit_by_hand() -> None:
        while edit is not None:
            await asyncio.sleep(between_edits_s)
            line = f"<hand-{len(edited)}>"
            await edit(line)
            edited.append(line)

    with tempfile.TemporaryDirectory() as directory:
        editing = asyncio.create_task(edit_by_hand())
        async with asyncio.TaskGroup() as group:
            for number in range(processes):
                group.create_task(write(Path(directory), number))
        editing.cancel()
        await asyncio.gather(editing, return_exceptions=True)
    async with _made(factory, arguments) as provider:
        found = await provider.prefetch(scope("look"))
    return _compared(found, processes, share, edited, seconds=time.monotonic() - begun, kills=kills)


def _compared(
    found: MemoryContext | None, processes: int, share: int, edited: list[str], *, seconds: float, kills: int
) -> HammerReport:
    there = {"memory": Counter(), "user": Counter()} if found is None else {
        "memory": Counter((found.project_memory or "").split("\n")),
        "user": Counter((found.user_memory or "").split("\n")),
    }  # fmt: skip
    wanted: dict[str, set[str]] = {"memory": set(edited), "user": set()}
    gone: set[str] = set()
    count = 0
    for number in range(processes):
        for _, updates in turns_of(f"w{number}", share):
            for update in updates:
                count += 1
                if update.action == "add":
                    wanted[update.store].add(update.content)
                else:
                    wanted[update.store].discard(update.content)
                    gone.add(update.content)
    return HammerReport(
        updates=count,
        seconds=seconds,
        kills=kills,
        edits=len(edited),
        lost=sorted(f"{store} {line}" for store, lines in wanted.items() for line in lines if not there[store][line]),
        doubled=sorted(
            f"{store} {line}" for store, lines in wanted.items() for line in lines if there[store][line] > 1
        ),
        left=sorted(line for line in gone if there["memory"][line]),
    )


@asynccontextmanager
async def _made(factory: str, arguments: Mapping[str, Any]) -> AsyncGenerator[MemoryProvider]:
    module, _, name = factory.partition(":")
    make: Callable[..., AbstractAsyncContextManager[MemoryProvider]] = getattr(importlib.import_module(module), name)
    async with make(**arguments) as provider:
        yield provider


async def _write(factory: str, arguments: str, writer: str, updates: str, progress: str) -> None:
    """One process: go on after the last turn that was noted as done; the one after it is perhaps done, too."""
    place = Path(progress)
    done = int(place.read_text() or 0) if place.exists() else 0
    async with _made(factory, json.loads(arguments)) as provider:
        print("begun", flush=True)
        for number, (at, wanted) in enumerate(turns_of(writer, int(updates)), 1):
            if number <= done:
                continue
            while True:
                with suppress(FileError, MemoryUnavailable):
                    await provider.prefetch(at)
                    await provider.sync(at, wanted)
                    break
                await asyncio.sleep(_AGAIN_S)
            new = place.with_suffix(".new")
            new.write_text(str(number))
            new.replace(place)


if __name__ == "__main__":
    asyncio.run(_write(*sys.argv[1:]))
