"""Personalities: who can answer, and the two files that each is made of."""

from __future__ import annotations

from gateway.sdk.models.wire import Wire


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
