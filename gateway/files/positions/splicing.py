"""An entry put into, or taken out of, a YAML file that people write: every other character of it stays as it is.

A library that writes the whole file again moves comments to other sections and breaks lines anew. So the text of one
entry is put in its place, and the file is read again: if it does not say exactly what it is to say, it is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from gateway.errors import FileError
from gateway.files.positions.yaml import Yaml12Loader, parse_marked_yaml, value_at

_INDENT = 2
_COMMENT = re.compile(r"( *)#")
_KEPT_WIDTH = 1_000_000
BOM = "\ufeff"


class _Dumper(yaml.SafeDumper):
    """Quotes what is no text for YAML 1.2 or for YAML 1.1."""


_Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()),
        *Yaml12Loader.yaml_implicit_resolvers.get(first, ()),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *Yaml12Loader.yaml_implicit_resolvers}
}


class CannotSplice(FileError):
    """The file is written in a way in which an entry cannot be changed safely; the text says what to do by hand."""


def with_entry(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    """The text with `value` at `path`, where nothing stands yet; sections on the way are made where they are missing.

    Raises:
        CannotSplice: it cannot be put there.
    """
    values = _values(text)
    wanted = copy.deepcopy(values)
    section = wanted
    for key in path[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            raise CannotSplice(f"`{key}` is no section in the file; correct it first")
    section[path[-1]] = value
    by_hand = f"add it by hand:\n{_block(_nested(path, value), 0)}"
    return _proven(_put(text, path, value), wanted, by_hand)


def without_entry(text: str, path: Sequence[str]) -> str:
    """The text without what stands at `path`; a section that had nothing else goes with it.

    Raises:
        CannotSplice: it cannot be taken out.
    """
    values = _values(text)
    wanted = copy.deepcopy(values)
    while len(path) > 1 and len(value_at(values, tuple(path[:-1]))) == 1:
        path = path[:-1]
    del value_at(wanted, tuple(path[:-1]))[path[-1]]
    return _proven(_cut(text, path), wanted, f"take `{'.'.join(path)}` out by hand")


def _values(text: str) -> dict[str, Any]:
    document = parse_marked_yaml(text.encode(), "config.yaml")
    if document.problems:
        raise CannotSplice("\n".join(document.sorted_problems()))
    return document.values


def _proven(text: str, wanted: dict[str, Any], by_hand: str) -> str:
    document = parse_marked_yaml(text.encode(), "config.yaml")
    if document.problems or document.values != wanted:
        raise CannotSplice(f"the file is written in a way in which this cannot be changed safely; {by_hand}")
    return text


def _root(text: str) -> yaml.Node | None:
    node: yaml.Node | None = Yaml12Loader(text.removeprefix(BOM)).get_single_node()
    return node


def _put(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    node, shift = _root(text), len(text) - len(text.removeprefix(BOM))
    if not isinstance(node, yaml.MappingNode) or not node.value:
        return _inserted(text, len(text), _block(_nested(path, value), 0))
    for depth, key in enumerate(path):
        entry = _entry(node, key)
        if entry is None:
            return _added(text, shift, node, _nested(path[depth:], value))
        name, below = entry
        if isinstance(below, yaml.MappingNode) and below.value:
            node = below
            continue
        rest = _nested(path[depth + 1 :], value)
        if node.flow_style:
            return _replaced(text, shift, below, _flow(rest))
        bare = _replaced(text, shift, below, "") if below.end_mark.index > below.start_mark.index else text
        return _inserted(
            bare, _line_end(bare, name.end_mark.index + shift), _block(rest, name.start_mark.column + _INDENT)
        )
    raise CannotSplice(f"`{'.'.join(path)}` stands in the file already")


def _added(text: str, shift: int, node: yaml.MappingNode, entry: Mapping[str, Any]) -> str:
    """`entry` behind the last one of a mapping that has some."""
    last = _end(node.value[-1][1]) + shift
    if node.flow_style:
        return f"{text[:last]}, {_flow(entry)[1:-1]}{text[last:]}"
    column = node.value[0][0].start_mark.column
    return _inserted(text, _past_comments(text, _line_end(text, last), column), _block(entry, column))


def _cut(text: str, path: Sequence[str]) -> str:
    node, shift = _root(text), len(text) - len(text.removeprefix(BOM))
    for key in path[:-1]:
        entry = _entry(node, key)
        node = None if entry is None else entry[1]
    found = _entry(node, path[-1])
    if found is None or not isinstance(node, yaml.MappingNode):
        raise CannotSplice(f"`{'.'.join(path)}` does not stand in the file")
    name, value = found
    begin, end = name.start_mark.index + shift, _end(value) + shift
    if not node.flow_style:
        column = name.start_mark.column
        return text[: begin - column] + text[_past_comments(text, _line_end(text, end), column + 1) :]
    place = [key for key, _ in node.value].index(name)
    if place + 1 < len(node.value):
        return text[:begin] + text[node.value[place + 1][0].start_mark.index + shift :]
    return text[: _end(node.value[place - 1][1]) + shift if place else begin] + text[end:]


def _entry(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((name, value) for name, value in pairs if name.value == key), None)


def _end(node: yaml.Node) -> int:
    """Where the last character of a value is; the mark of a section stands behind the comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
    return int(node.end_mark.index)


def _line_end(text: str, index: int) -> int:
    """Where the next line begins; the same where one does."""
    if index and text[index - 1] == "\n":
        return index
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def _past_comments(text: str, index: int, column: int) -> int:
    """Behind the comments that stand as far in as `column`, with empty lines among them."""
    past = here = index
    while here < len(text):
        line = text[here : _line_end(text, here + 1)]
        comment = _COMMENT.match(line)
        here += len(line)
        if comment is not None and len(comment[1]) >= column:
            past = here
        elif line.strip():
            break
    return past


def _inserted(text: str, index: int, block: str) -> str:
    before, end = text[:index], "\r\n" if "\r\n" in text else "\n"
    if before and not before.endswith(("\n", BOM)):
        before += end
    return before + block.replace("\n", end) + text[index:]


def _replaced(text: str, shift: int, node: yaml.Node, by: str) -> str:
    return text[: node.start_mark.index + shift] + by + text[node.end_mark.index + shift :]


def _nested(path: Sequence[str], value: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value


def _block(value: Mapping[str, Any], column: int) -> str:
    """As lines; a list, and a section without further ones, in one line."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_KEPT_WIDTH, default_flow_style=None
    )
    return "".join(f"{' ' * column}{line}\n" for line in text.splitlines())


def _flow(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
