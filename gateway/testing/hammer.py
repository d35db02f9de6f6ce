"""Many processes on one memory, killed again and again, with a person who edits beside them: what is lost or doubled?

::

    report = await hammer("my_package.tests:provider", {"url": url})
    assert report.is_clean, report

From a shell: `python -m gateway.testing.hammer my_package.tests:provider '{"url": "…"}' --updates 10000`.

`provider(**arguments)` gives the memory, or an asynchronous context manager of it. Each process writes turns that can
be worked out again. One that is killed is started again, and repeats its last turns, as the gateway's journal does.
Meanwhile a person edits the same documents: by `EditableMemory.write`, where the memory has it, and past it by `edit`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gateway.errors import FileError, MemoryConflict, MemoryUnavailable
from gateway.protocols import EditableMemory, MemoryProvider, MemoryStoreName, MemoryUpdate
from gateway.testing import hammer_process
from gateway.testing.hammer_process import Task, made, scope, turns_of
from gateway.testing.opening import opened

Edit = Callable[[str], Awaitable[None]]
"""Adds a line to the document `personalities/shared/MEMORY.md` past the provider, as a person would."""
Look = Callable[[MemoryProvider], Awaitable[Mapping[MemoryStoreName, str]]]
"""All that the memory holds of the scope, by its store."""
ANYWHERE = "anywhere"
_STORES: tuple[MemoryStoreName, ...] = ("memory", "user")
_LINE = re.compile(r"<[a-z]+\d*-\d+>")
_REMOVED_EDITS = 4  # of so many edits by `write`, one takes a line out


@dataclass(frozen=True, slots=True, kw_only=True)
class HammerReport:
    """What was done and what was found.

    Attributes:
        kills: how often a process was killed at which step, and `anywhere`.
        edits: lines that were brought in by hand.
        lost: lines that were written and are not there.
        doubled: lines that are there more than once.
        left: lines that were taken out, or never written, and are there.
    """

    updates: int
    seconds: float
    kills: Mapping[str, int]
    edits: int
    lost: Sequence[str] = ()
    doubled: Sequence[str] = ()
    left: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled or left."""
        return not (self.lost or self.doubled or self.left)


@dataclass(slots=True)
class _Expected:
    """The lines that must be there once, by store, and what was done to bring them in."""

    lines: dict[MemoryStoreName, set[str]] = field(default_factory=lambda: {store: set() for store in _STORES})
    updates: int = 0
    edits: int = 0

    def take(self, updates: Sequence[MemoryUpdate]) -> None:
        self.updates += len(updates)
        for update in updates:
            lines = self.lines[update.store]
            (lines.add if update.action == "add" else lines.discard)(update.content)


async def hammer(
    factory: str,
    arguments: Mapping[str, Any],
    *,
    updates: int = 10_000,
    processes: int = 8,
    kills: int = 3,
    steps: Sequence[str] = (),
    edit: Edit | None = None,
    between_edits_s: float = 0.2,
    look: Look | None = None,
    timeout_s: float = 1800,
) -> HammerReport:
    """Run the processes to their end, and compare.

    Args:
        factory: `module:function`, which every process calls with the arguments.
        arguments: as JSON can hold them.
        updates: of all processes together.
        processes: at once.
        kills: of each process.
        steps: failpoints of the memory, at which every second kill comes; else any moment will do.
        edit: by hand, past the memory, now and then.
        between_edits_s: so long.
        look: reads the result; by default that is `read`, or `prefetch` where the memory has no `read`.
        timeout_s: of all of it; then whatever still runs is ended.

    Raises:
        TimeoutError: it was not done in time.
        RuntimeError: a process failed, or never came to its step.
    """
    begun, killed = time.monotonic(), Counter[str]()
    share = updates // processes
    expected = _of_all(processes, share)
    with tempfile.TemporaryDirectory() as directory:
        tasks = [_task(factory, arguments, Path(directory), f"w{number}", share) for number in range(processes)]
        async with asyncio.timeout(timeout_s), opened(made(factory, arguments)) as provider:
            await provider.sync(scope("begin"), [MemoryUpdate.add(store, "<begin-0>") for store in _STORES])
            person = _Person(provider, edit, expected, between_edits_s)
            async with asyncio.TaskGroup() as group:
                editing = group.create_task(person.edit_until_stopped())
                async with asyncio.TaskGroup() as writing:
                    for number, task in enumerate(tasks):
                        writing.create_task(_keep_running(task, _plan(number, processes, kills, steps), killed))
                person.is_stopped.set()
                await editing
            await provider.sync(scope("end"), [MemoryUpdate.add(store, "<end-0>") for store in _STORES])
            texts = await (look or _look)(provider)
    return _compared(texts, expected, seconds=time.monotonic() - begun, kills=dict(killed))


def _of_all(processes: int, share: int) -> _Expected:
    """What all processes write, with the first lines and the last ones."""
    expected = _Expected()
    for number in range(processes):
        for _, wanted in turns_of(f"w{number}", share):
            expected.take(wanted)
    for store in _STORES:
        expected.lines[store] |= {"<begin-0>", "<end-0>"}
    return expected


def _task(factory: str, arguments: Mapping[str, Any], directory: Path, writer: str, updates: int) -> Task:
    return Task(factory=factory, arguments=arguments, writer=writer, updates=updates, progress=str(directory / writer))


# ---- processes ------------------------------------------------------------------------------------------------------


def _plan(number: int, processes: int, kills: int, steps: Sequence[str]) -> list[str | None]:
    """Where a process is killed, one time after the other: each step comes in turn, None is anywhere."""
    return [
        steps[(number + kill // 2 * processes) % len(steps)] if steps and kill % 2 == 0 else None
        for kill in range(kills)
    ]


async def _keep_running(task: Task, plan: Sequence[str | None], killed: Counter[str]) -> None:
    """Start the process, and again after each kill, until it comes to its end."""
    choose = random.Random(task.writer)  # noqa: S311 (chance that can be repeated)
    turns = sum(1 for _ in turns_of(task.writer, task.updates))
    for number, step in enumerate(plan, 1):
        kill_at = turns * number // (len(plan) + 1)
        async with _started({**asdict(task), "kill_at": kill_at, "step": step}) as process:
            assert process.stdout is not None
            turn_s = float(await process.stdout.readline() or b"0")
            if step is None:
                await asyncio.sleep(choose.uniform(0, 2 * turn_s))
                _kill(process)
            code = await process.wait()
            if code == 0 and step is None:  # it was faster than the kill
                return
            if code == 0:
                raise RuntimeError(f"no process of the hammer came to the step {step}")
            if code > 0:
                raise RuntimeError(f"a process of the hammer ended with {code}")
            killed[step or ANYWHERE] += 1
    async with _started(asdict(task)) as process:
        if await process.wait():
            raise RuntimeError(f"a process of the hammer ended with {process.returncode}")


@asynccontextmanager
async def _started(task: Mapping[str, Any]) -> AsyncGenerator[Process]:
    """A process, which is ended at the latest when it is left."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    command = [sys.executable, "-m", hammer_process.__name__, json.dumps(task)]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=environment)
    try:
        yield process
    finally:
        _kill(process)
        await process.wait()


def _kill(process: Process) -> None:
    """Not `process.kill`, which may take the exit status away from the event loop."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


# ---- the person -----------------------------------------------------------------------------------------------------


class _Person:
    """Edits the same documents, by turns with the memory's own `write` and past it."""

    def __init__(self, provider: MemoryProvider, edit: Edit | None, expected: _Expected, between_s: float) -> None:
        self.is_stopped = asyncio.Event()
        self._provider = provider
        self._edit = edit
        self._expected = expected
        self._between_s = between_s
        self._written: list[tuple[MemoryStoreName, str]] = []

    async def edit_until_stopped(self) -> None:
        """An edit that was begun is brought to its end."""
        number = 0
        while not self.is_stopped.is_set() and (self._edit or isinstance(self._provider, EditableMemory)):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.is_stopped.wait(), self._between_s)
            line, store = f"<hand-{number}>", _STORES[number // 2 % 2]
            if self._edit and (number % 2 == 0 or not isinstance(self._provider, EditableMemory)):
                await self._edit(line)
                self._expected.lines["memory"].add(line)
            elif isinstance(self._provider, EditableMemory):
                await self._write(self._provider, store, line)
            self._expected.edits += 1
            number += 1

    async def _write(self, provider: EditableMemory, store: MemoryStoreName, line: str) -> None:
        """A new line, or one less."""
        if len(self._written) % _REMOVED_EDITS == _REMOVED_EDITS - 1:
            store, gone = self._written.pop(0)
            await self._save(provider, store, lambda text: text.replace(f"{gone}\n", ""))
            self._expected.lines[store].discard(gone)
        await self._save(provider, store, lambda text: text if line in text else f"{line}\n{text}")
        self._written.append((store, line))
        self._expected.lines[store].add(line)

    async def _save(self, provider: EditableMemory, store: MemoryStoreName, change: Callable[[str], str]) -> None:
        """As people do: what was changed meanwhile is read again."""
        while True:
            with suppress(MemoryConflict, MemoryUnavailable, FileError):
                document = await provider.read(scope("hand"), store)
                wanted = change(document.content)
                if wanted != document.content:
                    await provider.write(scope("hand"), store, wanted, document.version)
                return


# ---- what is there --------------------------------------------------------------------------------------------------


async def _look(provider: MemoryProvider) -> Mapping[MemoryStoreName, str]:
    context = await provider.prefetch(scope("look"))  # which takes in what was edited a moment ago
    if isinstance(provider, EditableMemory):
        return {store: (await provider.read(scope("look"), store)).content for store in _STORES}
    assert context is not None
    return {"memory": context.project_memory or "", "user": context.user_memory or ""}


def _compared(
    texts: Mapping[MemoryStoreName, str], expected: _Expected, *, seconds: float, kills: Mapping[str, int]
) -> HammerReport:
    lost, doubled, left = list[str](), list[str](), list[str]()
    for store, wanted in expected.lines.items():
        there = Counter(_LINE.findall(texts[store]))
        lost += sorted(f"{store} {line}" for line in wanted - there.keys())
        doubled += sorted(f"{store} {line}" for line, count in there.items() if count > 1)
        left += sorted(f"{store} {line}" for line in there.keys() - wanted)
    return HammerReport(
        updates=expected.updates,
        seconds=seconds,
        kills=kills,
        edits=expected.edits,
        lost=lost,
        doubled=doubled,
        left=left,
    )


def main() -> int:
    """From a shell; the exit code is 0 only if nothing was lost, doubled or left."""
    parser = argparse.ArgumentParser(prog="python -m gateway.testing.hammer", description=__doc__)
    parser.add_argument("factory", help="module:function, which gives the memory")
    parser.add_argument("arguments", nargs="?", default="{}", help="for the function, as JSON")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--kills", type=int, default=3, help="of each process")
    parser.add_argument("--step", action="append", default=[], help="a failpoint to kill at; may be repeated")
    options = parser.parse_args()
    report = asyncio.run(
        hammer(
            options.factory,
            json.loads(options.arguments),
            updates=options.updates,
            processes=options.processes,
            kills=options.kills,
            steps=options.step,
        )
    )
    print(report)
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
