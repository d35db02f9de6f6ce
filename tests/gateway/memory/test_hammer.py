"""Many processes, a person with several editors, and kill -9, on the same files: nothing is lost, nothing doubled."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.protocols import MemoryUpdate
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.sqlite.engine import SqliteEngine
from tests.gateway.memory import hammer_process
from tests.gateway.memory.hammer_process import scope, turns_of
from tests.stores import empty_database

MEMORY = "personalities/shared/MEMORY.md"
USER = "users/u_1/USER.md"
STEPS = ["begun", "looked", "staged", "linked", "recorded", "compared", "exchanged", "renamed", "synced"]
EDIT_EVERY_S = 0.03


@dataclass
class Expected:
    """The lines that must be in each document once, and those that must not be there."""

    there: dict[str, list[str]] = field(default_factory=lambda: {MEMORY: [], USER: []})
    gone: list[str] = field(default_factory=list)


def expected_of(tasks: list[str], turns: int) -> Expected:
    found = Expected()
    for task in tasks:
        for at, updates in turns_of(task, turns):
            for update in updates if at.personality_id == "shared" else ():
                document = found.there[USER if update.store == "user" else MEMORY]
                if update.action == "add":
                    document.append(update.content)
                else:
                    document.remove(update.content)
                    found.gone.append(update.content)
    return found


class Person(threading.Thread):
    """Edits until told to stop: `sed -i`, an editor that saves by rename, `>>`, and one that had the file open."""

    def __init__(self, path: Path, longest_open_s: float) -> None:
        super().__init__()
        self.there: list[str] = []
        self.gone: list[str] = []
        self.stop = threading.Event()
        self._path = path
        self._longest_open_s = longest_open_s
        self._choose = random.Random(path.name)

    def run(self) -> None:
        ways = [self._sed, self._sed_out, self._rename, self._append, self._stale, self._stale]
        number = 0
        while not self.stop.wait(EDIT_EVERY_S):
            if self._path.exists():
                self._choose.choice(ways)(f"<{self._path.name}-{number}>")
                number += 1

    def _open(self) -> str:
        """The text; who misses what they saved a moment ago (it went into a replaced version) opens it again.

        So does who still sees what they took out a moment ago.
        """
        while True:
            text = self._path.read_text()
            is_as_saved = all(line in text for line in self.there) and not any(line in text for line in self.gone)
            if self.stop.is_set() or is_as_saved:
                return text
            self.stop.wait(EDIT_EVERY_S)

    def _sed(self, line: str) -> None:
        """As `sed -i '$a line'` does."""
        self._save_by_rename(self._open() + f"{line}\n", line)

    def _sed_out(self, _line: str) -> None:
        """As `sed -i '/line/d'` does."""
        text = self._open()
        seen = [line for line in self.there if line in text]
        if not seen:
            return
        line = self._choose.choice(seen)
        self.there.remove(line)
        subprocess.run(["sed", "-i", f"/{line}/d", self._path], check=True)
        self.gone.append(line)

    def _rename(self, line: str) -> None:
        first, newline, rest = self._open().partition("\n")
        self._save_by_rename(f"{first}{newline}{line}\n{rest}", line)

    def _append(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{line}\n")
        self.there.append(line)

    def _stale(self, line: str) -> None:
        """An editor that was open for a while, and does not look whether the file has changed."""
        lines = self._open().split("\n")
        self.stop.wait(self._choose.uniform(0.05, self._longest_open_s))
        lines.insert(self._choose.randrange(len(lines)), line)
        self._save_by_rename("\n".join(lines) + "\n", line)

    def _save_by_rename(self, text: str, line: str) -> None:
        if self.stop.is_set():
            return
        other = self._path.with_name("#editor#")
        other.write_text(text)
        other.replace(self._path)
        self.there.append(line)


def keep_running(root: Path, path: Path, name: str, *, tasks: int, turns: int, kills: int) -> int:
    """Start the process, and again whenever it was killed; how often it was."""
    choose = random.Random(name)
    killed = 0
    while True:
        step = choose.choice(STEPS) if killed < kills else "never"
        arguments = [root, path, name, str(tasks), str(turns), step, str(choose.randrange(2, 12))]
        done = subprocess.run(
            [sys.executable, hammer_process.__file__, *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=300,
            check=False,
        )
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0
            return killed
        killed += 1


async def hammer(directory: Path, *, processes: int, tasks: int, turns: int, kills: int, open_s: float) -> None:
    root = directory / "data"
    path = empty_database(directory / "journal.db")
    (root / MEMORY).parent.mkdir(parents=True)
    (root / MEMORY).write_text("# Notes\n\nfirst\n")
    people = [Person(root / MEMORY, open_s), Person(root / USER, open_s)]
    names = [f"p{number}" for number in range(processes)]
    for person in people:
        person.start()
    try:
        keep = partial(keep_running, root, path, tasks=tasks, turns=turns, kills=kills)
        killed = sum(await asyncio.gather(*(asyncio.to_thread(keep, name) for name in names)))
    finally:
        for person in people:
            person.stop.set()
            await asyncio.to_thread(person.join)
    assert killed == processes * kills
    expected = expected_of([f"{name}t{number}" for name in names for number in range(tasks)], turns)
    for document, person in zip((MEMORY, USER), people, strict=True):
        expected.there[document] += [*person.there, "<end>"]
        expected.gone += person.gone
    expected.there[MEMORY] += ["# Notes", "first"]
    await check(root, path, expected)


async def check(root: Path, path: Path, expected: Expected) -> None:
    database = SqliteEngine(path)
    journal = SqlMemoryJournal(database)
    provider = MarkdownFileMemoryProvider(root, journal)
    await provider.sync(scope("end"), [MemoryUpdate.add("memory", "<end>"), MemoryUpdate.add("user", "<end>")])
    wrong: dict[str, list[str]] = {}
    for document, wanted in expected.there.items():
        found = Counter(line for line in (root / document).read_text().split("\n") if line)
        wrong[f"lost from {document}"] = sorted(set(wanted) - set(found))
        wrong[f"too much in {document}"] = sorted(set(found) - set(wanted))
        wrong[f"doubled in {document}"] = sorted(line for line, count in found.items() if count > 1)
        chain = [entry for entry in await journal.entries(document, 10**9) if entry.outcome == "applied"]
        breaks = [new.id for new, old in pairwise(chain) if new.hash_before != old.hash_after]
        wrong[f"breaks in the history of {document}"] = list(map(str, breaks))
        wrong[f"left over of {document}"] = [turn_id for turn_id, _ in await journal.pending(document)]
    wrong["not settled"] = [at.turn_id for at, _ in await journal.unsettled()]
    await provider.close()
    await database.close()
    wrong = {what: which for what, which in wrong.items() if which}
    assert not wrong, wrong


@pytest.fixture
def disk(tmp_path):
    """A directory that is gone afterwards, however much was written into it."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.slow
async def test_processes_that_are_killed_and_a_person_who_edits_lose_and_double_nothing(disk):
    await hammer(disk, processes=2, tasks=4, turns=12, kills=2, open_s=0.4)


@pytest.mark.slow
async def test_for_a_minute_nothing_is_lost_or_doubled(disk):
    await hammer(disk, processes=4, tasks=8, turns=120, kills=24, open_s=4.0)
