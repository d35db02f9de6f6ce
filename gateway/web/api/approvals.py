"""`/approvals`: calls of tools that wait for a yes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from gateway.sdk.models.approvals import SayYes, ToolApproval, ToolGrant
from gateway.sdk.models.schema import Page
from gateway.services.caller import Caller
from gateway.web.api.access import Operator, Requires, WithServices
from gateway.web.api.answers import problems
from gateway.web.api.naming import RowId

router = APIRouter(prefix="/approvals", tags=["approvals"])

Reader = Annotated[Caller, Depends(Requires("tools:read"))]
_YES = SayYes()
_NO_GRANT = problems(not_found="There is no grant with that number.")
_NONE = problems(not_found="Nothing waits under that number.")
_NOT_EXPIRED = problems(
    not_found="There is none with that number.",
    not_possible="It has not expired, its tool has changed, or too many calls wait already.",
)
_NOT_NOW = problems(not_found="Nothing waits under that number.", not_possible="It does not wait any more.")


@router.get("", summary="List what waits for a yes")
async def list_(caller: Reader, services: WithServices) -> Page[ToolApproval]:
    """Calls of tools that wait for a yes, the oldest first."""
    return Page(items=tuple(await services.approvals.listed(caller)))


@router.get("/grants", summary="List what is not asked for any more")
async def grants(caller: Reader, services: WithServices) -> Page[ToolGrant]:
    """Grants: a yes that holds for further calls of the same tool with the same destination."""
    return Page(items=tuple(await services.approvals.listed_grants(caller)))


@router.delete("/grants/{grant}", status_code=204, responses=_NO_GRANT, summary="Take a grant back")
async def take_back(caller: Operator, services: WithServices, grant: RowId) -> None:
    """Ask again for calls that it covered."""
    await services.approvals.take_back(caller, grant)


@router.get("/{approval}", responses=_NONE, summary="Get a question")
async def get(caller: Reader, services: WithServices, approval: RowId) -> ToolApproval:
    """One call that waits, or waited, for a yes."""
    return await services.approvals.shown(caller, approval)


@router.post("/{approval}/yes", responses=_NOT_NOW, summary="Say yes")
async def yes(caller: Operator, services: WithServices, approval: RowId, body: SayYes = _YES) -> ToolApproval:
    """Have exactly this call made, once; with `grant` the next ones of its kind are not asked for."""
    return await services.approvals.decided(caller, approval, is_yes=True, scope=body.grant)


@router.post("/{approval}/no", responses=_NOT_NOW, summary="Say no")
async def no(caller: Operator, services: WithServices, approval: RowId) -> ToolApproval:
    """Drop it; it is never done."""
    return await services.approvals.decided(caller, approval, is_yes=False)


@router.post("/{approval}/again", responses=_NOT_EXPIRED, summary="Ask again")
async def ask_again(caller: Operator, services: WithServices, approval: RowId) -> ToolApproval:
    """Ask for exactly this call once more, under a new number, where it has expired."""
    return await services.approvals.asked_again(caller, approval)
