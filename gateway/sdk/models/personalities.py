"""Personalities: who can answer, and the two files that each is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.sdk.models.memory import Version
from gateway.sdk.models.wire import PersonalityId, Sent, Wire

Label = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$", max_length=100)]


class Personality(Wire):
    """One that can be chosen.

    Attributes:
        model: the entry of `models`; None for the default one.
        tools: None for all.
        source: `built-in`, or the directory below the data directory.
        problem: why it cannot be used as its files are, a line for each thing; None where it can.
    """

    id: str
    name: str
    description: str
    model: str | None
    memory_scope: str
    memory_writes: str
    tools: tuple[str, ...] | None
    source: str
    problem: str | None = None


class PersonalityFiles(Wire):
    """Both files, as text.

    Attributes:
        soul: of `SOUL.md`, the prompt.
        settings: of `personality.yaml`.
        is_own: at least one of them is in the data directory; else they are built in.
        can_undo: what stood there before the last change is known.
    """

    id: str
    soul: str
    settings: str
    version: str
    is_own: bool
    can_undo: bool


class CreatePersonality(Sent):
    """Make a new one; with `copyOf` it begins with that one's prompt and settings."""

    id: PersonalityId
    name: Label | None = None
    description: Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    copy_of: PersonalityId | None = None


class UpdatePersonality(Sent):
    """Replace both files, if they are still `expectedVersion`."""

    soul: Annotated[str, Field(min_length=1, max_length=1 << 18)]
    settings: Annotated[str, Field(max_length=1 << 16)]
    expected_version: Version


class UndoPersonality(Sent):
    """Take the last change back, if the files are still `expectedVersion`."""

    expected_version: Version
