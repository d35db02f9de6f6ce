"""Personalities."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.sdk.models.memory import Version
from gateway.sdk.models.schema import ApiModel, PersonalityId, RequestBody

PersonalityName = Annotated[
    str, Field(pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$", max_length=100, examples=["Cook"])
]
Prompt = Annotated[str, Field(min_length=1, max_length=1 << 18, description="Text of `SOUL.md`.")]
SettingsText = Annotated[str, Field(max_length=1 << 16, description="Text of `personality.yaml`.")]


class Personality(ApiModel):
    """A role of the agent."""

    id: str = Field(description="Its id.", examples=["assistant"])
    name: str = Field(description="Its name.", examples=["Assistant"])
    description: str = Field(description="What it is for.")
    source: str = Field(description="`built-in`, or its directory under the data directory.")
    problem: str | None = Field(default=None, description="Why its files are not valid; null where they are.")
    model: str | None = Field(default=None, description="Model that it uses; null: the default one.")
    memory_scope: Literal["per-personality", "global", "per-user"] | None = Field(
        default=None, description="Which MEMORY.md it uses."
    )
    memory_writes: Literal["auto", "review", "off"] | None = Field(
        default=None, description="Whether its changes of the memory wait for approval."
    )
    tools: tuple[str, ...] | None = Field(default=None, description="Tools that it may use; null: all.")
    steps_per_turn: int | None = Field(default=None, description="Calls of the model in a turn; null: as configured.")
    thinking: str | None = Field(
        default=None, description="`off`, `low`, `medium` or `high`; null: as its model has it."
    )
    output_tokens: int | None = Field(default=None, description="Tokens in one turn; null: no limit of its own.")
    traits: dict[str, float] = Field(default_factory=dict, description="HEXACO traits, each 0 to 1.")
    prompt: str | None = Field(default=None, description="Its prompt; null for a key that sees one person.")


class PersonalityFiles(ApiModel):
    """A personality with the texts of its files."""

    personality: Personality = Field(description="The personality.")
    settings: str = Field(description="Text of `personality.yaml`.")
    prompt: str = Field(description="Text of `SOUL.md`.")
    version: Version = Field(description="Version of both texts together.")
    is_own: bool = Field(description="Whether a file is in the data directory; else both are built in.")
    can_undo: bool = Field(description="Whether the texts before the last change are known.")


class CreatePersonality(RequestBody):
    """Create a personality."""

    id: PersonalityId = Field(description="Its id.", examples=["cook"])
    name: PersonalityName | None = Field(default=None, description="Its name; the id without it.")
    description: Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")] = Field(
        default="", description="What it is for."
    )
    copy_of: PersonalityId | None = Field(default=None, description="Personality whose prompt and settings it takes.")


class UpdatePersonality(RequestBody):
    """Replace the prompt, the settings or both, if they are still `expectedVersion`; what is null stays."""

    expected_version: Version
    prompt: Prompt | None = None
    settings: SettingsText | None = None
