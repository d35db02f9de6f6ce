"""Models: those of the configuration, what a server offers, and what one answers when it is tried."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from gateway.sdk.models.schema import ApiModel, RequestBody

Provider = Literal["openai", "anthropic"]
"""`openai` is every server that speaks OpenAI's chat completions."""
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$", examples=["main"])]
_ADDRESS = "Address of the server, such as `http://127.0.0.1:11434/v1`; null: the provider's own service."
_KEY = "The API key, or `${NAME}` for a variable of the gateway."


class ConfiguredModel(ApiModel):
    """A model of the configuration, without its key."""

    name: str = Field(description="Its name in the configuration.", examples=["main"])
    provider: Literal["openai", "anthropic", "offline"] = Field(description="Whose format it speaks.")
    model: str | None = Field(description="The provider's own name of it; null for the offline model.")
    base_url: str | None = Field(description=_ADDRESS)
    has_key: bool = Field(description="Whether it has a key.")
    is_default: bool = Field(description="It answers where a personality names no model.")
    used_by: tuple[str, ...] = Field(description="What else uses it, for people.", examples=[["fallback of main"]])
    state: Literal["up", "down", "unknown"] = Field(description="`unknown`: it was not asked since the start.")
    since: datetime | None = Field(description="When the state began; null where it is unknown.")
    last_answer_at: datetime | None = Field(description="When it answered last.")
    error: str | None = Field(description="Why its last call failed.")
    unthought: str | None = Field(description="Why it did not think as it was to when it answered last.")


class ModelPlace(RequestBody):
    """A server of models."""

    provider: Provider = Field(default="openai", description="Whose format it speaks.")
    base_url: str | None = Field(default=None, description=_ADDRESS)
    api_key: str | None = Field(default=None, description=_KEY, repr=False)
    key_of: ModelName | None = Field(
        default=None, description="Without `apiKey`: the model of the configuration at this address whose key is used."
    )


class OfferedModels(ApiModel):
    """What a server offers."""

    base_url: str | None = Field(description="Where it answers: the address, with the `/v1` that it lacked.")
    models: tuple[str, ...] | None = Field(description="Names of its models; null where it does not list them.")


class ModelToTry(ModelPlace):
    """A model that is not in the configuration yet."""

    model: str = Field(min_length=1, max_length=256, description="The provider's own name of it.")


class ModelTrial(ApiModel):
    """What came of one question to a model."""

    base_url: str | None = Field(description="Where it was asked: the address, with the `/v1` that it lacked.")
    is_answered: bool = Field(description="Whether it answered.")
    text: str = Field(description="The answer; empty where there is none, or an embedding was made.")
    duration_s: float = Field(description="How long it took.")
    input_tokens: int = Field(description="Tokens that it read.")
    output_tokens: int = Field(description="Tokens that it wrote.")
    cost_usd: float | None = Field(description="Price of the question; null where no price is known.")
    error: str | None = Field(description="Why there is no answer, and what to do.")
    about: Literal["provider", "base_url", "api_key", "model"] | None = Field(
        description="The value that is most likely wrong, where it is one."
    )


class NewModel(ModelToTry):
    """A model for the configuration. All its other keys are settings."""

    name: ModelName = Field(description="A new name for it.")
    is_default: bool = Field(default=False, description="It answers where a personality names no model.")


class ChangedModel(ModelToTry):
    """A model of the configuration, with other values. Without `apiKey` and `keyOf` it has no key."""


class ModelChange(ApiModel):
    """What became of a change of the models."""

    model: str = Field(description="Its name.")
    is_in_use: bool = Field(description="The gateway works with it now; false: its next start does.")
    notes: tuple[str, ...] = Field(description="What is to be known or done besides, for people.")
