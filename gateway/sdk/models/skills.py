"""Skills: instructions with files and scripts that the agent loads when it needs them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gateway.sdk.models.schema import ApiModel, RequestBody

SkillState = Literal["trusted", "new", "changed", "hidden", "left_out"]
SKILL_NAME_PATTERN = "^[^/]{1,255}$"
PIN_PATTERN = "^[0-9a-f]{64}$"


class SkillFile(ApiModel):
    """One file of a skill."""

    name: str = Field(description="Its name, relative to the skill.", examples=["scripts/weigh.py"])
    size_bytes: int = Field(description="How large it is.")
    sha256: str = Field(description="Hash of its bytes.")
    is_script: bool = Field(description="The agent can run it, in the sandbox and without a network.")


class Skill(ApiModel):
    """One skill that lies in a place for skills."""

    name: str = Field(description="Its name; of one that is left out, that of its directory.", examples=["packing"])
    personality: str | None = Field(description="The only personality that has it; null: all of them.")
    description: str = Field(description="What it is for, as the agent is shown it.")
    state: SkillState = Field(
        description="`trusted`; withheld, since it is `new`, or `changed` since it was trusted; `hidden` by a nearer "
        "one of its name; `left_out`: it cannot be used."
    )
    pin: str | None = Field(description="Hash of all its files as they are now.")
    directory: str = Field(description="Where it lies.")
    license: str = Field(description="Its licence, as it says.")
    compatibility: str = Field(description="What it says that it needs.")
    allowed_tools: str = Field(description="Tools that it names. It allows none of them.")
    files: tuple[SkillFile, ...] = Field(description="Its files.")
    differences: tuple[str, ...] = Field(description="What has changed since it was trusted.")
    faults: tuple[str, ...] = Field(description="How it departs from the format.")
    problem: str | None = Field(description="Why the agent does not have it, and what to do.")


class SkillDetails(Skill):
    """A skill with what a person should look at before they trust it."""

    text: str = Field(description="Its instructions.")
    addresses: tuple[str, ...] = Field(description="Addresses in its files.")
    warnings: tuple[str, ...] = Field(description="What looks wrong in its files.")


class TrustSkill(RequestBody):
    """A skill as it was seen."""

    pin: str = Field(
        pattern=PIN_PATTERN,
        description="Its `pin`, as it was shown.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    personality: str | None = Field(default=None, description="Whose it is; null: everybody's.")


class RemovedSkill(ApiModel):
    """What became of a skill."""

    name: str = Field(description="Its name.")
    is_deleted: bool = Field(description="Its files are gone, too; false: they lie where the gateway deletes nothing.")
    directory: str | None = Field(description="Where they lie, or lay; null: there were none.")
