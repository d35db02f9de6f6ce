"""Personalities: who can answer, and the two files that each is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.sdk.models.wire import Problem, Sent, Wire

PersonalityId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Text = Annotated[str, Field(max_length=1 << 20)]


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
    """A new one, with a prompt to begin with, or as a copy; a built-in one is copied onto itself to be changed.

    Attributes:
        name: for people; made of the id without it.
        copy_of: begins with the prompt and the settings of this one.
    """

    id: PersonalityId
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    description: Annotated[str, Field(max_length=500)] = ""
    copy_of: PersonalityId | None = None


class WritePersonality(Sent):
    """Put these in place of both files, if they still are `expectedVersion`; `If-Match` may say that instead."""

    soul: Text
    settings: Text
    expected_version: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class PersonalityConflict(Problem):
    """The files changed since they were read: as they are now, with the version to write over next."""

    current: PersonalityFiles
