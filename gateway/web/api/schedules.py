"""`/schedules`: what is done at a time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query

from gateway.sdk.models.names import USER_PATTERN
from gateway.sdk.models.schedules import ChangeSchedule, NewSchedule, Occurrence, Schedule, ScheduleState
from gateway.sdk.models.schema import Page
from gateway.services.caller import Caller
from gateway.services.schedules import due_ms
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import problems
from gateway.web.api.naming import RowId
from gateway.web.api.paging import Cursor, Limit, number_of, page_of

router = APIRouter(prefix="/schedules", tags=["schedules"])

Reader = Annotated[Caller, Depends(Requires("schedules:read"))]
Writer = Annotated[Caller, Depends(Requires("schedules:write"))]
Seed = Annotated[str | None, Header(alias="idempotency-key", include_in_schema=False)]
_NONE = "There is no schedule with that number."
_NO_SCHEDULE = problems(not_found=_NONE)
_NOT_NOW = problems(not_found=_NONE, not_possible="Its state does not allow that.")
_NOT_SO = "The person has too many, or no conversation where it could be delivered."
_NOT_HERE = "It stands in the configuration, which alone changes it and takes it away."


@router.get("", summary="List schedules")
async def list_(
    *,
    caller: Reader,
    services: WithServices,
    user: Annotated[
        str | None, Query(pattern=USER_PATTERN, max_length=512, description="Only of this user: an id or an account.")
    ] = None,
    state: Annotated[ScheduleState | None, Query(description="Only those; all but the done ones without it.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Schedule]:
    """Reminders, jobs and watches, the oldest first."""
    after = number_of("schedules", cursor) or 0
    found = await services.schedules.listed(caller, user=user, state=state, after=after, limit=limit + 1)
    return page_of("schedules", found, limit, lambda one: (one.id,))


@router.post("", status_code=201, responses=problems(not_possible=_NOT_SO), summary="Create a schedule")
async def create(caller: Writer, services: WithServices, body: NewSchedule, seed: Seed = None) -> Schedule:
    """Make one for a person, delivered to a direct chat of that person."""
    return await services.schedules.created(caller, body, seed=seed)


@router.get("/{schedule}", responses=_NO_SCHEDULE, summary="Get a schedule")
async def get(caller: Reader, services: WithServices, schedule: RowId) -> Schedule:
    """One, with its next times."""
    return await services.schedules.shown(caller, schedule)


@router.patch(
    "/{schedule}",
    responses=problems(not_found=_NONE, not_possible=f"{_NOT_HERE} Or: {_NOT_SO}"),
    summary="Change a schedule",
)
async def change(caller: Writer, services: WithServices, schedule: RowId, body: ChangeSchedule) -> Schedule:
    """Change what the body names; the rest stays."""
    return await services.schedules.changed(caller, schedule, body)


@router.delete(
    "/{schedule}",
    status_code=204,
    responses=problems(not_found=_NONE, not_possible=_NOT_HERE),
    summary="Remove a schedule",
)
async def remove(caller: Writer, services: WithServices, schedule: RowId) -> None:
    """Remove it with its history and what waits of it."""
    await services.schedules.removed(caller, schedule)


@router.get("/{schedule}/history", responses=_NO_SCHEDULE, summary="List its occurrences")
async def history(
    caller: Reader, services: WithServices, schedule: RowId, limit: Limit = 50, cursor: Cursor = None
) -> Page[Occurrence]:
    """Its last times and what came of them, the newest first."""
    before_ms = number_of("occurrences", cursor)
    found = await services.schedules.history(caller, schedule, limit=limit + 1, before_ms=before_ms)
    return page_of("occurrences", found, limit, lambda one: (due_ms(one),))


@router.post("/{schedule}/pause", responses=_NOT_NOW, summary="Pause a schedule")
async def pause(caller: Writer, services: WithServices, schedule: RowId) -> Schedule:
    """Let nothing be due until it is resumed."""
    return await services.schedules.paused(caller, schedule)


@router.post("/{schedule}/resume", responses=_NOT_NOW, summary="Resume a schedule")
async def resume(caller: Writer, services: WithServices, schedule: RowId) -> Schedule:
    """Go on from now; what was due meanwhile is left out."""
    return await services.schedules.resumed(caller, schedule)


@router.post("/{schedule}/run", responses=_NOT_NOW, summary="Run a schedule")
async def run(caller: Writer, services: WithServices, schedule: RowId, seed: Seed = None) -> Schedule:
    """Do it once now, besides its times."""
    return await services.schedules.ran(caller, schedule, seed=seed)
