"""`/personalities`: who answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from gateway.desk.caller import Caller, Malformed, NotFound, Refused
from gateway.desk.desks import Desks
from gateway.errors import PersonalityError
from gateway.personalities.editing import PersonalityChanged
from gateway.sdk.models.personalities import (
    CreatePersonality,
    Personality,
    PersonalityFiles,
    UndoPersonality,
    UpdatePersonality,
)
from gateway.sdk.models.wire import ID_PATTERN, Page
from gateway.web.api.access import WithDesks, requires
from gateway.web.api.answers import problems
from gateway.web.api.etags import etag

router = APIRouter(prefix="/personalities", tags=["personalities"])

Reader = Annotated[Caller, Depends(requires("personalities:read"))]
Writer = Annotated[Caller, Depends(requires("personalities:write"))]
PersonalityPath = Annotated[str, Path(pattern=ID_PATTERN)]
_NONE = problems(not_found="There is no such personality.")
_CHANGED = problems(not_found="There is no such personality.", not_possible="It is not as it was read.")


@router.get("")
async def list_(caller: Reader, desks: WithDesks) -> Page[Personality]:
    """All of them, built-in ones first, those that cannot be used with the reason."""
    return Page(items=tuple(await desks.personalities.list(caller)))


@router.post(
    "",
    status_code=201,
    responses=problems(not_found="There is none to copy.", not_possible="There is one of that id."),
)
async def create(caller: Writer, desks: WithDesks, body: CreatePersonality) -> PersonalityFiles:
    """Make one; it can be chosen at once."""
    if body.copy_of is not None:
        await _known(caller, desks, body.copy_of)
    try:
        return await desks.personalities.create(
            caller, body.id, name=body.name, description=body.description, copy_of=body.copy_of
        )
    except PersonalityError as error:
        raise Refused(str(error)) from error


@router.get("/{personality}", responses=_NONE)
async def get(caller: Reader, desks: WithDesks, personality: PersonalityPath, response: Response) -> PersonalityFiles:
    """The texts of its files; they are not for the key of one person."""
    await _known(caller, desks, personality)
    found = await desks.personalities.get(caller, personality)
    response.headers["etag"] = etag(found.version)
    return found


@router.put("/{personality}", responses=_CHANGED)
async def update(
    caller: Writer, desks: WithDesks, personality: PersonalityPath, body: UpdatePersonality
) -> PersonalityFiles:
    """Replace its files, from the next turn on; a built-in one is overridden."""
    await _known(caller, desks, personality)
    try:
        return await desks.personalities.update(
            caller, personality, soul=body.soul, settings=body.settings, expected_version=body.expected_version
        )
    except PersonalityChanged:
        raise
    except PersonalityError as error:
        raise Malformed(str(error)) from error


@router.post("/{personality}/undo", status_code=204, responses=_CHANGED)
async def undo(caller: Writer, desks: WithDesks, personality: PersonalityPath, body: UndoPersonality) -> None:
    """Take the last change back; one that was just made is gone then."""
    await _known(caller, desks, personality)
    try:
        await desks.personalities.undo(caller, personality, body.expected_version)
    except PersonalityChanged:
        raise
    except PersonalityError as error:
        raise Refused(str(error)) from error


async def _known(caller: Caller, desks: Desks, personality_id: str) -> None:
    known = [one.id for one in await desks.personalities.list(caller)]
    if personality_id not in known:
        raise NotFound(f"there is no personality {personality_id}; there are {', '.join(known)}")
