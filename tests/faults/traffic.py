"""What people write while faults happen: messages whose answers and memories can be told apart."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

KEPT = "kept line\n"
"""What the memory of the agent begins with."""
_FIRST = 1


@dataclass(frozen=True, slots=True)
class Said:
    """A message; its answer has `token` in it, and no other answer has."""

    token: str
    person: int
    text: str


def tokens(text: str) -> list[str]:
    """The tokens of the messages that a text answers."""
    answer = re.sub(r"^I forget this: .*$", "", text, flags=re.MULTILINE)  # that was an earlier one's
    return re.findall(r"k\d{5}", answer)


@dataclass(slots=True)
class Traffic:
    """Writes messages, the same ones for the same random numbers.

    Attributes:
        has_colors: people change their mind, too. Whether the older color goes depends on whether the turn saw it, and
            while the disk fails the memory may be late; and on which of two came first.
        people: those who have written; each has a conversation.
        facts: lines that MEMORY.md, or its archive, must have once.
        traits: lines that a person's USER.md must have once, by person.
        colors: the one color that a person's USER.md must have, by person: a newer one takes the place of an older.
    """

    has_colors: bool = True
    people: int = 0
    said: list[Said] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    traits: dict[int, list[str]] = field(default_factory=dict)
    colors: dict[int, str] = field(default_factory=dict)
    _count: int = 0

    @property
    def updates(self) -> int:
        """Memory lines that must be there."""
        return len(self.facts) + sum(map(len, self.traits.values())) + len(self.colors)

    def greet(self, person: int) -> Said:
        """Somebody writes for the first time."""
        self.people = max(self.people, person)
        self._count += 1
        token = f"k{self._count:05d}"
        self.said.append(Said(token, person, f"echo: {token} hello"))
        return self.said[-1]

    def write(self, numbers: random.Random, *, is_long: bool = False, max_people: int = 8) -> Said:
        """One more message."""
        if self.people < 2 or (self.people < max_people and numbers.random() < 0.3):
            self.people += 1
        person = _FIRST + numbers.randrange(self.people)
        self._count += 1
        token = f"k{self._count:05d}"
        said = Said(token, person, self._text(numbers, person, token, is_long=is_long))
        self.said.append(said)
        return said

    def _text(self, numbers: random.Random, person: int, token: str, *, is_long: bool) -> str:
        kind = numbers.random()
        if is_long:
            return f"echo: {token} " + "and on it goes " * numbers.randrange(2000, 4000)
        if kind < 0.45:
            return f"echo: {token} " + "word " * numbers.randrange(1, 30)
        if kind < 0.5:
            return f"echo: {token} " + "word " * numbers.randrange(250, 360)
        if kind < 0.7:
            self.facts.append(f"fact {token} is that the answer was found")
            return f"remember that {self.facts[-1]}"
        if kind < 0.85 or not self.has_colors:
            self.traits.setdefault(person, []).append(f"They say: I met {token}")
            return f"remember that I met {token}"
        self.colors[person] = f"Color: {token}"
        return f"remember that my color is {token}"
