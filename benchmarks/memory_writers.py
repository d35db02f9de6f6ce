"""Torture for the memory files: many processes with many tasks and a person's editor, on the same documents.

    python -m benchmarks.memory_writers [--updates 10000] [--processes 1 2 8] [--tasks 16] [--slower-ms 1 4]

Every task adds lines of its own to a shared `MEMORY.md`, removes some of them again, replaces the text of a second
`MEMORY.md`, adds to a `USER.md`, and now and then repeats a turn that it has done. Meanwhile an editor that knows no
locks saves lines of its own into the shared file, by turns in place and by rename. In the end every line that was
added and not removed must be there once, none that was removed, each of the editor's lines once, and the history of
the replaced document must be one unbroken chain with every replacement in it. Anything else counts as lost or doubled,
and the exit code is 1.

The rate is compared to the bare cost of one durable replacement (write, fsync, rename, directory fsync) of a file of
the same size, measured before and after in the same run. Updates that wait for one file share a write, so the rate can
be above it; the row with one task shows what one update alone costs.

How much sharing saves depends on what an fsync costs. Behind a cache that survives a power cut it is a fraction of a
millisecond, and the processor counts; on most disks it is 1 to 10 ms. So one process is measured again with each fsync
made slower, ours and the bare ones alike, by a pause in `os.fsync`. SQLite's own fsyncs stay as they are; the journal
of the memory asks for one in about 64 writes. The processor's time of all writers for each update stands beside it.
The writers run in uvloop's event loop, as `ethos serve` does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Self

import uvloop

from gateway.files.atomic import sync_directory
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.schema import migrate
from gateway.store.sqlite.search import register_functions

SHARED = "personalities/shared/MEMORY.md"
REPLACED = "personalities/replaced/MEMORY.md"
USER = "users/u_shared/USER.md"
EDIT_EVERY_S = 0.25


@dataclass
class Expected:
    """What must be in the files: lines by document, the number of replacements, and what went wrong on the way."""

    shared: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    replacements: int = 0
    wrong: list[str] = field(default_factory=list)
    cpu_s: float = 0.0

    def merge(self, other: Expected) -> None:
        """Add what another process expects."""
        self.shared += other.shared
        self.gone += other.gone
        self.user += other.user
        self.replacements += other.replacements
        self.wrong += other.wrong
        self.cpu_s += other.cpu_s


# ---- a process of writers -------------------------------------------------------------------------------------------


def scope(turn: str, personality: str = "shared") -> MemoryScope:
    return MemoryScope(personality_id=personality, user_id="u_shared", session_id="torture", turn_id=turn)


async def write_as_task(provider: MarkdownFileMemoryProvider, name: str, updates: int, expected: Expected) -> None:
    """One task: every update is a turn of its own, and waits for its report."""
    choose = random.Random(name)
    mine: list[str] = []
    for number in range(updates):
        turn, line, kind = f"{name}-{number}", f"<{name}-{number}>", choose.random()
        wanted = "applied"
        if kind < 0.30 and mine:
            line = mine.pop(choose.randrange(len(mine)))
            update, at = MemoryUpdate.remove("memory", line), scope(turn)
            expected.gone.append(line)
        elif kind < 0.35:
            update, at = MemoryUpdate.replace("memory", line), scope(turn, "replaced")
            expected.replacements += 1
        elif kind < 0.40:
            update, at = MemoryUpdate.add("user", line), scope(turn)
            expected.user.append(line)
        else:
            update, at = MemoryUpdate.add("memory", line), scope(turn)
            mine.append(line)
        report = await provider.sync(at, [update])
        if kind > 0.97:
            wanted, report = "replayed", await provider.sync(at, [update])
        if report.outcomes != (wanted,):
            expected.wrong.append(f"{turn} {update}: {report.outcomes}, not {wanted}")
    expected.shared += mine


async def work(root: Path, process: int, tasks: int, updates: int) -> None:
    """Announce, wait for the word, write, and print what must be there."""
    database = SqliteEngine(root / "journal.db")
    provider = MarkdownFileMemoryProvider(root, SqlMemoryJournal(database), lock_timeout_s=60)
    expected = Expected()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began_s = time.process_time()
    share = [updates // tasks + (number < updates % tasks) for number in range(tasks)]
    async with asyncio.TaskGroup() as group:
        for number, count in enumerate(share):
            group.create_task(write_as_task(provider, f"p{process}t{number}", count, expected))
    await provider.close()
    await database.close()
    expected.cpu_s = time.process_time() - began_s
    print(json.dumps(vars(expected)), flush=True)


# ---- the person with the editor -------------------------------------------------------------------------------------


class Editor:
    """Saves a line at a time until it is stopped; looks before it saves, as editors do, and locks nothing."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._edit)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _edit(self) -> None:
        while not self._stop.wait(EDIT_EVERY_S):
            if not self._path.exists():
                continue
            line = f"<editor-{len(self.lines)}>"
            before = self._path.stat()
            text = self._path.read_text() + f"{line}\n"
            now = self._path.stat()
            if (before.st_mtime_ns, before.st_ino) != (now.st_mtime_ns, now.st_ino):
                continue  # "the file has changed, reload?"
            if len(self.lines) % 2:
                self._path.write_text(text)
            else:
                other = self._path.with_name("#editor#")
                other.write_text(text)
                other.replace(self._path)
            self.lines.append(line)


# ---- one run --------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """A line of the table."""

    writers: str
    slower_ms: float
    updates: int
    edits: int
    lost: int
    doubled: int
    rate: float
    bare: float
    cpu_us: float


@dataclass(frozen=True)
class Plan:
    """What a line of the table is measured with."""

    processes: int
    tasks: int
    updates: int
    slower_ms: float = 0.0
    has_editor: bool = True


async def run(root: Path, plan: Plan) -> Row:
    processes, updates = plan.processes, plan.updates
    migrate(root / "journal.db", prepare=register_functions)
    with slower_fsync(plan.slower_ms):
        bare_before = bare_rate(root, 20_000)
    expected, editor = Expected(), Editor(root / SHARED)
    workers = [start_worker(root, number, plan) for number in range(processes)]
    try:
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        began = time.perf_counter()
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        if plan.has_editor:
            with editor:
                reports = [worker.stdout.readline() for worker in workers]
        else:
            reports = [worker.stdout.readline() for worker in workers]
        elapsed_s = time.perf_counter() - began
        for report in reports:
            expected.merge(Expected(**json.loads(report)))
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    sizes = [(root / path).stat().st_size for path in (SHARED, REPLACED, USER)]
    lost, doubled = await check(root, expected, editor.lines)
    with slower_fsync(plan.slower_ms):
        bare = (bare_before + bare_rate(root, max(sizes) // 2)) / 2
    return Row(
        writers=f"{processes} x {plan.tasks}",
        slower_ms=plan.slower_ms,
        updates=updates // processes * processes,
        edits=len(editor.lines),
        lost=lost,
        doubled=doubled,
        rate=updates / elapsed_s,
        bare=bare,
        cpu_us=expected.cpu_s / updates * 1e6,
    )


@contextmanager
def slower_fsync(by_ms: float) -> Iterator[None]:
    """Let every `os.fsync` of this process take that much longer; the processor is free meanwhile, as with a disk."""
    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        time.sleep(by_ms / 1e3)

    if by_ms:
        os.fsync = fsync  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync = real


def start_worker(root: Path, number: int, plan: Plan) -> subprocess.Popen[str]:
    arguments = ["--worker", str(number), "--root", str(root), "--tasks", str(plan.tasks)]
    arguments += ["--updates", str(plan.updates // plan.processes), "--slower-ms", str(plan.slower_ms)]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.memory_writers", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )


async def check(root: Path, expected: Expected, edits: list[str]) -> tuple[int, int]:
    """Count what is missing and what is there too often; says on stderr what."""
    database = SqliteEngine(root / "journal.db")
    journal = SqlMemoryJournal(database)
    provider = MarkdownFileMemoryProvider(root, journal)
    # What an editor took back without meaning to comes again with the next update.
    await provider.sync(scope("end"), [MemoryUpdate.add("memory", "<end>"), MemoryUpdate.add("user", "<end>")])
    lost, doubled = 0, 0
    for path, wanted, unwanted in (
        (SHARED, [*expected.shared, *edits, "<end>"], expected.gone),
        (USER, [*expected.user, "<end>"], []),
    ):
        archive = (root / path).with_name("memory-archive.md")
        text = (archive.read_text() if archive.exists() else "") + (root / path).read_text()
        found = Counter(line for line in text.split("\n") if line)
        lost += tell(f"lost from {path}", [line for line in wanted if not found[line]])
        doubled += tell(f"doubled in {path}", [line for line in wanted if found[line] > 1])
        doubled += tell(f"removed, but in {path}", [line for line in unwanted if found[line]])
        doubled += tell(f"never written, but in {path}", list(found.keys() - set(wanted) - set(unwanted)))
    chain = [each for each in await journal.entries(REPLACED, 10**9) if each.outcome == "applied"]
    broken = [str(new.id) for new, old in pairwise(chain) if new.hash_before != old.hash_after]
    lost += tell("breaks in the chain of replacements", broken)
    lost += tell("replacements missing", [""] * max(0, expected.replacements - len(chain)))
    doubled += tell("replacements too many", [""] * max(0, len(chain) - expected.replacements))
    if chain and (root / REPLACED).read_text() != chain[0].request.content + "\n":
        lost += tell("the last replacement is not in the file", [""])
    lost += tell("wrong reports", expected.wrong)
    lost += tell("unsettled turns", [at.turn_id for at, _ in await journal.unsettled()])
    await provider.close()
    await database.close()
    return lost, doubled


def tell(what: str, which: list[str]) -> int:
    if which:
        print(f"{what}: {len(which)}: {' '.join(which[:5])}", file=sys.stderr)
    return len(which)


def bare_rate(root: Path, size_bytes: int, for_s: float = 0.7) -> float:
    """Durable replacements a second, one after the other, of a file of that size."""
    target, temporary, data = root / "bare", root / "bare.new", b"x" * size_bytes
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < for_s:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        temporary.replace(target)
        sync_directory(root)
        count += 1
    return count / (time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=10_000, help="in each run")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--tasks", type=int, default=16, help="in each process")
    parser.add_argument(
        "--slower-ms", type=float, nargs="*", default=[1.0, 4.0], help="by so much, in lines of its own"
    )
    parser.add_argument("--root", type=Path, help="where to write; a directory of its own in /var/tmp by default")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        with slower_fsync(options.slower_ms[0]):
            uvloop.run(work(options.root, options.worker, options.tasks, options.updates))
        return 0
    plans = [Plan(1, 1, min(options.updates, 1000), has_editor=False)]
    plans += [Plan(processes, options.tasks, options.updates) for processes in options.processes]
    plans += [Plan(1, options.tasks, min(options.updates, 5000), slower_ms) for slower_ms in options.slower_ms]
    print(f"{'processes x tasks':>17} {'slower':>7} {'updates':>8} {'edits':>6} {'lost':>5} {'doubled':>8} "
          f"{'CPU us':>7} {'per s':>7} {'bare per s':>10} {'ratio':>6}")  # fmt: skip
    is_good = True
    for plan in plans:
        with tempfile.TemporaryDirectory(dir=options.root or "/var/tmp", prefix="memory-writers-") as directory:  # noqa: S108 (a disk, not memory)
            row = asyncio.run(run(Path(directory), plan))
        is_good = is_good and not row.lost and not row.doubled
        print(f"{row.writers:>17} {row.slower_ms:>4g} ms {row.updates:>8} {row.edits:>6} {row.lost:>5} "
              f"{row.doubled:>8} {row.cpu_us:>7.0f} {row.rate:>7.0f} {row.bare:>10.0f} {row.rate / row.bare:>6.2f}",
              flush=True)  # fmt: skip
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
