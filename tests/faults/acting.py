"""Tools that act, while the process is killed: what each call did outside of the gateway is counted there.

People have a note kept, and letters posted. A letter waits for a yes, which most of them get. Of each call the outside
must have one effect at most, and where nobody can know, the person is told so. Beside the note something is looked at,
by a sub-agent or without one; each look is in the tool log once.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import yaml

from gateway.runtime import failpoints
from tests.faults.evidence import Tally
from tests.faults.process import Serving
from tests.faults.stream import Stream
from tests.faults.traffic import Traffic

FAULTS = (*(f"`{name}`" for name in failpoints.TOOL_POINTS), "`turn.steps_saved`", "`turn.committed`", "at random")
_ASKED = re.compile(r"Number (\d+): `post` with\n```\ntext: \S+\nto: (e\d{5})\n```")
_SENT = re.compile(r"sent to (e\d{5})")
_UNKNOWN = "I do not know whether this took effect: {}."
_PRESSED = 0.8


@dataclass(slots=True)
class ActingTraffic(Traffic):
    """Messages that have tools called.

    Attributes:
        notes: who has each note kept, by what it is about.
    """

    notes: dict[str, int] = field(default_factory=dict)

    def _text(self, numbers: random.Random, person: int, token: str, *, is_long: bool) -> str:  # noqa: ARG002 (never)
        """Its answer has the token, whatever becomes of the call."""
        about = f"e{token[1:]}"
        if numbers.random() < 0.5:
            self.notes[about] = person
            look = f"use tool see {json.dumps({'to': token})}"
            if numbers.random() < 0.7:
                look = f"use tool delegate {json.dumps({'task': look})}"
            return f"use tool keep {json.dumps({'to': about})}\n{look}"
        return f"use tool post {json.dumps({'to': about, 'text': token})}"


class ActingStream(Stream):
    """A gateway with a package of tools, and people who press Yes."""

    has_colors = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._traffic = self._acting = ActingTraffic(has_colors=False)
        self._effects = self._directory / "effects"
        self._pressed: dict[int, tuple[int, str]] = {}
        self._passed_over: set[int] = set()

    def _furnish(self) -> None:
        super()._furnish()
        path = self._home / "config.yaml"
        packages = [{"package": "tests.tool_packages.counting", "file": str(self._effects)}]
        path.write_text(path.read_text() + yaml.safe_dump({"tools": {"packages": packages, "delegate": True}}))

    async def _answered_or_ended(self, serving: Serving) -> bool:
        while not await super()._answered_or_ended(serving):
            if not await self._press():
                return False
        return True

    async def _press(self) -> bool:
        """Say yes to most of what is asked; whether there was anything."""
        is_any = False
        for person, text in self._platform.shown():
            for number, about in ((int(number), about) for number, about in _ASKED.findall(text)):
                if number in self._pressed or number in self._passed_over:
                    continue
                if random.Random(f"{self._seed}/{number}").random() > _PRESSED:
                    self._passed_over.add(number)
                    continue
                self._pressed[number] = person, about
                await self._platform.say_as(person, f"/yes {number}")
                is_any = True
        return is_any

    def _unanswered(self) -> list[str]:
        told = Counter(person for person, text in self._platform.shown() if _UNKNOWN.format("post") in text)
        sent = {about for _, text in self._platform.shown() for about in _SENT.findall(text)}
        open_calls = []
        for person, about in self._pressed.values():
            if about not in sent:
                told[person] -= 1
                open_calls += [about] if told[person] < 0 else []
        return [*super()._unanswered(), *open_calls]

    def _examine(self) -> None:
        super()._examine()
        done = Counter(line.split()[1] for line in self._effects.read_text().splitlines())
        with closing(sqlite3.connect(self._home / "ethos.sqlite")) as database:
            notes = database.execute("SELECT arguments, state FROM tool_calls WHERE tool = 'keep'").fetchall()
            letters = dict(database.execute("SELECT id, state FROM approvals"))
            looks = Counter(database.execute("SELECT turn_id, tool FROM tool_calls WHERE tool IN ('see', 'delegate')"))
            unknown = database.execute("SELECT turn_id, tool FROM tool_calls WHERE state = 'uncertain'").fetchall()
            replies = database.execute("SELECT id, payload FROM outbox WHERE state = 'sent'").fetchall()
        kept = {json.loads(arguments)["to"]: state for arguments, state in notes}
        wanted = {about: (person, "keep", kept.get(about)) for about, person in self._acting.notes.items()}
        wanted |= {about: (person, "post", letters[number]) for number, (person, about) in self._pressed.items()}
        compare_effects(self._tally, wanted, done, self._platform.shown())
        for turn, tool in unknown:
            texts = [json.loads(payload)["text"] for name, payload in replies if name.startswith(f"{turn}.")]
            if not any(_UNKNOWN.format(tool) in text for text in texts):
                self._tally.problems.append(f"no answer of {turn} says that its call of {tool} is not known")
        self._tally.problems += [
            f"{tool} is {times} times in the log of {turn}" for (turn, tool), times in looks.items() if times > 1
        ]
        for number in self._passed_over:
            if letters[number] != "waiting":
                self._tally.problems.append(f"number {number} is {letters[number]}, and nobody said yes")


def compare_effects(
    tally: Tally, wanted: dict[str, tuple[int, str, str | None]], done: Counter[str], shown: Any
) -> None:
    """Fill the part of the tally that is of calls.

    Args:
        tally: to be filled; an update of it is a call here.
        wanted: what each call is about, with the person, the tool, and what the gateway says became of it.
        done: how often each was done outside.
        shown: what the people were told.
    """
    tally.updates = len(wanted)
    unknown: Counter[tuple[int, str]] = Counter()
    for about, (person, tool, state) in wanted.items():
        if state == "uncertain":
            unknown[person, tool] += 1
        elif state != "done" or not done[about]:
            tally.missing += 1
            tally.notes.append(f"{tool} {about} is {state}, and was done {done[about]} times")
    for about, times in done.items():
        tally.doubled += times - 1
        if times > 1:
            tally.notes.append(f"{about} was done {times} times")
        if about not in wanted:
            tally.problems.append(f"{about} was done, and nobody said yes")
    for (person, tool), amount in unknown.items():
        told = sum(who == person and _UNKNOWN.format(tool) in text for who, text in shown)
        if told < amount:
            tally.problems.append(f"person {person} was told of {told} of {amount} calls of {tool} that are not known")
