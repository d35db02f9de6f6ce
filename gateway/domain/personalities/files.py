"""The files of a personality: what may stand in them, how they are read, and how new ones begin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from gateway.domain.personalities.places import SETTINGS_NAME, SOUL_NAME, PersonalityPlace
from gateway.errors import FileError, PersonalityError
from gateway.files.positions.validation import validate
from gateway.files.positions.yaml import Problem, end_of, parse_marked_yaml
from gateway.protocols import MemoryPlace

Thinking = Literal["off", "low", "medium", "high"]
"""How much a model thinks before it answers."""
MemoryWrites = Literal["auto", "review", "off"]
"""`auto`: what a turn wants waits if it had read words of others; `review`: all waits; `off`: nothing is written."""

MAX_SOUL_BYTES = 256 * 1024
BUILT_IN = Path(__file__).parent / "built_in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Personality:
    """A role that can answer.

    Attributes:
        model: the entry of `models` in the configuration; None for the default one.
        memory_writes: whether its changes of the memory wait for a person's yes.
        tools: names of the tools it may call; None for all.
        steps_per_turn: calls of the model in one turn; None for the configured limit.
        output_tokens: in one turn; None for no limit of its own.
        thinking: how much its model thinks; None leaves it to the model's own configuration.
        traits: HEXACO, each 0 to 1; those that are not given are left out.
        prompt: the text of `SOUL.md`.
        source: `built-in`, or the path of its directory, as on one machine.
    """

    id: str
    name: str
    description: str
    model: str | None
    memory_scope: MemoryPlace
    memory_writes: MemoryWrites
    tools: tuple[str, ...] | None
    steps_per_turn: int | None
    output_tokens: int | None
    thinking: Thinking | None
    traits: Mapping[str, float]
    prompt: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenPersonality:
    """A personality whose files are not valid; `reason` has a line for each thing that is wrong."""

    id: str
    reason: str
    source: str


def _listed(value: object) -> object:
    return None if value == "all" else value


def _worded(value: object) -> object:
    return "off" if value is False else value  # YAML takes a bare `off` for no


Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]
Degree = Annotated[float, Field(ge=0, le=1, strict=True)]
Limit = Annotated[int, Field(ge=1, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Budgets(_Part):
    """What one turn of a personality may cost."""

    steps_per_turn: Limit | None = None
    output_tokens_per_turn: Limit | None = None


class Traits(_Part):
    """HEXACO (Ashton and Lee, 2007): six traits, each from 0, not at all, to 1, very much so."""

    honesty_humility: Degree | None = None
    emotionality: Degree | None = None
    extraversion: Degree | None = None
    agreeableness: Degree | None = None
    conscientiousness: Degree | None = None
    openness: Degree | None = None


class PersonalitySettings(_Part):
    """`personality.yaml`; every key may be left out."""

    name: Word | None = None
    description: Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)] = ""
    model: Word | None = None
    memory_scope: MemoryPlace = "per-personality"
    memory_writes: Annotated[MemoryWrites, BeforeValidator(_worded)] = "auto"
    tools: Annotated[tuple[Word, ...] | None, BeforeValidator(_listed)] = None
    thinking: Annotated[Thinking | None, BeforeValidator(_worded)] = None
    budgets: Budgets = Field(default_factory=Budgets)
    traits: Traits = Field(default_factory=Traits)


def read_personality(place: PersonalityPlace, personality_id: str, source: str) -> Personality | BrokenPersonality:
    """Make a personality of its files: those of its place, and the built-in ones where there is none.

    Args:
        personality_id: checked already.
        source: as the result shall have it.
    """
    problems: list[str] = []
    prompt, settings = "", None
    try:
        prompt = _soul_of(bytes_of(place, personality_id, SOUL_NAME), f"personalities/{personality_id}/", problems)
    except FileError as error:
        problems.append(str(error))
    try:
        data = bytes_of(place, personality_id, SETTINGS_NAME)
        settings = _settings_of(data or b"", f"personalities/{personality_id}/", problems)
    except FileError as error:
        problems.append(str(error))
    if problems or settings is None:
        return BrokenPersonality(id=personality_id, reason="\n".join(problems), source=source)
    return Personality(
        id=personality_id,
        name=settings.name or titled(personality_id),
        description=settings.description,
        model=settings.model,
        memory_scope=settings.memory_scope,
        memory_writes=settings.memory_writes,
        tools=settings.tools,
        steps_per_turn=settings.budgets.steps_per_turn,
        output_tokens=settings.budgets.output_tokens_per_turn,
        thinking=settings.thinking,
        traits=MappingProxyType(settings.traits.model_dump(exclude_none=True)),
        prompt=prompt,
        source=source,
    )


class PersonalityNotValid(PersonalityError):
    """What was written is no valid personality."""


def check_texts(soul: str, settings: str) -> None:
    """Whether these would be good files.

    Raises:
        PersonalityNotValid: has a line for each thing that is wrong.
    """
    problems: list[str] = []
    for name, text in ((SOUL_NAME, soul), (SETTINGS_NAME, settings)):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            problems.append(f"{name}: expected text, and there is a character in it that no file can hold")
    _soul_of(soul.encode("utf-8", "replace"), "", problems)
    _settings_of(settings.encode("utf-8", "replace"), "", problems)
    if problems:
        raise PersonalityNotValid("\n".join(problems))


def check_settings(settings: str) -> None:
    """Whether this would be a good `personality.yaml`.

    Raises:
        PersonalityError: has a line for each thing that is wrong.
    """
    problems: list[str] = []
    _settings_of(settings.encode("utf-8", "backslashreplace"), "", problems)
    if problems:
        raise PersonalityError("\n".join(problems))


def _soul_of(data: bytes | None, place: str, problems: list[str]) -> str:
    text, fault, end = "", "", 0
    try:
        text = (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fault, end = f"byte 0x{error.object[error.start]:02x} is not UTF-8; expected UTF-8 text", error.start
    if data is None:
        fault = "missing; expected the personality's prompt, in Markdown"
    elif len(data) > MAX_SOUL_BYTES:
        fault, end = f"larger than {MAX_SOUL_BYTES} bytes; expected a prompt of a few pages at most", 0
    elif "\0" in text:
        fault, end = "a NUL character; expected text", data.index(0)
    elif not fault and not text.strip():
        fault = "empty; expected the personality's prompt, in Markdown"
    if fault:
        where = end_of((data or b"")[:end].decode("utf-8-sig"))
        problems.append(str(Problem(f"{place}{SOUL_NAME}", where, "", fault)))
    return text.replace("\r\n", "\n").strip()


def _settings_of(data: bytes, place: str, problems: list[str]) -> PersonalitySettings | None:
    document = parse_marked_yaml(data, f"{place}{SETTINGS_NAME}")
    settings = validate(PersonalitySettings, document) if document.is_readable else None
    problems.extend(document.sorted_problems())
    return settings


def bytes_of(place: PersonalityPlace, personality_id: str, name: str) -> bytes | None:
    """What counts as one of its files: that of its place, else the built-in one; None where there is none.

    Raises:
        FileError: it cannot be read.
    """
    own = place.read(personality_id, name)
    return built_in_file(personality_id, name) if own is None else own


def built_in_file(personality_id: str, name: str) -> bytes | None:
    """A file of the package; None where there is none."""
    path = BUILT_IN / personality_id / name
    return path.read_bytes() if path.is_file() else None


def titled(personality_id: str) -> str:
    """A name for people, made from an id."""
    return personality_id.replace("-", " ").replace("_", " ").strip().title() or personality_id


def settings_text(name: str, description: str, original: Personality | None) -> str:
    """A new `personality.yaml`, with the values of `original` where there is one."""
    description = description or (original.description if original else "")
    tools = json.dumps(list(original.tools)) if original and original.tools is not None else "all"
    lines = [
        "# Every key may be left out. Edits count from the next turn on.",
        f"name: {json.dumps(name, ensure_ascii=False)}",
        f"description: {json.dumps(description, ensure_ascii=False)}",
        f"model: {json.dumps(original.model)}" if original and original.model else "# model: offline",
        f"thinking: {original.thinking}" if original and original.thinking else "# thinking: low",
        f"memory_scope: {original.memory_scope if original else 'per-personality'}  # or global, or per-user",
        f"memory_writes: {original.memory_writes if original else 'auto'}  # or review, or off",
        f"tools: {tools}  # or a list of names",
        *_budget_lines(original),
        *_trait_lines(original),
    ]
    return "\n".join(lines) + "\n"


def _budget_lines(original: Personality | None) -> list[str]:
    values = {
        "steps_per_turn": original.steps_per_turn if original else None,
        "output_tokens_per_turn": original.output_tokens if original else None,
    }
    given = [f"  {key}: {value}" for key, value in values.items() if value is not None]
    return (
        ["budgets:", *given] if given else ["# budgets:", "#   steps_per_turn: 12", "#   output_tokens_per_turn: 4000"]
    )


def _trait_lines(original: Personality | None) -> list[str]:
    traits = original.traits if original else {}
    return [
        "traits:  # HEXACO, each from 0 to 1",
        *(f"  {key}: {traits.get(key, 0.5):g}" for key in Traits.model_fields),
    ]


NEW_SOUL = """\
# {name}

You are {name}. Say here who that is: what you are for, how you speak, what you care about and what you never do.
"""
