"""The configuration as a list of settings for people: each with its value and where it comes from, secrets hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr

from gateway.config import ChannelConfig, Config, ProviderConfig, ToolPackageConfig
from gateway.config.speech import ServiceConfig
from gateway.config.web import SearchConfig
from gateway.files.positions.yaml import KeyPath, dotted

HIDDEN = "(hidden)"
_WITH_OWN = ChannelConfig | ProviderConfig | ToolPackageConfig | SearchConfig | ServiceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value.

    Attributes:
        key: dotted, as in `web.port`; an adapter's or a memory's own stand next to the core's, as in the file.
        source: `config.yaml:12`, `config.yaml:12, from ${NAME}`, or `default`.
    """

    key: str
    value: Any
    source: str


def settings_of(config: Config, sources: Mapping[str, str]) -> list[Setting]:
    """All that have a source, in its order. What was looked up elsewhere may be a secret, whatever it was made for."""
    values = {dotted(path): _shown(value) for path, value in values_of(config)}
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


def values_of(section: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value below `path`; those of an adapter or a memory stand next to the core's, as they do in the file."""
    if isinstance(section, BaseModel):
        for name, item in section:
            if name == "fault" and isinstance(section, ToolPackageConfig | SearchConfig | ServiceConfig):
                continue  # no setting
            is_own = isinstance(section, _WITH_OWN) and name == "settings"
            yield from () if is_own and item is None else values_of(item, path if is_own else (*path, name))
    elif isinstance(section, dict):
        for name, item in section.items():
            yield from values_of(item, (*path, name))
    elif isinstance(section, tuple) and any(isinstance(item, BaseModel) for item in section):
        for index, item in enumerate(section):
            yield from values_of(item, (*path, index))
    else:
        yield path, section


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return HIDDEN
    is_simple = value is None or isinstance(value, str | int | float | tuple | list)
    return value if is_simple else str(value)  # an adapter's own kinds of values
