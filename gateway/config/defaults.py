"""The keys that a configuration knows, each with its default: to compare one version of the program with another.

A key is dotted, with `*` for a name that people choose or a place in a list: `models.*.timeout_s`. What is of one kind
of channel, or of one package, has that in brackets: `channels.*[owl].token`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from gateway.config import Config

_PART = re.compile(r"([^.\[]+)(?:\[([^\]]*)\])?")


def known_defaults(config: Config) -> Mapping[str, Any]:
    """All that `Config` has, and all that the kinds have which this configuration uses. Defaults are as JSON has them.

    A key without a default has None.
    """
    return {key: to_jsonable_python(default, fallback=str) for key, default in _known(config)}


def _known(config: Config) -> Iterator[tuple[str, Any]]:
    yield from _below(Config, "")
    for channel in config.channels.values():
        yield from _own(channel.settings, f"channels.*[{channel.kind}]")
    yield from _own(config.memory.provider.settings, f"memory.provider[{config.memory.provider.kind}]")
    for package in config.tools.packages:
        yield from _own(package.settings, f"tools.packages.*[{package.package}]")
    chosen = {
        "web.search": config.web.search,
        "speech.listen": config.speech.listen,
        "speech.speak": config.speech.speak,
    }
    for key, service in chosen.items():
        if service is not None:
            yield from _own(service.settings, f"{key}[{service.kind}]")


def _own(settings: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(settings, BaseModel):
        yield from _below(type(settings), key)


def _below(model: type[BaseModel], key: str) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        if field.exclude:
            continue  # what we note ourselves, and no key
        here = f"{key}.{field.alias or name}" if key else field.alias or name
        inner, many = _section(field.annotation)
        if inner is not None:
            yield from _below(inner, f"{here}.*" if many else here)
        else:
            yield here, None if field.is_required() else field.get_default(call_default_factory=True)


def _section(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model that stands in an annotation, and whether there may be many of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for inner in get_args(annotation):
        found, many = _section(inner)
        if found is not None:
            return found, many or get_origin(annotation) in (dict, tuple, list, frozenset)
    return None, False


def is_set(values: Any, key: str) -> bool:
    """Whether a file has a key.

    Args:
        values: of the file, as YAML gives them.
    """
    return _is_set(values, _PART.findall(key))


def _is_set(values: Any, parts: Sequence[tuple[str, str]]) -> bool:
    if not parts:
        return True
    (name, kind), *rest = parts
    inner = values.values() if isinstance(values, dict) else values if isinstance(values, list) else ()
    if name != "*":
        inner = [values[name]] if isinstance(values, dict) and name in values else []
    return any(_is_set(one, rest) for one in inner if not kind or _is_of(one, kind))


def _is_of(entry: Any, kind: str) -> bool:
    """Whether an entry is of a kind; one that does not say has the default."""
    return isinstance(entry, dict) and entry.get("kind", entry.get("package", kind)) == kind
