"""The way to a login, step by step, as the package of a kind brings it: `setup/setup.yaml` beside its `__init__.py`.

Finding and reading it does not load the package, so it is there where a library is missing. `docs/channels/` shows the
same steps; a test keeps the two equal.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.config.packages import Packages
from gateway.errors import ConfigError

_DIRECTORY = "setup"
_FILE = "setup.yaml"
MAX_FILE_BYTES = 512 * 1024

Text = Annotated[str, Field(min_length=1, max_length=2_000)]
Picture = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}\.svg$")]
Copied = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}\.[a-z]{1,5}$")]


class CopiedFile(BaseModel):
    """A file that people paste into the platform's console.

    Attributes:
        name: how the text of the step speaks of it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Copied
    name: Text


class SetupStep(BaseModel):
    """One thing to do in the platform's console.

    Attributes:
        title: an imperative.
        text: Markdown; addresses stand in it as text, `<https://…>`.
        picture: an SVG beside the file, drawn by us; it has its own background, in light and dark.
        shows: what can be seen in the picture, for those who do not see it.
        gives: keys of the configuration that one has after the step.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: Text
    text: Text
    picture: Picture | None = None
    shows: Text | None = None
    copied: CopiedFile | None = Field(default=None, alias="copy")
    gives: tuple[Text, ...] = ()


class ChannelSetup(BaseModel):
    """The steps of one kind.

    Attributes:
        title: the platform's name, as people write it.
        summary: what a channel of this kind is, in a sentence or two.
        keys: of the configuration, that everybody needs; a form shows all others folded.
        then: what to do once the channel is connected; Markdown.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: Text
    summary: Text
    keys: tuple[Text, ...] = ()
    steps: tuple[SetupStep, ...] = ()
    then: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True)
class KindSetup:
    """The steps of a kind, with the directory in which their pictures and files are."""

    content: ChannelSetup
    directory: Path

    @property
    def pictures(self) -> frozenset[str]:
        """The names of the pictures."""
        return frozenset(step.picture for step in self.content.steps if step.picture is not None)

    def picture(self, name: str) -> Path:
        """The file of one of the `pictures`.

        Raises:
            KeyError: no step shows it.
        """
        if name not in self.pictures:
            raise KeyError(name)
        return self.directory / name

    def text_of(self, copied: CopiedFile) -> str:
        """What is in a file that people paste."""
        return (self.directory / copied.file).read_text(encoding="utf-8")


def find_setup(packages: Packages, kind: str) -> KindSetup | None:
    """The steps that the package of a kind brings; None where it brings none, or there is no such package. Blocks.

    Raises:
        ConfigError: the file cannot be used; says why.
    """
    directory = _directory(packages, kind)
    path = None if directory is None else directory / _FILE
    if directory is None or path is None or not path.is_file():
        return None
    try:
        found = ChannelSetup.model_validate(yaml.safe_load(path.read_bytes()[:MAX_FILE_BYTES]))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError([f"{path}: {line}" for line in _lines(error)]) from error
    setup = KindSetup(found, directory)
    named = [*setup.pictures, *(step.copied.file for step in found.steps if step.copied is not None)]
    missing = [name for name in named if not (directory / name).is_file()]
    if missing:
        raise ConfigError([f"{path}: there is no {name} beside it" for name in missing])
    return setup


def _directory(packages: Packages, kind: str) -> Path | None:
    target = packages.module_name(kind)
    try:
        spec = None if target is None else importlib.util.find_spec(target)
    except (ImportError, ValueError):  # the package around it is not there, or is broken
        return None
    places: Sequence[str] = () if spec is None else list(spec.submodule_search_locations or ())
    return Path(places[0]) / _DIRECTORY if places else None


def _lines(error: Exception) -> list[str]:
    if isinstance(error, ValidationError):
        return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return [" ".join(str(error).split())[:300]]
