"""The text of `SKILL.md`: what stands between its two lines `---`, and the instructions below.

The format: https://agentskills.io/specification (2026-11). What it asks for beyond a description is cosmetic to us: it
is said, and the skill works.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unicodedata import normalize

import yaml

from gateway.domain.visible import hidden_note

MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_024
MAX_COMPATIBILITY_CHARS = 500
MAX_FRONT_MATTER_CHARS = 20_000
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_LINE = re.compile(r"( *)([\w-]+):[ \t]+(\S.*)")
_QUOTED_ALREADY = ('"', "'", "|", ">")
_NEEDS_QUOTES = re.compile(r":(?:\s|$)| #|^[@`%&*!\[{]")
_MAX_DEPTH = 8
# An escape in quotes can make them of what looks harmless; no store and no model takes them.
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a skill, in words for people; `is_fatal`: it is left out."""

    text: str
    is_fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """What a skill says of itself, and its instructions.

    Attributes:
        allowed_tools: as it is written; it allows nothing.
    """

    name: str
    description: str
    body: str
    license: str = ""
    compatibility: str = ""
    allowed_tools: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def parse(data: bytes, directory: str) -> tuple[FrontMatter | None, Sequence[Fault]]:
    """Read `SKILL.md` of a directory; None where the skill cannot be used, and all faults in any case."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return None, [Fault(f"SKILL.md is not UTF-8 (byte {error.start}); save it as UTF-8", is_fatal=True)]
    if "\0" in text:
        return None, [Fault("SKILL.md holds the character NUL, so it is no text; take it out", is_fatal=True)]
    faults: list[Fault] = []
    if text.startswith("\ufeff"):
        faults.append(Fault("SKILL.md begins with a byte order mark; save it without"))
        text = text[1:]
    text = text.replace("\r\n", "\n")
    begin = _FENCE.match(text)
    end = _FENCE.search(text, begin.end()) if begin else None
    if begin is None or end is None:
        how = "SKILL.md has no front matter; it begins with a line `---`, name and description, and a line `---`"
        return None, [*faults, Fault(how, is_fatal=True)]
    values = _values(text[begin.end() : end.start()], faults)
    if values is None:
        return None, faults
    return _checked(values, text[end.end() :].strip(), directory, faults), faults


def name_faults(name: str) -> Sequence[str]:
    """Why a text is not the name of a skill."""
    found = []
    if len(name) > MAX_NAME_CHARS:
        found.append(f"has {len(name)} characters, and {MAX_NAME_CHARS} are the most")
    if name != name.lower():
        found.append("has capital letters")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        found.append("has a hyphen at an end, or two in a row")
    if not name or not all(char.isalnum() or char == "-" for char in name):
        found.append("has other characters than letters, digits and hyphens")
    return found


def _values(text: str, faults: list[Fault]) -> Mapping[str, Any] | None:
    """All values as they are written, each a text; None where they cannot be read."""
    if len(text) > MAX_FRONT_MATTER_CHARS:
        most = f"the front matter has {len(text)} characters, and {MAX_FRONT_MATTER_CHARS} are the most"
        faults.append(Fault(most, is_fatal=True))
        return None
    try:
        values = _loaded(text, faults)
    except yaml.YAMLError as error:
        mended, lines = _quoted(text)
        try:
            values = _loaded(mended, faults)
        except yaml.YAMLError:
            why = f"the front matter is no YAML: {_reason(error)}"
            faults.append(Fault(f"{why}; write one `key: value` in a line", is_fatal=True))
            return None
        signs = f"{' and '.join(lines)}: a colon or a sign that needs quotes; put quotes around the whole value"
        faults.append(Fault(signs if lines else "a tab stands behind a colon; write a space"))
    if not isinstance(values, dict):
        faults.append(Fault("the front matter has no keys; expected name and description", is_fatal=True))
        return None
    return values


def _loaded(text: str, faults: list[Fault]) -> Any:
    """The values, each scalar as a text. What YAML can do beyond that is a fault, and aliases are not followed."""
    found: list[Fault] = []
    depth = 0
    for event in _events(text):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases (`*name`) are not followed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise yaml.YAMLError("it is nested too deep")
        if isinstance(event, yaml.CollectionStartEvent) and event.flow_style:
            line = event.start_mark.line + 1 if event.start_mark else 1
            found.append(Fault(f"line {line} of SKILL.md: [ ] or {{ }}, which the format does not have; write lines"))
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(node, yaml.MappingNode):
        keys = [str(key.value) for key, _ in node.value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        found += [Fault(f"{key} stands there twice; the last one counts") for key in twice]
    values = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 (it makes texts, lists and mappings alone)
    faults += found
    return values


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.ScalarEvent) and _NO_TEXT.search(event.value):
                raise yaml.YAMLError("an escape in it makes a control character, or half of one")
            yield event
    except (ValueError, OverflowError) as error:  # of `chr`
        raise yaml.YAMLError("an escape in it is of no character that there is") from error


def _quoted(text: str) -> tuple[str, Sequence[str]]:
    """The same with quotes around values that need them and have none, and the keys of those."""
    lines: list[str] = []
    keys: list[str] = []
    open_value: list[str] = []  # indent, key, and the pieces of a value that has no quotes

    def close() -> None:
        if open_value:
            indent, key, *pieces = open_value
            value = " ".join(pieces)
            if _NEEDS_QUOTES.search(value):
                keys.append(key)
                value = json.dumps(value, ensure_ascii=False)
            lines.append(f"{indent}{key}: {value}")
            open_value.clear()

    for line in text.split("\n"):
        found = _LINE.fullmatch(line.rstrip())
        is_continued = open_value and line.startswith(f"{open_value[0]} ") and line.strip()
        if found and not found[3].startswith(_QUOTED_ALREADY) and not is_continued:
            close()
            open_value[:] = found.groups()
        elif is_continued:
            open_value.append(line.strip())
        else:
            close()
            lines.append(line)
    close()
    return "\n".join(lines), keys


def _reason(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f" in line {mark.line + 1}" if mark is not None else ""
    return f"{getattr(error, 'problem', None) or error}{place}"


def _checked(values: Mapping[str, Any], body: str, directory: str, faults: list[Fault]) -> FrontMatter | None:
    faults += [
        Fault(f"{key!r} is no key of the format; there are {', '.join(FIELDS)}")
        for key in sorted(set(values) - set(FIELDS))
    ]
    texts = {key: _text(values, key, faults) for key in FIELDS if key != "metadata"}
    name = _name(texts["name"], directory, faults)
    description = texts["description"]
    if not description:
        faults.append(Fault("the description is missing, by which the agent knows when to use it", is_fatal=True))
    for key, most in (("description", MAX_DESCRIPTION_CHARS), ("compatibility", MAX_COMPATIBILITY_CHARS)):
        if len(texts[key]) > most:
            faults.append(Fault(f"the {key} has {len(texts[key])} characters, and {most} are the most"))
    note = hidden_note(description)
    if note:
        faults.append(Fault(f"the description {note}, which you do not see and the agent reads"))
    if name is None or not description:
        return None
    return FrontMatter(
        name=name,
        description=description,
        body=body,
        license=texts["license"],
        compatibility=texts["compatibility"],
        allowed_tools=texts["allowed-tools"],
        metadata=dict(_pairs(values.get("metadata"), faults)),
    )


def _text(values: Mapping[str, Any], key: str, faults: list[Fault]) -> str:
    value = values.get(key, "")
    if isinstance(value, str):
        return value.strip()
    faults.append(Fault(f"{key} is not one text; write it in one line"))
    return " ".join(map(str, value)) if isinstance(value, list) else ""


def _pairs(values: Any, faults: list[Fault]) -> Iterator[tuple[str, str]]:
    if isinstance(values, dict):
        yield from ((str(key), value if isinstance(value, str) else str(value)) for key, value in values.items())
    elif values:
        faults.append(Fault("metadata is no list of `key: value`"))


def _name(given: str, directory: str, faults: list[Fault]) -> str | None:
    """The name that counts: the given one, else that of the directory; None where neither is one."""
    name, place = normalize("NFKC", given), normalize("NFKC", directory)
    wrong = name_faults(name) if name else ["is missing"]
    if not wrong:
        if name != place:
            faults.append(Fault(f"the directory is called {directory!r}, and the skill {name!r}; give both one name"))
        return name
    is_mended = not name_faults(place)
    then = f"; it is called {place!r}, as its directory is" if is_mended else ""
    shown = f"the name {given!r}" if given else "the name"
    faults.append(Fault(f"{shown} {', '.join(wrong)}{then}", is_fatal=not is_mended))
    return place if is_mended else None
