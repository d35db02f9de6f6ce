"""What `config.example.yaml` says of each key: its group, its text, and its place among the others.

The file stands at the top of the repository; a link in this folder leads to it, so that a wheel has a copy here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from gateway.files.positions.yaml import KeyPath, Place, parse_marked_yaml, value_at

EXAMPLE_NAME = "config.example.yaml"
NAMED: frozenset[KeyPath] = frozenset({("models",), ("channels",), ("hooks",), ("mcp", "servers")})
"""Sections whose keys are names that people choose."""
_SWITCHED_OFF = re.compile(r"^( *)#(?! \S)(?=.)", re.MULTILINE)
_GROUP = re.compile(r"# ---- (.+?) -+")


@dataclass(frozen=True, slots=True)
class ExampleKey:
    """What the example says of one key.

    Attributes:
        group: the heading that it stands below.
        text: the comment above it, as one paragraph; for a key without one, that of the key above or of its section.
        value: as it stands there.
        is_on: whether it is the default, and no setting that is switched off.
    """

    group: str
    text: str
    value: Any
    is_on: bool


@dataclass(frozen=True, slots=True)
class Example:
    """The whole example, with everything switched on.

    Attributes:
        groups: the headings, in order.
        keys: what it says, by the path of the key, in order.
    """

    groups: Sequence[str]
    keys: Mapping[KeyPath, ExampleKey]

    def like(self, path: KeyPath) -> Iterator[KeyPath]:
        """The paths in the example that mean the same key: an entry with a chosen name is like each that it has."""
        for depth in range(len(path)):
            if path[:depth] in NAMED:
                for name in self.names(path[:depth]):
                    yield (*path[:depth], name, *path[depth + 1 :])
                return
        yield path

    def names(self, section: KeyPath) -> Sequence[str]:
        """The keys of a section, in order."""
        depth = len(section)
        found = [path[depth] for path in self.keys if len(path) == depth + 1 and path[:depth] == section]
        return [name for name in found if isinstance(name, str)]


class ExampleLayout:
    """New keys go where the example has them."""

    def keys(self, section: KeyPath) -> Sequence[str]:
        """The order of the keys; for an entry with a chosen name, that of all such entries together."""
        if section in NAMED:
            return ()
        example = read_example()
        longest = sorted((example.names(path) for path in example.like(section)), key=len, reverse=True)
        return list(dict.fromkeys(name for names in longest for name in names))

    def is_open(self, section: KeyPath) -> bool:
        """Whether it is an entry with a chosen name."""
        return section[:-1] in NAMED


def example_text() -> str:
    """The file as it is."""
    return (files("gateway.config") / EXAMPLE_NAME).read_text(encoding="utf-8")


def switched_on(text: str) -> str:
    """The example with every setting in it, as a person gets it who takes each `#` away; line by line the same."""
    return _SWITCHED_OFF.sub(r"\1", text)


@cache
def read_example() -> Example:
    """The example, read once."""
    text = example_text()
    lines, whole = text.splitlines(), switched_on(text).splitlines()
    document = parse_marked_yaml(switched_on(text).encode(), EXAMPLE_NAME)
    groups = {number: found[1] for number, line in enumerate(lines) if (found := _GROUP.match(line))}
    keys: dict[KeyPath, ExampleKey] = {}
    for path, place in sorted(document.keys.items(), key=lambda item: (item[1].line, item[1].column)):
        number = place.line - 1
        group = next((name for line, name in reversed(groups.items()) if line < number), "")
        text = _comment_above(whole, number) or _text_of_run(keys, path, number, document.keys)
        value = value_at(document.values, path)
        keys[path] = ExampleKey(group, text, value, is_on=not _SWITCHED_OFF.match(lines[number]))
    return Example(tuple(groups.values()), keys)


def _comment_above(lines: Sequence[str], number: int) -> str:
    """The lines of a comment directly above a line, joined."""
    words: list[str] = []
    column = len(lines[number]) - len(lines[number].lstrip())
    for line in reversed(lines[:number]):
        text = line.strip()
        if not text.startswith("#") or _GROUP.match(line) or len(line) - len(line.lstrip()) != column:
            break
        words.append(text.removeprefix("#").strip())
    return " ".join(reversed(words))


def _text_of_run(keys: dict[KeyPath, ExampleKey], path: KeyPath, number: int, places: Mapping[KeyPath, Place]) -> str:
    """A run of keys in successive lines shares the comment above its first one."""
    before = next((other for other in reversed(keys) if other[:-1] == path[:-1]), None)
    return keys[before].text if before is not None and places[before].line == number else ""
