"""Changes to a YAML file that people write: every line that a change does not concern stays as it is, byte for byte.

A library that writes the whole file again loses that: `ruamel.yaml` gives a file other line ends, indents, spaces and
nulls. So each change is put at its place in the text, and the file is read again: if it does not say exactly what it is
to say, it is refused.
"""

from __future__ import annotations

import copy
import difflib
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, cast

import yaml

from gateway.errors import FileError
from gateway.files.positions.yaml import KeyPath, Yaml12Loader, dotted, parse_marked_yaml, value_at

BOM = "\ufeff"
_INDENT = 2
_COMMENT = re.compile(r"( *)#")
_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)*[ \t]*\Z")
_COMMA = re.compile(r"\s*,")
_FLOW_CHARS = 60
_ENDLESS = 1 << 30


class _Removed(Enum):
    REMOVED = "removed"


REMOVED: Final = _Removed.REMOVED
"""In place of a value: the key is taken out."""


class Layout(Protocol):
    """How people write such a file."""

    def keys(self, section: KeyPath) -> Sequence[str]:
        """The order of the keys in a section; those that are not named come last."""
        ...

    def is_open(self, section: KeyPath) -> bool:
        """Whether a section has a line for each of its keys, however short it is."""
        ...


class Plain:
    """New keys come last, and short sections are one line."""

    def keys(self, _section: KeyPath) -> Sequence[str]:
        """No order."""
        return ()

    def is_open(self, _section: KeyPath) -> bool:
        """None."""
        return False


class CannotSplice(FileError):
    """The file is written in a way in which it cannot be changed safely; the text says what to do by hand."""


def spliced(text: str, changes: Mapping[KeyPath, Any], layout: Layout | None = None) -> str:
    """The text with each value at its path, or without what is `REMOVED`.

    Sections on the way are made where they are missing, and go when their last key does, unless comments are in them.
    A section or a list that is given replaces what is there, and the lines of what both have stay.

    Args:
        text: YAML as `parse_marked_yaml` understands it; an empty one, too.
        changes: values of YAML; a number in a path is the place of an entry that the list has.

    Raises:
        CannotSplice: it cannot be done.
    """
    values = _values(text)
    wanted = copy.deepcopy(values)
    for path, value in changes.items():
        _apply(wanted, path, copy.deepcopy(value))
    splicer = _Splicer(text, layout or Plain())
    removed = [path for path, value in changes.items() if value is REMOVED]
    cleared = {(), *(path[:depth] for path in removed for depth in range(len(path)))}
    try:
        for step in _steps(values, wanted, (), cleared):
            splicer.take(step)
        found = _values(splicer.text)
    except (CannotSplice, yaml.YAMLError, ValueError, IndexError):
        found = None
    emptied = [path[:-1] for path in removed]
    if found is None or not _is_same(_without_empty(found, emptied), _without_empty(wanted, emptied)):
        raise CannotSplice(_by_hand(changes))
    return splicer.text


def _values(text: str) -> dict[str, Any]:
    document = parse_marked_yaml(text.encode(), "config.yaml")
    if document.problems:
        raise CannotSplice("\n".join(document.sorted_problems()))
    return document.values


def _is_same(one: Any, other: Any) -> bool:
    """Whether two trees of values are equal, with `true` and 1, and 1 and 1.0 told apart."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _by_hand(changes: Mapping[KeyPath, Any]) -> str:
    lines = [
        f"take `{dotted(path)}` out" if value is REMOVED else f"write there\n{_nested(path, value)}"
        for path, value in changes.items()
    ]
    return "the file is written in a way in which this cannot be changed safely; by hand: " + ", and ".join(lines)


def _nested(path: KeyPath, value: Any) -> str:
    for part in reversed(path):
        value = {part: value} if isinstance(part, str) else [value]
    return "".join(_entries((), value, 0, _Style(Plain(), _INDENT)))


def _apply(values: Any, path: KeyPath, value: Any) -> None:
    """Put one change into the values."""
    for depth, part in enumerate(path[:-1]):
        if isinstance(values, dict):
            if values.get(part) is None:
                if value is REMOVED:
                    return
                values[part] = {}
            values = values[part]
        else:
            values = values[int(part)] if isinstance(values, list) and part in range(len(values)) else None
        if not isinstance(values, dict | list):
            raise CannotSplice(f"`{dotted(path[: depth + 1])}` is no section in the file; correct it first")
    last = path[-1]
    if isinstance(values, list) and last not in range(len(values)):
        raise CannotSplice(f"`{dotted(path)}` is not in the file, whose list has {len(values)} entries")
    if value is not REMOVED:
        values[last] = value
    elif isinstance(values, list):
        values.pop(int(last))
    else:
        values.pop(last, None)


def _without_empty(values: Any, paths: Sequence[KeyPath]) -> Any:
    """The values without the sections at `paths` that have become empty, and those that have nothing but these."""
    for path in paths:
        here = path
        while here and value_at(values, here) in ({}, None):
            above = value_at(values, here[:-1])
            if isinstance(above, dict):
                above.pop(here[-1], None)
            here = here[:-1]
    return values


# ---- what is to be done ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """One change of the text: what stands at the path goes, gets another value, or is new there."""

    do: str
    path: KeyPath
    value: Any = None


def _steps(old: Any, new: Any, path: KeyPath, cleared: Collection[KeyPath]) -> Iterator[_Step]:
    """From the old values to the new ones; what both have is in none of them.

    Args:
        cleared: sections of which keys are taken out, and not the whole.
    """
    if isinstance(old, dict) and isinstance(new, dict) and ((old and new) or path in cleared):
        for key in [key for key in old if key in new and not _is_same(old[key], new[key])]:
            yield from _steps(old[key], new[key], (*path, key), cleared)
        yield from (_Step("put", (*path, key), new[key]) for key in new if key not in old)
        yield from (_Step("cut", (*path, key)) for key in old if key not in new)
    elif isinstance(old, list) and isinstance(new, list) and old and new:
        yield from _list_steps(old, new, path)
    else:
        yield _Step("set", path, new)


def _list_steps(old: list[Any], new: list[Any], path: KeyPath) -> Iterator[_Step]:
    """From the last entry to the first, so that the places of those before stay right; what is new comes first."""
    one, other = ([json.dumps(item, sort_keys=True) for item in items] for items in (old, new))
    found = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    for what, begin, end, first, last in reversed(found):
        if what == "equal":
            continue
        shared = min(end - begin, last - first)
        yield from (_Step("put", (*path, end), new[place]) for place in reversed(range(first + shared, last)))
        yield from (_Step("cut", (*path, place)) for place in reversed(range(begin + shared, end)))
        for place in reversed(range(shared)):
            yield from _steps(old[begin + place], new[first + place], (*path, begin + place), ())


# ---- how values are written ------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Quotes what is no text for YAML 1.2 or for YAML 1.1, and writes each text in one line."""

    def ignore_aliases(self, _data: Any) -> bool:
        """The same list twice is written twice."""
        return True


_Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()),
        *Yaml12Loader.yaml_implicit_resolvers.get(first, ()),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *Yaml12Loader.yaml_implicit_resolvers}
}


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


@dataclass(frozen=True, slots=True)
class _Style:
    layout: Layout
    indent: int


def _inline(value: Any, quote: str | None = None, *, is_flow: bool = False) -> str:
    """In one line; a text with the quotes that the old one had.

    Args:
        is_flow: it is to stand within `[]` or `{}`.
    """
    node = _Dumper(io.StringIO(), sort_keys=False).represent_data({"k": [value] if is_flow else value})
    below = cast("yaml.MappingNode", node).value[0][1]
    below.flow_style = True
    if quote in ("'", '"') and isinstance(value, str) and value.isprintable():
        (below.value[0] if is_flow else below).style = quote
    text: str = yaml.serialize(node, Dumper=_Dumper, allow_unicode=True, width=_ENDLESS)
    text = text.removeprefix("k:").strip()
    return text.removeprefix("[").removesuffix("]") if is_flow else text


def _entries(path: KeyPath, values: Mapping[str, Any], column: int, style: _Style) -> Iterator[str]:
    """The lines of a section."""
    for key, value in values.items():
        yield from _entry_lines((*path, key), key, value, column, style)


def _entry_lines(path: KeyPath, key: str, value: Any, column: int, style: _Style) -> Iterator[str]:
    name = f"{' ' * column}{_inline(key, is_flow=True)}:"
    if isinstance(value, dict) and value and not _is_short(path, value, style):
        yield f"{name}\n"
        yield from _entries(path, value, column + style.indent, style)
    elif isinstance(value, str) and _is_literal(value):
        yield f"{name} {'|' if value.endswith(chr(10)) else '|-'}\n"
        lines = value.removesuffix("\n").split("\n")
        yield from (f"{' ' * (column + style.indent)}{line}\n" if line else "\n" for line in lines)
    else:
        yield f"{name} {_inline(value)}\n"


def _is_short(path: KeyPath, values: Mapping[str, Any], style: _Style) -> bool:
    """Whether a section is written in one line."""
    if any(isinstance(value, dict) or (isinstance(value, str) and _is_literal(value)) for value in values.values()):
        return False
    return len(values) == 1 or (not style.layout.is_open(path) and len(_inline(values)) <= _FLOW_CHARS)


def _is_literal(text: str) -> bool:
    """Whether it has several lines, and can be written as they are."""
    lines = text.removesuffix("\n").split("\n")
    return len(lines) > 1 and all(
        line.isprintable() and line == line.rstrip() and not line.startswith(BOM) for line in lines
    ) and bool(lines[0].strip() == lines[0] != "" and lines[-1])  # fmt: skip


# ---- where they are put ----------------------------------------------------------------------------------------------


class _Splicer:
    """A text, and the changes that it takes one after the other."""

    def __init__(self, text: str, layout: Layout) -> None:
        self.text = text
        self._shift = len(text) - len(text.removeprefix(BOM))
        self._layout = layout
        self._root: yaml.Node | None = None

    def take(self, step: _Step) -> None:
        """Change the text."""
        self._root = Yaml12Loader(self.text[self._shift :]).get_single_node()
        if not isinstance(self._root, yaml.MappingNode) or not self._root.value:
            if self._root is not None and self._root.value:
                raise CannotSplice("no mapping")
            self._insert(len(self.text), "".join(_entries((), {str(step.path[0]): step.value}, 0, self._style)))
            return
        above = self._node_at(step.path[:-1])
        if isinstance(above, yaml.SequenceNode):
            self._take_item(above, step)
        elif isinstance(above, yaml.MappingNode):
            self._take_key(above, step)
        else:
            raise CannotSplice("no section")

    @property
    def _style(self) -> _Style:
        root = self._root
        pairs = root.value if isinstance(root, yaml.MappingNode) else ()
        columns = [
            below.value[0][0].start_mark.column
            for _, below in pairs
            if isinstance(below, yaml.MappingNode) and not below.flow_style and below.value
        ]
        return _Style(self._layout, columns[0] if columns else _INDENT)

    def _node_at(self, path: KeyPath) -> yaml.Node | None:
        node = self._root
        for part in path:
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                node = node.value[part]
            else:
                entry = _entry(node, part)
                node = None if entry is None else entry[1]
        return node

    def _take_key(self, section: yaml.MappingNode, step: _Step) -> None:
        key = str(step.path[-1])
        entry = _entry(section, key)
        if step.do == "cut":
            self._cut_key(section, key, step.path)
        elif entry is None:
            self._put_key(section, key, step)
        elif section.flow_style:
            self._set_in_flow(entry, step.value)
        else:
            self._set_key(entry, step)

    # -- a key of a section

    def _put_key(self, section: yaml.MappingNode, key: str, step: _Step) -> None:
        if section.flow_style:
            added = f"{_inline(key, is_flow=True)}: {_inline(step.value, is_flow=True)}"
            end = self._end(section.value[-1][1]) if section.value else section.start_mark.index + 1 + self._shift
            self._replace(end, end, f", {added}" if section.value else added)
            return
        column = section.value[0][0].start_mark.column
        block = "".join(_entry_lines(step.path, key, step.value, column, self._style))
        place = self._place_of(section, key, column, step.path[:-1])
        if column == 0 and block.count("\n") > 1 and re.search(r"\n[ \t]*\r?\n", self.text):
            block = self._with_distance(place, block)
        self._insert(place, block)

    def _with_distance(self, place: int, block: str) -> str:
        """Empty lines around a section, where the file has them."""
        before = self.text[:place].rstrip(" \t").removesuffix("\n").removesuffix("\r")
        is_apart = not before or before.endswith("\n")
        after = self.text[place : _line_end(self.text, place + 1)] if place < len(self.text) else "\n"
        return f"{'' if is_apart else chr(10)}{block}{chr(10) if after.strip() else ''}"

    def _place_of(self, section: yaml.MappingNode, key: str, column: int, path: KeyPath) -> int:
        """Where a new key goes: behind its line that is switched off, or else as the layout has it."""
        first, last = section.value[0], section.value[-1]
        begin = self._line_begin(first[0].start_mark.index + self._shift)
        end = self._past_comments(_line_end(self.text, self._end(last[1])), column)
        off = self._switched_off(0 if column == 0 else begin, end, column, key)
        if off is not None:
            return off
        order = self._layout.keys(path)
        if key not in order:
            return end
        before = {name: place for place, name in enumerate(order[: order.index(key)])}
        there = [pair for pair in section.value if pair[0].value in before]
        if not there:
            return self._above(begin, column)
        nearest = max(there, key=lambda pair: before[pair[0].value])
        if nearest is last:
            return end
        return self._past_comments(_line_end(self.text, self._end(nearest[1])), column + 1)

    def _switched_off(self, begin: int, end: int, column: int, key: str) -> int | None:
        """Behind `#key: …` and the lines below it that are switched off, too."""
        margin = f"^ {{{column}}}#"
        found = re.compile(
            rf"{margin}{re.escape(key)}:(?: [^\n]*)?\r?(?:\n|\Z)(?:{margin} {{2,}}[^\n]*(?:\n|\Z))*", re.MULTILINE
        )
        matches = list(found.finditer(self.text, begin, end))
        return matches[-1].end() if matches else None

    def _above(self, begin: int, column: int) -> int:
        """Above the comment of the first key, unless the file begins with it: then it may be about the whole file."""
        place = begin
        while place:
            above = self._line_begin(place - 1)
            comment = _COMMENT.match(self.text, above)
            if comment is None or len(comment[1]) != column:
                return place
            place = above
        return begin

    def _set_key(self, entry: tuple[yaml.Node, yaml.Node], step: _Step) -> None:
        name, old = entry
        value, column = step.value, name.start_mark.column
        if isinstance(old, yaml.MappingNode) and old.value and isinstance(value, dict) and value:
            for key in value:  # what stands there are keys without a value
                self.take(_Step("put", (*step.path, key), value[key]))
            return
        quote = old.style if isinstance(old, yaml.ScalarNode) else None
        colon = self.text.index(":", name.end_mark.index + self._shift) + 1
        self._bare(name, old, colon)
        is_section = isinstance(value, dict) and value and not (old.value and _is_short(step.path, value, self._style))
        line = self.text[colon : _line_end(self.text, colon)]
        if is_section or (isinstance(value, str) and _is_literal(value) and not line.strip()):
            style = self._style
            inner = column + style.indent
            lines = ["k:\n", *_entries(step.path, value, inner, style)] if is_section else []
            lines = lines or list(_entry_lines(step.path, "k", value, column, style))
            self._replace(colon, colon, lines[0].rstrip("\n").partition(":")[2])
            below = _line_end(self.text, colon)
            off = None
            if is_section and len(value) == 1:
                off = self._switched_off(below, self._past_comments(below, column + 1), inner, next(iter(value)))
            self._insert(off or below, "".join(lines[1:]))
        else:
            self._replace(colon, colon, f" {_inline(value, quote)}")

    def _bare(self, name: yaml.Node, old: yaml.Node, colon: int) -> None:
        """Take the value away behind its key; a comment behind the key stays."""
        begin, end = old.start_mark.index + self._shift, self._end(old)
        if isinstance(old, yaml.CollectionNode) and not old.flow_style:
            if old.start_mark.line == name.start_mark.line:
                raise CannotSplice("in one line with its key")
            self._replace(_line_end(self.text, colon), _line_end(self.text, end), "")
        elif end > begin:
            self._replace(colon, end, "")

    def _cut_key(self, section: yaml.MappingNode, key: str, path: KeyPath) -> None:
        entry = _entry(section, key)
        if entry is None:
            raise CannotSplice("not there")
        name, value = entry
        begin, end, column = name.start_mark.index + self._shift, self._end(value), name.start_mark.column
        past = end if section.flow_style else self._past_comments(_line_end(self.text, end), column + 1)
        if len(section.value) == 1 and len(path) > 1:
            above = self._node_at(path[:-2])
            over = _entry(above, path[-2])
            if isinstance(above, yaml.MappingNode) and over and not self._has_more(over, begin, past):
                self._cut_key(above, str(path[-2]), path[:-1])
                return
        if section.flow_style:
            self._cut_in_flow(section.value, section.value.index(entry), begin, end)
        else:
            self._replace(begin - column, past, "")

    def _has_more(self, entry: tuple[yaml.Node, yaml.Node], begin: int, end: int) -> bool:
        """Whether a section has comments besides its only key, which begins and ends there."""
        name, section = entry
        head = self.text[self.text.index(":", name.end_mark.index + self._shift) + 1 : begin]
        if isinstance(section, yaml.MappingNode) and section.flow_style:
            return "#" in head + self.text[end : section.end_mark.index + self._shift]
        return bool((head + self.text[end : self._past_comments(end, name.start_mark.column + 1)]).strip())

    # -- within `{}` and `[]`

    def _set_in_flow(self, entry: tuple[yaml.Node, yaml.Node], value: Any) -> None:
        name, old = entry
        begin, end = old.start_mark.index + self._shift, self._end(old)
        quote = old.style if isinstance(old, yaml.ScalarNode) else None
        if end > begin:
            self._replace(begin, end, _inline(value, quote, is_flow=True))
        else:
            colon = self.text.index(":", name.end_mark.index + self._shift) + 1
            self._replace(colon, colon, f" {_inline(value, is_flow=True)}")

    def _cut_in_flow(self, pairs: Sequence[tuple[yaml.Node, yaml.Node]], place: int, begin: int, end: int) -> None:
        """With the comma behind it, or the one before; a comment in the same line stays."""
        if place + 1 < len(pairs):
            following = pairs[place + 1][0].start_mark.index + self._shift
            comma = self.text.index(",", end) + 1
            self._replace(begin, comma if "\n" in self.text[comma:following] else following, "")
            return
        before = self._end(pairs[place - 1][1]) if place else begin
        if "\n" in self.text[before:begin]:
            found = _COMMA.match(self.text, end)
            self._replace(begin, found.end() if found else end, "")
        else:
            self._replace(before, end, "")

    # -- an entry of a list

    def _take_item(self, items: yaml.SequenceNode, step: _Step) -> None:
        place = int(step.path[-1])
        item = items.value[place] if place < len(items.value) else None
        if step.do == "set" and item is not None:
            quote = item.style if isinstance(item, yaml.ScalarNode) else None
            self._replace(
                item.start_mark.index + self._shift, self._end(item), _inline(step.value, quote, is_flow=True)
            )
        elif items.flow_style and step.do == "put":
            at = self._end(items.value[-1]) if item is None else item.start_mark.index + self._shift
            text = _inline(step.value, is_flow=True)
            self._replace(at, at, f", {text}" if item is None else f"{text}, ")
        elif items.flow_style and item is not None:
            begin, end = item.start_mark.index + self._shift, self._end(item)
            self._cut_in_flow([(one, one) for one in items.value], place, begin, end)
        else:
            self._take_line(items, place, step)

    def _take_line(self, items: yaml.SequenceNode, place: int, step: _Step) -> None:
        """Put or cut an entry of a list that has a line for each."""
        column = items.start_mark.column
        if step.do == "cut":
            end = _line_end(self.text, self._end(items.value[place]))
            self._replace(self._dash(items.value[place], column), self._past_comments(end, column + 1), "")
        elif place:
            begin = self._past_comments(_line_end(self.text, self._end(items.value[place - 1])), column + 1)
            self._insert(begin, f"{' ' * column}- {_inline(step.value, is_flow=True)}\n")
        else:
            self._insert(self._dash(items.value[0], column), f"{' ' * column}- {_inline(step.value, is_flow=True)}\n")

    def _dash(self, item: yaml.Node, column: int) -> int:
        """Where the line of an entry begins."""
        place = self._line_begin(item.start_mark.index + self._shift)
        while self.text[place : place + column + 1] != f"{' ' * column}-":
            if not place:
                raise CannotSplice("no dash")
            place = self._line_begin(place - 1)
        return place

    # -- the text

    def _end(self, node: yaml.Node) -> int:
        """Behind the last character of a value; the mark of a section stands behind the comments that follow it."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self._end(last[1] if isinstance(node, yaml.MappingNode) else last)
        end = int(node.end_mark.index) + self._shift
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            blank = _BLANK_LINES.search(self.text, node.start_mark.index + self._shift, end)
            return blank.start() if blank else end
        return end

    def _line_begin(self, index: int) -> int:
        return max(self.text.rfind("\n", 0, index) + 1, self._shift)

    def _past_comments(self, index: int, column: int) -> int:
        """Behind the comments that stand as far in as `column`, with empty lines among them."""
        past = here = index
        while here < len(self.text):
            line = self.text[here : _line_end(self.text, here + 1)]
            comment = _COMMENT.match(line)
            here += len(line)
            if comment is not None and len(comment[1]) >= column:
                past = here
            elif line.strip():
                break
        return past

    def _insert(self, index: int, block: str) -> None:
        """Put whole lines in front of one, with the line ends of the file."""
        before, end = self.text[:index], "\r\n" if "\r\n" in self.text else "\n"
        if before and not before.endswith(("\n", BOM)):
            before += end
        self.text = before + block.replace("\n", end) + self.text[index:]

    def _replace(self, begin: int, end: int, by: str) -> None:
        self.text = self.text[:begin] + by + self.text[end:]


def _entry(node: yaml.Node | None, key: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((name, value) for name, value in pairs if name.value == key), None)


def _line_end(text: str, index: int) -> int:
    """Where the next line begins; the same where one does."""
    if index and text[index - 1] == "\n":
        return index
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1
