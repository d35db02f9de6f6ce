"""JSON that people edit, read so that every complaint names its line and column.

Stricter than `json.loads`: an object names nothing twice, no `NaN`, no half of a surrogate pair, UTF-8 only (a byte
order mark is fine).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

KeyPath = tuple[str | int, ...]
"""The way to a value: names in objects and places in arrays."""

_MAX_DIGITS = 1000
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_LONE_SURROGATE = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]", re.ASCII)


class Mistake(ValueError):
    """Something wrong in a text.

    Attributes:
        line: where, counted from 1.
        column: in that line, in characters, counted from 1.
        expected: what is wrong there and what was expected, for people.
    """

    def __init__(self, line: int, column: int, expected: str) -> None:
        super().__init__(f"line {line}, column {column}: {expected}")
        self.line = line
        self.column = column
        self.expected = expected


@dataclass(frozen=True, slots=True)
class MarkedJson:
    """A value, and the text that it stands in."""

    value: Any
    text: str

    def mistake(self, path: KeyPath, expected: str) -> Mistake:
        """A complaint about the name, or the item, at `path`."""
        start = next((start for here, start in _starts(self.text) if here == path), 0)
        return Mistake(*_place(self.text, start), expected)


def load(data: bytes) -> MarkedJson:
    """Read JSON.

    Raises:
        Mistake: it is not, or not in UTF-8.
    """
    text = _decode(data)
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_int=_whole, parse_float=_finite
        )
        if _LONE_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise Mistake(error.lineno, error.colno, _what_json_expected(text, error)) from None
    except _NamedTwice:
        path, start = _first_double(text)
        raise Mistake(*_place(text, start), f"{path[-1]!r} stands here a second time; expected it once") from None
    except UnicodeEncodeError:
        found = _LONE_SURROGATE.search(text)
        where = _place(text, found.start() if found else 0)
        raise Mistake(*where, "half of a surrogate pair; expected whole characters") from None
    except RecursionError:
        raise Mistake(1, 1, "brackets are nested too deeply; expected only a few levels") from None
    except ValueError as error:
        raise Mistake(1, 1, f"{error}; expected JSON") from None
    return MarkedJson(value, text)


def _decode(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", errors="replace")
        raise Mistake(*_place(before, len(before)), "these bytes are no UTF-8; expected text in UTF-8") from None
    if not text.strip(" \t\r\n"):
        raise Mistake(1, 1, "the file is empty; expected JSON")
    if "\0" in text:
        raise Mistake(*_place(text, text.index("\0")), "a NUL character; expected JSON. Was the disk full?")
    return text


class _NamedTwice(Exception):
    """Raised by `_object`, which cannot tell where it is."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; two equal names would silently hide one person behind another."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _NamedTwice
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def _what_json_expected(text: str, error: json.JSONDecodeError) -> str:
    before = text[: error.pos].rstrip()
    if error.pos >= len(text.rstrip()):
        return f"the file ends too early: {error.msg}"
    if before.endswith(",") and text[error.pos] in "]}":
        return f"a comma before {text[error.pos]!r}; expected none after the last item"
    return error.msg[:1].lower() + error.msg[1:]


def _first_double(text: str) -> tuple[KeyPath, int]:
    seen: set[KeyPath] = set()
    for path, start in _starts(text):
        if path in seen:
            return path, start
        seen.add(path)
    raise AssertionError("called for a text without doubles")


def _starts(text: str) -> Iterator[tuple[KeyPath, int]]:
    """The beginning of every name and every item in valid JSON, in order; an error message is worth a second look."""
    path: list[str | int] = []
    is_awaited = False  # a name in an object, an item in an array
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in "}]":
            path.pop()
            is_awaited = False
            continue
        if is_awaited:
            if isinstance(path[-1], str):
                path[-1] = json.loads(mark)
            yield tuple(path), token.start()
            is_awaited = False
        if mark in "{[":
            path.append("" if mark == "{" else 0)
            is_awaited = True
        elif mark == ",":
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else ""
            is_awaited = True


def _place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
