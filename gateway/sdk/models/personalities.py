"""Who answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.sdk.models.memory import Version
from gateway.sdk.models.schema import PersonalityId, Sent, Wire

PersonalityName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$", max_length=100)]
Prompt = Annotated[str, Field(min_length=1, max_length=1 << 18)]
SettingsText = Annotated[str, Field(max_length=1 << 16)]


class Personality(Wire):
    """A role of the agent.

    Attributes:
        source: `built-in`, or its directory under the data directory.
        problem: why its files cannot be used; then the other values are empty, or those that last were valid.
        model: None for the default one.
        tools: None for all.
        steps_per_turn: None for the configured limit.
        output_tokens: None for no limit of its own.
    """

    id: str
    name: str
    description: str
    source: str
    problem: str | None
    model: str | None = None
    memory_scope: Literal["per-personality", "global", "per-user"] | None = None
    memory_writes: Literal["auto", "review", "off"] | None = None
    tools: tuple[str, ...] | None = None
    steps_per_turn: int | None = None
    output_tokens: int | None = None
    traits: dict[str, float] = Field(default_factory=dict)


class PersonalityFiles(Wire):
    """A personality with the texts of its files.

    Attributes:
        settings: `personality.yaml`.
        prompt: `SOUL.md`.
        version: of both together.
        is_own: at least one of them is in the data directory; else they are built in.
        can_undo: what stood there before the last change is known.
    """

    personality: Personality
    settings: str
    prompt: str
    version: Version
    is_own: bool
    can_undo: bool


class CreatePersonality(Sent):
    """Make a new one; with `copyOf` it begins with that one's prompt and settings."""

    id: PersonalityId
    name: PersonalityName | None = None
    description: Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    copy_of: PersonalityId | None = None


class UpdatePersonality(Sent):
    """Replace the prompt, the settings or both, if they are still `expectedVersion`; what is None stays."""

    expected_version: Version
    prompt: Prompt | None = None
    settings: SettingsText | None = None
