"""`/tools`: what tools did."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from gateway.sdk.models.schema import Page
from gateway.sdk.models.tools import ToolUse
from gateway.services.caller import Caller
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import problems
from gateway.web.api.naming import UserParam
from gateway.web.api.paging import Cursor, Limit, page_of, place_of

router = APIRouter(prefix="/tools", tags=["tools"])

Reader = Annotated[Caller, Depends(Requires("tools:read"))]


@router.get("/calls", responses=problems(not_found="There is no such user."), summary="List calls of tools")
async def calls(
    *, caller: Reader, services: WithServices, user: UserParam = None, limit: Limit = 50, cursor: Cursor = None
) -> Page[ToolUse]:
    """Calls of tools, the newest first; they are kept for `retention.tools_days`."""
    place = place_of("tool calls", cursor, int)
    before = None if place is None else int(place[0])
    rows = await services.tools.calls(caller, user=user, limit=limit + 1, before=before)
    return page_of("tool calls", rows, limit, lambda row: (row.id,))
