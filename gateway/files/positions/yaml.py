"""A YAML file that people write, read so that every complaint names its line and column.

Understands the part of YAML 1.2 that a configuration needs: mappings, lists and plain values. Anchors, aliases, tags
and several documents in one file are refused. `yes`, `on`, `010` and `12:30` are text, as YAML 1.2 has it.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

KeyPath = tuple[str | int, ...]
"""The way to a value: keys of mappings and places in lists."""

MAX_FILE_BYTES = 1 << 20
_MAX_DEPTH = 40
_MAX_DIGITS = 30
_NO_TEXT = re.compile("[\0\ud800-\udfff]")

# PyYAML's words, and what a person should do. The first match counts.
_HINTS = (
    ("character '\\t'", "a tab; expected spaces"),
    ("mapping values are not allowed", "a second `: ` in a line, or a wrong indent; expected quotes around such text"),
    ("could not find expected ':'", "a line without `: `; expected `key: value`"),
    ("expected <block end>", "the indentation does not fit; expected the keys of one section in one column"),
    ("unexpected end of stream", "a quote that is never closed; expected its end"),
    ("unknown escape character", "an unknown escape in double quotes; expected `\\\\` for a backslash"),
    ("expected ',' or", "a `[` or `{` that is never closed; expected `,` or its end"),
    ("expected a single document", "a second document; expected only one, without `---`"),
    ("found character", "a character that must stand in quotes; expected quotes around the text"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a file.

    Attributes:
        path: dotted, empty where the file as a whole is meant.
        text: what is wrong, and after a semicolon what was expected.
    """

    file: str
    place: Place
    path: str
    text: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.place.line}:{self.place.column}"
        return f"{where}: {self.path}: {self.text}" if self.path else f"{where}: {self.text}"


@dataclass(slots=True)
class MarkedYaml:
    """The values of a file, and where each of them stands.

    Attributes:
        name: of the file, as problems show it.
        values: the mapping at the top; empty for an empty file.
        is_readable: the text was YAML with a mapping at the top; else `values` says nothing.
        keys: the place of each key (of each item, in a list).
        places: the place of each value.
    """

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    is_readable: bool = True
    problems: list[Problem] = field(default_factory=list)
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    places: dict[KeyPath, Place] = field(default_factory=dict)

    def complain(self, path: KeyPath, text: str, *, at_key: bool = False) -> None:
        """Note a problem with the value at `path`, or the nearest thing above it that stands in the file."""
        first, second = (self.keys, self.places) if at_key else (self.places, self.keys)
        known = path
        while known and known not in self.places:
            known = known[:-1]
            first, second = self.keys, self.places
        place = first.get(known) or second.get(known) or Place(1, 1)
        self.problems.append(Problem(self.name, place, dotted(path), text))

    def sorted_problems(self) -> list[str]:
        """Every problem once, from the top of the file to its end."""
        ordered = sorted(self.problems, key=lambda problem: (problem.place.line, problem.place.column))
        return list(dict.fromkeys(map(str, ordered)))


def dotted(path: KeyPath) -> str:
    """Write a path as people do: `models.cloud.fallbacks[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text if text.isprintable() else repr(text)


def read_marked_yaml(path: Path, name: str) -> MarkedYaml:
    """Read a file; whatever is wrong with it is among the problems of the result.

    Raises:
        FileNotFoundError: there is no such file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return _unreadable(name, "not a file; expected a text file in YAML")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        return _unreadable(name, f"{path} cannot be read: {error.strerror}; expected a file that this user may read")
    if len(data) > MAX_FILE_BYTES:
        return _unreadable(name, f"larger than {MAX_FILE_BYTES} bytes; expected a file that people write by hand")
    return parse_marked_yaml(data, name)


def parse_marked_yaml(data: bytes, name: str) -> MarkedYaml:
    """As `read_marked_yaml`, for the bytes of a file."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        return _unreadable(name, f"byte 0x{data[error.start]:02x} is not UTF-8; expected UTF-8 text", end_of(before))
    try:
        loader = Yaml12Loader(text)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        what = "a NUL character" if error.character == 0 else f"the character U+{error.character:04X}"
        return _unreadable(name, f"{what}; expected text", end_of(text[: error.position]))
    except yaml.MarkedYAMLError as error:
        return _unreadable(name, _explain(error), _place_of(error.problem_mark or error.context_mark))
    document = MarkedYaml(name)
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        return document
    if not isinstance(node, yaml.MappingNode):
        return _unreadable(name, "not a mapping; expected `key: value` lines", _place_of(node.start_mark))
    document.values = _mapping(node, (), document)
    return document


def _unreadable(name: str, text: str, place: Place | None = None) -> MarkedYaml:
    return MarkedYaml(name, is_readable=False, problems=[Problem(name, place or Place(1, 1), "", text)])


def end_of(text: str) -> Place:
    """The place behind the last character of `text`."""
    return Place(text.count("\n") + 1, len(text) - text.rfind("\n"))


def _place_of(mark: yaml.Mark | None) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)


def _explain(error: yaml.MarkedYAMLError) -> str:
    if isinstance(error, _NotUnderstood):
        return str(error.problem)
    words = f"{error.context or ''} {error.problem or ''}"
    for sign, hint in _HINTS:
        if sign in words:
            return hint
    return f"not valid YAML ({error.problem}); expected `key: value` lines"


class _NotUnderstood(yaml.MarkedYAMLError):
    """YAML that a configuration does not need; `problem` is meant for people as it is."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(None, None, problem, mark)


class Yaml12Loader(yaml.SafeLoader):
    """PyYAML's own, with the plain values of YAML 1.2 and without aliases."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own design)
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse what a configuration does not need, and what could be made to grow without end."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise _NotUnderstood(f"`{sign}{anchor}`; expected no anchors and aliases", event.start_mark)
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _NotUnderstood(
                f"the tag `{tag}`; expected no tags (quote a text that begins with `!`)", event.start_mark
            )
        if self.depth >= _MAX_DEPTH:
            raise _NotUnderstood(f"nested too deep; expected at most {_MAX_DEPTH} levels", event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    Yaml12Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def _mapping(node: yaml.MappingNode, path: KeyPath, document: MarkedYaml) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = _place_of(key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode):
            problem = Problem(document.name, place, dotted(path), "a key that is no word; expected `key: value`")
            document.problems.append(problem)
            continue
        key = key_node.value
        here = (*path, key)
        if here in document.keys:
            first = document.keys[here].line
            text = f"this key stands twice, first in line {first}; expected it once"
            document.problems.append(Problem(document.name, place, dotted(here), text))
            continue
        document.keys[here] = place
        value = _value(value_node, here, document)
        if value is not None or value_node.value:  # `key:` with nothing behind it is as if it was left out
            values[key] = value
    return values


def _value(node: yaml.Node, path: KeyPath, document: MarkedYaml) -> Any:
    document.places[path] = _place_of(node.start_mark)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            document.keys[*path, index] = _place_of(item.start_mark)
        return [_value(item, (*path, index), document) for index, item in enumerate(node.value)]
    return _scalar(node, path, document)


def _scalar(node: yaml.Node, path: KeyPath, document: MarkedYaml) -> Any:
    text: str = node.value
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" if len(text) <= _MAX_DIGITS:
            return int(text)
        case "float":
            return float(text)
    if _NO_TEXT.search(text):  # an escape in double quotes
        document.complain(path, "a NUL or half a character; expected text")
    return text


def walk_text(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every text in a tree of values, with the way to it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk_text(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from walk_text(item, (*path, index))


def value_at(values: Any, path: KeyPath) -> Any:
    """The value at `path`, None where there is none."""
    for part in path:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def put_at(values: Any, path: KeyPath, value: Any) -> None:
    """Put `value` in place of what stands at `path`, which must exist."""
    for part in path[:-1]:
        values = values[part]
    values[path[-1]] = value
