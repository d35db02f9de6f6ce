"""Every key of the configuration as a person is asked for it: its group and text, what it may be, and its default.

Texts and groups are those of `config.example.yaml`; types and limits those of the models, and of the packages that a
channel, a memory, a service or a tool names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo

from gateway.config import ChannelConfig, Config, ProviderConfig
from gateway.config.changes import AT_ONCE
from gateway.config.channel_kinds import known_kinds, load_kind
from gateway.config.example import NAMED, read_example
from gateway.config.memory_kinds import load_memory_kind
from gateway.config.packages import Kind, KindUnusable
from gateway.config.search_kinds import load_search_kind
from gateway.config.speech import LISTENING, SPEAKING, ServiceConfig, load_speech_kind
from gateway.config.web import SearchConfig
from gateway.errors import EthosError
from gateway.files.positions.yaml import KeyPath, dotted, parse_marked_yaml, value_at

Control = Literal["switch", "choice", "number", "text", "long", "secret", "list", "yaml", "entries"]
"""How it is asked for: `long` is a text of several lines, `yaml` a value of several parts, `entries` a section whose
keys are names."""
_PARTS = re.compile(r'"((?:[^"\\]|\\.)*)"|\[(\d+)\]|([^.\[\]"]+)')
_PLAIN = re.compile(r"[^.\[\]\"\s]+")
_LONG_CHARS = 500
_SWITCHES = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_NOT_LISTED = {"settings", "fault"}


class NoSuchKey(EthosError):
    """That is no key; the text says what would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One key.

    Attributes:
        text: what it is for.
        default: as it would stand in the file; None where it has none.
        choices: what it may be; of a list, what its entries may be.
        at_least, more_than, at_most: limits of a number.
        is_whole: of a number, without a fraction.
        is_nullable: it may be `null`.
        is_required: its section needs it.
        at_restart: it is taken over by a restart only.
    """

    path: KeyPath
    group: str
    text: str
    control: Control
    default: Any = None
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    more_than: float | None = None
    at_most: float | None = None
    is_whole: bool = False
    is_nullable: bool = False
    is_required: bool = False
    at_restart: bool = False

    @property
    def key(self) -> str:
        """As people write it; a name with a dot in it stands in quotes."""
        return written_key(self.path)


def written_key(path: KeyPath) -> str:
    """A path as one text that `path_of_key` understands: `models."gpt-5.4".timeout_s`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            quoted = part.replace("\\", "\\\\").replace('"', '\\"')
            name = part if _PLAIN.fullmatch(part) else f'"{quoted}"'
            text += f".{name}" if text else name
    return text


def path_of_key(key: str, values: Mapping[str, Any]) -> KeyPath:
    """The path that a text means; a name with dots that is in `values` needs no quotes.

    Raises:
        NoSuchKey: the text is no key.
    """
    parts: list[str | int] = []
    place = 0
    while place < len(key):
        found = _PARTS.match(key, place)
        if found is None:
            raise NoSuchKey(f"{key!r} is not a key; expected one such as web.port")
        quoted, number, plain = found.groups()
        named = next(
            (name for name in _names(values, tuple(parts)) if key.startswith(name, place) and "." in name), None
        )
        if quoted is None and number is None and named is not None:
            parts.append(named)
            place += len(named)
        else:
            text = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            parts.append(int(number) if number is not None else text)
            place = found.end()
        if key.startswith(".", place):
            place += 1
            if place == len(key):
                raise NoSuchKey(f"{key!r} ends with a dot; expected a key such as web.port")
    if not parts:
        raise NoSuchKey("the key is empty; expected one such as web.port")
    return tuple(parts)


def _names(values: Mapping[str, Any], path: KeyPath) -> list[str]:
    section = value_at(values, path)
    return sorted(section, key=len, reverse=True) if path in NAMED and isinstance(section, dict) else []


def read_typed(described: Described | None, text: str) -> Any:
    """What somebody typed, as the value that it means; for a key that is not known, as YAML has it.

    Raises:
        NoSuchKey: it is no YAML, where some is needed.
    """
    bare = text.strip()
    control = "yaml" if described is None else described.control
    found: Any = bare
    if described is not None and described.is_nullable and bare in ("null", "~"):
        found = None
    elif control == "switch" and bare.lower() in _SWITCHES:
        found = _SWITCHES[bare.lower()]
    elif control == "number":
        found = _number(bare)
    elif control in ("yaml", "entries") or (control == "list" and bare.startswith("[")):
        found = _read_yaml(text)
    elif control == "list":
        found = [line.strip() for line in text.splitlines() if line.strip()]
    elif control == "long":
        found = text.replace("\r\n", "\n")
    return found


def _number(text: str) -> int | float | str:
    """What is no number stays as it is: the check says what is wrong with it."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _read_yaml(text: str) -> Any:
    indented = "\n".join(f"  {line}" for line in text.splitlines())
    document = parse_marked_yaml(f"value:\n{indented}\n".encode(), "value")
    if document.problems:
        raise NoSuchKey(document.problems[0].text)
    return document.values.get("value")


def write_typed(value: Any) -> str:
    """A value as somebody would type it into a field of several lines."""
    if isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value):
        return "\n".join(map(str, value))
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text.strip().removesuffix("...").strip()


def describe(values: Mapping[str, Any]) -> list[Described]:
    """Every key, in the order of the example; those of entries with chosen names where `values` has them.

    Args:
        values: of the file.
    """
    found = list(_of_model(Config, (), values))
    places = {path: place for place, path in enumerate(read_example().keys)}
    tops = {path[0]: place for path, place in reversed(places.items())}
    return sorted(found, key=lambda one: tops.get(one.path[0], len(places)))


def describe_entry(section: KeyPath, name: str, entry: Mapping[str, Any]) -> list[Described]:
    """The keys of one entry with a chosen name, whether the file has it or not.

    Args:
        section: ("models",), ("channels",) or ("hooks",).
        entry: its values; of a channel, the `kind` says which further keys there are.
    """
    model = _entry_model(section)
    return list(_of_entry(model, (*section, name), entry))


def _entry_model(section: KeyPath) -> type[BaseModel]:
    model: Any = Config
    for part in section:
        model = _plain(model.model_fields[part].annotation)[0]
    found: type[BaseModel] = _plain(get_args(model)[1])[0]
    return found


def _of_model(model: type[BaseModel], path: KeyPath, values: Any, alike: Collection[str] = ()) -> Iterator[Described]:
    """The keys of a section; `alike` are names of entries in the example whose texts fit best."""
    for name, field in model.model_fields.items():
        if name in _NOT_LISTED and model.__module__.startswith("gateway.config"):
            continue
        here = (*path, field.alias or name)
        plain, is_nullable, _ = _plain(field.annotation)
        below = value_at(values, (here[-1],))
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            yield from _of_entry(plain, here, below if isinstance(below, dict) else {}, alike)
        elif get_origin(plain) is dict and here in {*NAMED, ("budgets", "personalities")}:
            yield replace(_described(here, field, alike), control="entries")
            inner = _plain(get_args(plain)[1])[0]
            for entry, item in below.items() if isinstance(below, dict) else ():
                yield from _of_entry(inner, (*here, entry), item if isinstance(item, dict) else {})
        else:
            yield replace(_described(here, field, alike), is_nullable=is_nullable)


def _of_entry(
    model: type[BaseModel], path: KeyPath, values: Mapping[str, Any], alike: Collection[str] = ()
) -> Iterator[Described]:
    """A section, with the keys of the package that its `kind` names."""
    if model is ChannelConfig:
        keys = read_example().keys
        alike = [str(one[1]) for one, told in keys.items() if one[2:] == ("kind",) and told.value == values.get("kind")]
    yield from _of_model(model, path, values, alike)
    own = _own_model(model, path, values)
    if own is not None:
        yield from _of_model(own, path, values, alike)


def _own_model(model: type[BaseModel], path: KeyPath, values: Mapping[str, Any]) -> type[BaseModel] | None:
    field = model.model_fields.get("kind")
    kind = values.get("kind", field.default if field is not None and not field.is_required() else None)
    if not isinstance(kind, str):
        return None
    loads: Mapping[type[BaseModel], Callable[[str], Kind]] = {
        ChannelConfig: load_kind,
        ProviderConfig: load_memory_kind,
        SearchConfig: load_search_kind,
        ServiceConfig: partial(load_speech_kind, LISTENING if path[-1] == "listen" else SPEAKING),
    }
    with contextlib.suppress(KindUnusable):
        return loads[model](kind).config if model in loads else None
    return None


def _described(path: KeyPath, field: FieldInfo, alike: Collection[str]) -> Described:
    plain, is_nullable, metadata = _plain(field.annotation)
    group, text, example = _told(path, alike)
    found = Described(
        path=path,
        group=group or _told(path[:1], ())[0],
        text=text,
        control="yaml",
        default=_default(field),
        is_required=field.is_required(),
        is_nullable=is_nullable,
        at_restart=not any(dotted(path[:depth]) in AT_ONCE for depth in range(1, len(path) + 1)),
    )
    return _with_type(found, plain, [*metadata, *field.metadata], example)


def _with_type(found: Described, plain: Any, metadata: list[Any], example: Any) -> Described:
    origin = get_origin(plain)
    if origin is Literal:
        return replace(found, control="choice", choices=tuple(map(str, get_args(plain))))
    # A number that people write as `1h` is asked for as they write it.
    if plain in (int, float) and not (isinstance(example, str) and not re.fullmatch(r"[0-9.]+", example)):
        least, above, most = _limits(metadata)
        return replace(found, control="number", is_whole=plain is int, at_least=least, more_than=above, at_most=most)
    if origin in (tuple, list, set, frozenset):
        item, _, _ = _plain(get_args(plain)[0])
        choices = tuple(map(str, get_args(item))) if get_origin(item) is Literal else ()
        is_flat = bool(choices) or item in (str, int, float)
        return replace(found, control="list" if is_flat else "yaml", choices=choices)
    if plain in (bool, SecretStr, SecretBytes):
        return replace(found, control="switch" if plain is bool else "secret")
    if not isinstance(plain, type):
        return found
    is_long = any((getattr(one, "max_length", None) or 0) > _LONG_CHARS for one in metadata)
    choices = tuple(known_kinds()) if found.path[0] == "channels" and found.path[-1] == "kind" else ()
    return replace(found, control="long" if is_long else "text", choices=choices)


def _limits(metadata: list[Any]) -> tuple[float | None, float | None, float | None]:
    """The least number, the one that it must be above, and the largest."""
    found: dict[str, float] = {}
    for one in metadata:
        for name, kind in (("ge", annotated_types.Ge), ("gt", annotated_types.Gt), ("le", annotated_types.Le)):
            if isinstance(one, kind):
                found[name] = getattr(one, name)
    return found.get("ge"), None if "ge" in found else found.get("gt"), found.get("le")


def _plain(annotation: Any) -> tuple[Any, bool, list[Any]]:
    """A type without `None` and without what is annotated, whether it may be None, and what was annotated."""
    metadata: list[Any] = []
    is_nullable = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *more = get_args(annotation)
            for one in more:
                metadata += one.metadata if isinstance(one, FieldInfo) else [one]
        elif origin in (Union, UnionType):
            others = [each for each in get_args(annotation) if each is not type(None)]
            is_nullable = is_nullable or len(others) < len(get_args(annotation))
            if len(others) > 1:
                return annotation, is_nullable, metadata
            annotation = others[0]
        else:
            return annotation, is_nullable, metadata


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return None
    return TypeAdapter(Any).dump_python(field.get_default(call_default_factory=True), mode="json")


def _told(path: KeyPath, alike: Collection[str]) -> tuple[str, str, Any]:
    """Group, text and value of the example: of an entry with the same key, one that fits and says something first.

    A key without a text has that of its section, unless the section is an entry with a chosen name.
    """
    example = read_example()
    there = [like for like in example.like(path) if like in example.keys]
    there.sort(key=lambda like: not any(part in alike for part in like[1:2]))
    found = [example.keys[like] for like in there]
    best = next((one for one in found if one.text), found[0] if found else None)
    text = best.text if best else ""
    if not text and len(path) > 2 and path[:-2] not in NAMED:
        text = _told(path[:-1], alike)[1]
    return (best.group, text, best.value) if best else ("", text, None)
