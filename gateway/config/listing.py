"""The configuration as a list of settings for people: each with its value and where it comes from, secrets hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr

from gateway.config import ChannelConfig, Config
from gateway.files.positions.yaml import KeyPath, dotted

HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value.

    Attributes:
        key: dotted, as in `web.port`; an adapter's own settings stand next to the core's, as they do in the file.
        source: `config.yaml:12`, `config.yaml:12, from ${NAME}`, or `default`.
    """

    key: str
    value: Any
    source: str


def settings_of(config: Config, sources: Mapping[str, str]) -> list[Setting]:
    """All that have a source, in its order. What was looked up elsewhere may be a secret, whatever it was made for."""
    values = dict(_values(config, ()))
    return [
        Setting(key=key, value=HIDDEN if ", from " in source else values[key], source=source)
        for key, source in sources.items()
        if key in values
    ]


def written(value: Any) -> str | None:
    """As one would write it into the file; None for nothing."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list | frozenset | set):
        return "[" + ", ".join(map(str, value)) + "]"
    return None if value is None else str(value)


def _values(value: Any, path: KeyPath) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        for name, item in value:
            is_own = isinstance(value, ChannelConfig) and name == "settings"
            yield from _values(item, path if is_own else (*path, name))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _values(item, (*path, name))
    else:
        is_simple = value is None or isinstance(value, str | int | float | tuple | list)
        shown = value if is_simple else str(value)  # an adapter's own kinds of values
        yield dotted(path), HIDDEN if isinstance(value, SecretStr) else shown
