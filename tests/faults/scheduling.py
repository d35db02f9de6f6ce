"""What is due at a time, while the process is killed: each is said or done once, and a pause is told once.

People have something said at once, done at once, or watched at once by a watch that reports it. Between two lives some
of it is marked as paused, so that its person is to be told.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gateway.pipeline.outbox import REPEAT_NOTE
from gateway.runtime import failpoints
from tests.faults.evidence import Tally
from tests.faults.process import Serving
from tests.faults.stream import Stream
from tests.faults.traffic import Traffic
from tests.faults.workers import Worker, WorkersStream

OF_WORKERS = ("`schedule.firing`", "`schedule.fired`", "kill -9 at random")
FAULTS = (*(f"`{name}`" for name in failpoints.SCHEDULE_POINTS), "`turn.committed`", "`outbox.recorded`", "at random")
_TEXTS = {"say": "due {}", "do": "echo: due {}", "watch": 'use tool report {{"text": "due {}"}}'}
_TOLD_PER_LIFE = 8


@dataclass(slots=True)
class SchedulingTraffic(Traffic):
    """Messages that have something done at once, as a schedule; `due` is what each is about, by whose it is."""

    due: dict[str, int] = field(default_factory=dict)

    def _text(self, numbers: random.Random, person: int, token: str, *, is_long: bool) -> str:  # noqa: ARG002 (never)
        """Its answer has the token, and what is due has another name."""
        about = f"d{token[1:]}"
        self.due[about] = person
        mode = numbers.choice([*_TEXTS])
        form = {"mode": mode, "text": _TEXTS[mode].format(about), "in_minutes": 0}
        return f"use tool schedule_create {json.dumps(form)}\nuse tool see {json.dumps({'to': token})}"


def said_once(tally: Tally, wanted: Sequence[str], seen: Counter[str]) -> None:
    """Fill the part of the tally that is of what was due."""
    tally.updates = len(wanted)
    for name in wanted:
        tally.missing += not seen[name]
        tally.doubled += max(0, seen[name] - 1)
        if seen[name] != 1:
            tally.notes.append(f"{name} was said {seen[name]} times")


def seen_in(shown: Iterable[tuple[int, str]]) -> Counter[str]:
    """How often each was said, but for what was marked as perhaps repeated."""
    seen: Counter[str] = Counter()
    for _, text in shown:
        is_repeated, line = text.startswith(REPEAT_NOTE), text.removeprefix(REPEAT_NOTE).partition("\n")[0]
        name = ""
        if line.startswith("due d"):
            name = line.split()[1]
        elif line.startswith("What was due of number"):
            name = line.rpartition(": ")[2].rstrip(".")
        seen[name] += 0 if is_repeated and seen[name] else 1
    return seen


class SchedulingStream(Stream):
    """A gateway whose people have schedules."""

    has_colors = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._traffic = self._scheduling = SchedulingTraffic(has_colors=False)
        self._told: list[str] = []

    def _furnish(self) -> None:
        super()._furnish()
        _add_tool(self._home / "config.yaml", self._directory / "effects")

    async def _begin(self, setting: str) -> Serving:
        self._pause()
        return await super()._begin(setting)

    def _pause(self) -> None:
        """Mark some that are done, while no gateway runs."""
        path = self._home / "ethos.sqlite"
        if not path.exists():
            return
        with closing(sqlite3.connect(path)) as database, database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'schedules'").fetchone():
                return
            sql = "SELECT id FROM schedules WHERE state = 'done' AND why IS NULL ORDER BY id LIMIT ?"
            for (number,) in database.execute(sql, (_TOLD_PER_LIFE,)).fetchall():
                self._told.append(f"w{number:05d}")
                database.execute("UPDATE schedules SET why = ?, tell = 'here' WHERE id = ?", (self._told[-1], number))

    def _unanswered(self) -> list[str]:
        seen = seen_in(self._platform.shown())
        return [*super()._unanswered(), *(name for name in self._wanted if name not in seen)]

    @property
    def _wanted(self) -> list[str]:
        return [*self._scheduling.due, *self._told]

    def _examine(self) -> None:
        super()._examine()
        said_once(self._tally, self._wanted, seen_in(self._platform.shown()))
        with closing(sqlite3.connect(self._home / "ethos.sqlite")) as database:
            sql = "SELECT schedule_id, count(*), min(outcome) FROM occurrences GROUP BY schedule_id"
            ended = {number: (times, outcome) for number, times, outcome in database.execute(sql)}
            made = dict(database.execute("SELECT id, state FROM schedules"))
        for number, state in made.items():
            if state != "done" or ended.get(number) != (1, "done"):
                self._tally.problems.append(f"schedule {number} is {state}, with {ended.get(number)} in its history")


class SchedulingWorkersStream(WorkersStream):
    """The same of several workers, of which one takes up what is due."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._traffic = self._scheduling = SchedulingTraffic(has_colors=False)

    def _furnish(self, worker: Worker, store: dict[str, Any]) -> None:
        super()._furnish(worker, store)
        _add_tool(worker.home / "config.yaml", self._directory / "effects")

    def _unanswered(self) -> list[str]:
        seen = seen_in(self._platform.shown())
        return [*super()._unanswered(), *(name for name in self._scheduling.due if name not in seen)]

    async def run(self) -> Tally:
        tally = await super().run()
        said_once(tally, [*self._scheduling.due], seen_in(self._platform.shown()))
        return tally


def _add_tool(config: Path, effects: Path) -> None:
    """The tool whose result is in the answer of each message."""
    packages = [{"package": "tests.tool_packages.counting", "file": str(effects)}]
    config.write_text(config.read_text() + yaml.safe_dump({"tools": {"packages": packages}}))
