"""`/hooks`: addresses that services call, as the operator sees them; what services call is `/hooks` without `/api`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path

from gateway.sdk.models.hooks import CallHook, Hook, HookCalled
from gateway.sdk.models.schema import Page
from gateway.services.caller import Caller
from gateway.web.api.access import Operator, Requires, WithServices
from gateway.web.api.answers import problems

router = APIRouter(prefix="/hooks", tags=["hooks"])

Reader = Annotated[Caller, Depends(Requires("system:read"))]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Name of a hook.")]
Seed = Annotated[str | None, Header(alias="idempotency-key", include_in_schema=False)]
_EMPTY = CallHook()


@router.get("", summary="List hooks")
async def list_(caller: Reader, services: WithServices) -> Page[Hook]:
    """Hooks of the configuration, with their addresses and last calls; not for the key of a person."""
    return Page(items=tuple(await services.hooks.listed(caller)))


@router.post(
    "/{hook}/call",
    status_code=202,
    responses=problems(not_found="There is no such hook.", not_possible="It takes no calls now; says why."),
    summary="Try a hook",
)
async def call(
    caller: Operator,  # noqa: ARG001 (the operator's alone)
    services: WithServices,
    hook: Name,
    body: CallHook = _EMPTY,
    seed: Seed = None,
) -> HookCalled:
    """Take a call as if a service had sent this body."""
    return await services.hooks.called(hook, body.sent, seed=seed)
