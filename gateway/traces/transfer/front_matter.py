"""A note: YAML between two lines of `---`, then the text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

# libyaml's are the same and ten times as fast; not every build has them.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_BLOCK = re.compile(r"---[ \t]*\r?\n(?P<yaml>.*?)(?<![^\n])(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_UNFOLDED = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A file that was taken apart.

    Attributes:
        values: of the front matter.
        unread: front matter that is no YAML, as it stands; `problem` says why.
        body: all after it, as it stands.
    """

    values: Mapping[str, Any]
    body: str
    unread: str | None = None
    problem: str | None = None


def written(values: Mapping[str, Any], body: str) -> str:
    """The note of these values and this text."""
    front = yaml.dump(dict(values), Dumper=_DUMPER, allow_unicode=True, sort_keys=False, width=_UNFOLDED)
    return f"---\n{front}---\n\n{body}\n"


def read(text: str) -> Note:
    """Take a note apart; without front matter it is all body."""
    found = _BLOCK.match(text)
    if found is None:
        return Note(values={}, body=text)
    front, body = found["yaml"], text[found.end() :]
    try:
        if "*" in front and "&" in front and _has_aliases(front):
            return Note(values={}, body=body, unread=front, problem="the front matter refers to parts of itself")
        values = yaml.load(front, Loader=_LOADER)  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date like 2026-13-45
        return Note(values={}, body=body, unread=front, problem=f"the front matter is no YAML ({_reason(error)})")
    if values is None:
        return Note(values={}, body=body)
    if not isinstance(values, dict):
        return Note(values={}, body=text)  # a rule, some text and a rule
    return Note(values={str(name): value for name, value in values.items()}, body=body)


def _has_aliases(front: str) -> bool:
    """A few of them can stand for gigabytes."""
    return any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(front, Loader=_LOADER))


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return " ".join(f"{problem}{f', line {mark.line + 2}' if mark is not None else ''}".split())[:200]
