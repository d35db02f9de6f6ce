"""Settings: what can be configured, what it is now, and changes of it."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, StrictBool, model_validator

from gateway.sdk.models.schema import ApiModel, RequestBody

Control = Literal["switch", "choice", "number", "text", "long", "secret", "list", "yaml", "entries"]
Version = str


class Setting(ApiModel):
    """One key of the configuration."""

    key: str = Field(
        description="Its key; a name with a dot in it stands in quotes.", examples=["limits.steps_per_turn"]
    )
    group: str = Field(description="Heading that it belongs below.", examples=["Limits"])
    text: str = Field(description="What it is for.")
    control: Control = Field(
        description="How to ask for it: `long` is a text of several lines, `yaml` a value of several parts, `entries` "
        "a section whose keys are names."
    )
    value: Any = Field(
        description="What stands in the file; null where nothing does, and for secrets. `${NAME}` is a variable."
    )
    default: Any = Field(description="What is in force where nothing stands in the file; null: nothing.")
    is_set: bool = Field(description="Whether it stands in the file.")
    source: str = Field(description="Where the value comes from.", examples=["config.yaml:12", "default"])
    choices: tuple[str, ...] = Field(description="What it may be; for a `text`, suggestions.")
    at_least: float | None = Field(description="Least number.")
    more_than: float | None = Field(description="Number that it must be above.")
    at_most: float | None = Field(description="Largest number.")
    is_whole: bool = Field(description="Whether the number has no fraction.")
    is_nullable: bool = Field(description="Whether it may be null.")
    is_required: bool = Field(description="Whether its section needs it.")
    at_restart: bool = Field(description="Whether a change waits for a restart.")


class SettingProblem(ApiModel):
    """Something wrong with the configuration."""

    key: str = Field(description="Key that is meant; empty: the file as a whole.")
    line: int = Field(description="Line of the file, as it would be.")
    problem: str = Field(description="What is wrong, and what is expected.")
    excerpt: str = Field(default="", description="The lines around it, with their numbers; secrets are hidden.")


class SettingsList(ApiModel):
    """Every key of the configuration."""

    version: Version = Field(description="Hash of the file; send it with a change, so that none is lost.")
    path: str = Field(description="Path of the file.")
    groups: tuple[str, ...] = Field(description="Headings, in order.")
    settings: tuple[Setting, ...] = Field(description="All keys, in order.")
    problems: tuple[SettingProblem, ...] = Field(description="Why the file cannot be used; empty where it can.")
    warnings: tuple[str, ...] = Field(description="What works and is not wise.")
    at_once: tuple[str, ...] = Field(description="Keys that the file has changed and a reload would take over.")
    at_restart: tuple[str, ...] = Field(description="Keys that the file has changed and that wait for a restart.")
    can_undo: bool = Field(description="Whether there is a change to undo.")


class SettingChange(RequestBody):
    """One key that is to have a value, a secret, or nothing."""

    key: str = Field(min_length=1, max_length=500, description="Its key.", examples=["limits.steps_per_turn"])
    value: Any = Field(default=None, description="What is to stand in the file, a whole section too.")
    text: str | None = Field(
        default=None, max_length=100_000, description="The same as somebody types it; in place of `value`."
    )
    secret: str | None = Field(
        default=None,
        min_length=1,
        max_length=65_536,
        repr=False,
        description="In place of `value`: goes into a file of its own, and the configuration names that.",
    )
    is_removed: StrictBool = Field(default=False, description="In place of `value`: the key is taken out.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [self.value is not None, self.text is not None, self.secret is not None, self.is_removed]
        if sum(given) > 1:
            raise ValueError("give one of `value`, `text`, `secret` and `isRemoved`")
        return self


class ChangeSettings(RequestBody):
    """Changes that are made together, or not at all."""

    version: Version | None = Field(
        default=None, max_length=64, description="Version that was seen; without it, whatever there is now is changed."
    )
    changes: tuple[SettingChange, ...] = Field(min_length=1, max_length=500, description="The changes.")


class UndoSettings(RequestBody):
    """The last change is taken back."""

    version: Version | None = Field(default=None, max_length=64, description="As in a change.")


class SettingsProposal(ApiModel):
    """What changes would do; nothing of it is done."""

    version: Version = Field(description="Hash of the file now.")
    difference: str = Field(description="Unified diff of the file, without secrets; empty where nothing changes.")
    problems: tuple[SettingProblem, ...] = Field(description="Why it cannot be saved; empty where it can.")
    warnings: tuple[str, ...] = Field(description="What would be unwise, or is still to be done.")
    at_once: tuple[str, ...] = Field(description="Keys that would be in force at once.")
    at_restart: tuple[str, ...] = Field(description="Keys that would wait for a restart.")


class SettingsSaved(ApiModel):
    """A change that is saved."""

    version: Version = Field(description="Hash of the file now.")
    difference: str = Field(description="What was changed, as a unified diff without secrets.")
    notes: tuple[str, ...] = Field(description="What is unwise, or is still to be done.")
    at_once: tuple[str, ...] = Field(description="Keys that are in force now.")
    at_restart: tuple[str, ...] = Field(description="Keys that wait for a restart.")
    problems: tuple[str, ...] = Field(description="Why the gateway has not taken it over; empty where it has.")
    is_in_use: bool = Field(description="Whether a gateway runs that has read it.")


class Restarting(ApiModel):
    """A process that begins again."""

    worker: str = Field(description="Name of the process that restarts.")
    others: tuple[str, ...] = Field(description="Names of other workers, which go on as they are; restart each.")
