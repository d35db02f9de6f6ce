"""`/models`: models of the configuration, what servers offer, and what a model answers when it is tried."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

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
from gateway.services.caller import Caller
from gateway.web.api.access import Operator, Requires, WithServices
from gateway.web.api.answers import problems

router = APIRouter(prefix="/models", tags=["models"])

Reader = Annotated[Caller, Depends(Requires("system:read"))]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9._:-]{1,64}$", description="Name of a model of the configuration.")]
_NONE = "There is no such model."
_NO_KEY = "There is no model with the name `keyOf`."
_NOT_WRITTEN = "The configuration cannot be changed so; says why."


@router.get("", summary="List models")
async def list_(caller: Reader, services: WithServices) -> Page[ConfiguredModel]:
    """Models of the configuration, with their state; not for the key of a person."""
    return Page(items=tuple(await services.models.listed(caller)))


@router.post("", responses=problems(not_found=_NO_KEY, not_possible=_NOT_WRITTEN), summary="Add a model")
async def add(caller: Operator, services: WithServices, body: NewModel) -> ModelChange:
    """Write it into `models` in config.yaml, and use it from now on; its key goes into a file of its own."""
    return await services.models.added(caller, body)


@router.post("/offers", responses=problems(not_found=_NO_KEY), summary="List the models of a server")
async def offers(caller: Operator, services: WithServices, body: ModelPlace) -> OfferedModels:
    """Ask a server which models it offers."""
    return await services.models.offered(caller, body)


@router.post("/try", responses=problems(not_found=_NO_KEY), summary="Try a model")
async def try_out(caller: Operator, services: WithServices, body: ModelToTry) -> ModelTrial:
    """Ask a model for one word that is not in the configuration; the status is 200 also where it does not answer."""
    return await services.models.tried(caller, body)


@router.post("/{model}/test", responses=problems(not_found=_NONE), summary="Test a model")
async def test(caller: Operator, services: WithServices, model: Name) -> ModelTrial:
    """Ask a model of the configuration for one word; the status is 200 also where it does not answer."""
    return await services.models.tested(caller, model)


@router.put("/{model}", responses=problems(not_found=_NONE, not_possible=_NOT_WRITTEN), summary="Change a model")
async def change(caller: Operator, services: WithServices, model: Name, body: ChangedModel) -> ModelChange:
    """Write other values of it into config.yaml; what the body does not know of stays as it is."""
    return await services.models.changed(caller, model, body)


@router.post(
    "/{model}/use", responses=problems(not_found=_NONE, not_possible=_NOT_WRITTEN), summary="Make a model the default"
)
async def use(caller: Operator, services: WithServices, model: Name) -> ModelChange:
    """Have it answer where a personality names no model."""
    return await services.models.used(caller, model)


@router.delete(
    "/{model}",
    responses=problems(not_found=_NONE, not_possible="Something needs it, or the configuration cannot be changed."),
    summary="Remove a model",
)
async def remove(caller: Operator, services: WithServices, model: Name) -> ModelChange:
    """Take it out of `models` in config.yaml."""
    return await services.models.removed(caller, model)
