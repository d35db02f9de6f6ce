"""`/system`: health, usage and settings."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from gateway.sdk.models.schema import Page
from gateway.sdk.models.system import (
    ChannelHealth,
    Findings,
    ForgetOld,
    Forgotten,
    Health,
    PutAside,
    Reloaded,
    Repaired,
    Settings,
    Usage,
    WorkerHealth,
)
from gateway.services.caller import Caller
from gateway.web.api.access import Operator, Requires, WithServices
from gateway.web.api.answers import problems
from gateway.web.api.naming import UserParam

router = APIRouter(prefix="/system", tags=["system"])

FindingId = Annotated[str, Path(min_length=1, max_length=200, description="Its id, from the list.")]
Reader = Annotated[Caller, Depends(Requires("system:read"))]


@router.get("/health", summary="Get the health")
async def health(caller: Reader, services: WithServices) -> Health:
    """The state of the gateway, now; the status is 200 also where it does not work."""
    return await services.system.health(caller)


@router.get("/channels", summary="List channels")
async def channels(caller: Reader, services: WithServices) -> Page[ChannelHealth]:
    """The channels with their state."""
    return Page(items=tuple(await services.system.channels(caller)))


@router.get("/workers", summary="List workers")
async def workers(caller: Reader, services: WithServices) -> Page[WorkerHealth]:
    """The processes that serve from the database, the oldest first; on one machine it is one."""
    return Page(items=tuple(await services.system.workers(caller)))


@router.post(
    "/channels/{channel}/release",
    status_code=204,
    responses=problems(not_found="No channel has that name.", not_possible="No other worker can take it."),
    summary="Release a channel",
)
async def release(
    caller: Operator,
    services: WithServices,
    channel: Annotated[str, Path(max_length=64, description="Its name in the configuration.")],
) -> None:
    """Have another worker take a channel, which the one that has it stops first."""
    await services.system.release(caller, channel)


@router.get("/findings", summary="Look for problems")
async def findings(
    caller: Reader,
    services: WithServices,
    *,
    thorough: Annotated[
        bool, Query(description="Make the slow checks, too: the whole database, sandboxes, servers.")
    ] = False,
    ask: Annotated[bool, Query(description="Call the models, too, which costs tokens; for the operator.")] = False,
) -> Findings:
    """What is wrong and what to do, as `ethos doctor` says it."""
    return await services.repairs.findings(caller, thorough=thorough, asks=ask)


@router.post(
    "/findings/{finding}/aside",
    status_code=204,
    responses=problems(not_found="It is not found any more."),
    summary="Put a finding aside",
)
async def put_aside(caller: Operator, services: WithServices, finding: FindingId, body: PutAside) -> None:
    """Let a finding count no more until it changes, or count again."""
    await services.repairs.put_aside(caller, finding, is_put_aside=body.is_put_aside)


@router.post(
    "/repairs/{finding}",
    responses=problems(not_found="It is not found any more.", not_possible="It cannot be repaired, or not now."),
    summary="Repair a finding",
)
async def repair(caller: Operator, services: WithServices, finding: FindingId) -> Repaired:
    """Repair what a look has found, and look again whether it is gone."""
    return await services.repairs.repair(caller, finding)


@router.get(
    "/usage", response_model=Usage, responses=problems(not_found="There is no such user."), summary="Get the usage"
)
async def usage(
    caller: Reader,
    services: WithServices,
    days: Annotated[int, Query(ge=1, le=3660, description="So many days, today included.")] = 30,
    user: UserParam = None,
) -> Response:
    """Turns, tokens and cost by day, person, personality and model."""
    found = await services.system.usage(caller, days=days, user=user)  # thousands of rows: not checked a second time
    return Response(found.model_dump_json(by_alias=True), media_type="application/json")


@router.get("/config", summary="Get the configuration")
async def config(caller: Reader, services: WithServices) -> Settings:
    """The configuration in force, without its secrets."""
    return await services.system.settings(caller)


@router.post("/reload", summary="Reload the configuration")
async def reload(caller: Operator, services: WithServices) -> Reloaded:
    """Read the configuration again. The status is 200 also where there are `problems`, and nothing was taken over."""
    return await services.system.reload(caller)


@router.post("/retention", summary="Delete old data")
async def forget_old(caller: Operator, services: WithServices, body: ForgetOld) -> Page[Forgotten]:
    """Delete what is older than the configuration allows, as the gateway does once a day, or only count it."""
    return Page(items=tuple(await services.system.forget_old(caller, is_dry_run=body.is_dry_run)))
