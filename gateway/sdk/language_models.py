"""`client.models`: models of the configuration, what servers offer, and what a model answers when it is tried."""

from __future__ import annotations

from gateway.sdk.models.models import (
    ChangedModel,
    ConfiguredModel,
    ModelChange,
    ModelPlace,
    ModelToTry,
    ModelTrial,
    NewModel,
    OfferedModels,
)
from gateway.sdk.models.schema import Page
from gateway.sdk.request import LONG_TIMEOUT_S
from gateway.sdk.styles import Namespace, S, operation

_ONE = "/models/{model}"


class Models(Namespace[S]):
    """Models that answer. Scope: `system:read`, and no key of a person; all but the list is the operator's only.

    Every operation on a model raises `NotFoundError` where there is none of that name.
    """

    @operation
    async def list(self) -> tuple[ConfiguredModel, ...]:
        """All models of the configuration."""
        return (await self.sender.get("/models", Page[ConfiguredModel])).items

    @operation
    async def offers(self, place: ModelPlace, *, idempotency_key: str | None = None) -> OfferedModels:
        """Ask a server which models it offers; `UnprocessableEntityError` where it cannot be asked, with the reason."""
        return await self.sender.write(
            "POST", "/models/offers", OfferedModels, idempotency_key, place, timeout_s=LONG_TIMEOUT_S
        )

    @operation
    async def try_out(self, candidate: ModelToTry, *, idempotency_key: str | None = None) -> ModelTrial:
        """Ask a model for one word that is not in the configuration; it may answer, or not and say why."""
        return await self.sender.write(
            "POST", "/models/try", ModelTrial, idempotency_key, candidate, timeout_s=LONG_TIMEOUT_S
        )

    @operation
    async def test(self, model: str, *, idempotency_key: str | None = None) -> ModelTrial:
        """Ask a model of the configuration for one word; it may answer, or not and say why."""
        return await self.sender.write(
            "POST", f"{_ONE}/test", ModelTrial, idempotency_key, timeout_s=LONG_TIMEOUT_S, model=model
        )

    @operation
    async def add(self, new: NewModel, *, idempotency_key: str | None = None) -> ModelChange:
        """Write it into config.yaml, and use it; `ConflictError` where it is there already, or cannot be written."""
        return await self.sender.write("POST", "/models", ModelChange, idempotency_key, new)

    @operation
    async def change(self, model: str, changed: ChangedModel, *, idempotency_key: str | None = None) -> ModelChange:
        """Write other values of it into config.yaml; what `changed` does not know of stays as it is."""
        return await self.sender.write("PUT", _ONE, ModelChange, idempotency_key, changed, model=model)

    @operation
    async def use(self, model: str, *, idempotency_key: str | None = None) -> ModelChange:
        """Make it the default, which answers where a personality names no model."""
        return await self.sender.write("POST", f"{_ONE}/use", ModelChange, idempotency_key, model=model)

    @operation
    async def remove(self, model: str, *, idempotency_key: str | None = None) -> ModelChange:
        """Take it out of config.yaml; `ConflictError` where something needs it, with what to do first."""
        return await self.sender.write("DELETE", _ONE, ModelChange, idempotency_key, model=model)
