"""What is due at a time, while the process is killed: each is said or done once, and a pause is told once.

People have something said at once, done at once, or watched at once by a watch that reports it. Between two lives some
of it is marked as paused, so that its person is to be told.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import yaml

from gateway.pipeline.outbox import REPEAT_NOTE
from gateway.runtime import failpoints
from tests.faults.process import Serving
from tests.faults.stream import Stream
from tests.faults.traffic import Traffic

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


class SchedulingStream(Stream):
    """A gateway whose people have schedules."""

    has_colors = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._traffic = self._scheduling = SchedulingTraffic(has_colors=False)
        self._told: list[str] = []

    def _furnish(self) -> None:
        super()._furnish()
        path = self._home / "config.yaml"
        packages = [{"package": "tests.tool_packages.counting", "file": str(self._directory / "effects")}]
        path.write_text(path.read_text() + yaml.safe_dump({"tools": {"packages": packages}}))

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
        seen = self._seen()
        return [*super()._unanswered(), *(name for name in self._wanted if name not in seen)]

    @property
    def _wanted(self) -> list[str]:
        return [*self._scheduling.due, *self._told]

    def _seen(self) -> Counter[str]:
        """How often each was said, but for what was marked as perhaps repeated."""
        seen: Counter[str] = Counter()
        for _, text in self._platform.shown():
            is_repeated, first = text.startswith(REPEAT_NOTE), text.removeprefix(REPEAT_NOTE).partition("\n")[0]
            for name in self._wanted_in(first):
                seen[name] += 0 if is_repeated and seen[name] else 1
        return seen

    def _wanted_in(self, line: str) -> list[str]:
        if line.startswith("due d"):
            return [line.split()[1]]
        return [line.rpartition(": ")[2].rstrip(".")] if line.startswith("What was due of number") else []

    def _examine(self) -> None:
        super()._examine()
        seen = self._seen()
        self._tally.updates = len(self._wanted)
        for name in self._wanted:
            self._tally.missing += not seen[name]
            self._tally.doubled += max(0, seen[name] - 1)
            if seen[name] != 1:
                self._tally.notes.append(f"{name} was said {seen[name]} times")
        with closing(sqlite3.connect(self._home / "ethos.sqlite")) as database:
            sql = "SELECT schedule_id, count(*), min(outcome) FROM occurrences GROUP BY schedule_id"
            ended = {number: (times, outcome) for number, times, outcome in database.execute(sql)}
            made = dict(database.execute("SELECT id, state FROM schedules"))
        for number, state in made.items():
            if state != "done" or ended.get(number) != (1, "done"):
                self._tally.problems.append(f"schedule {number} is {state}, with {ended.get(number)} in its history")
