"""`/personalities`: who answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from gateway.sdk.models.personalities import CreatePersonality, Personality, PersonalityFiles, UpdatePersonality
from gateway.sdk.models.schema import ID_PATTERN, Page
from gateway.services.caller import Caller
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import problems
from gateway.web.api.etags import etag

router = APIRouter(prefix="/personalities", tags=["personalities"])

Reader = Annotated[Caller, Depends(Requires("personalities:read"))]
Writer = Annotated[Caller, Depends(Requires("personalities:write"))]
PersonalityPath = Annotated[str, Path(pattern=ID_PATTERN, description="Id of the personality.")]
_NO_PERSONALITY = problems(not_found="There is no such personality.")


@router.get("", summary="List personalities")
async def list_(caller: Reader, services: WithServices) -> Page[Personality]:
    """All of them, built-in ones first; one whose files are not valid has a `problem`."""
    return Page(items=tuple(await services.personalities.all(caller)))


@router.post(
    "",
    status_code=201,
    responses=problems(not_found="There is none to copy.", not_possible="There is one of that id."),
    summary="Create a personality",
)
async def create(caller: Writer, services: WithServices, body: CreatePersonality) -> PersonalityFiles:
    """Create one; it can be used at once."""
    return await services.personalities.create(
        caller, body.id, name=body.name, description=body.description, copy_of=body.copy_of
    )


@router.get("/{personality}", responses=_NO_PERSONALITY, summary="Get a personality")
async def get(
    caller: Reader, services: WithServices, personality: PersonalityPath, response: Response
) -> PersonalityFiles:
    """One, with the texts of its files."""
    found = await services.personalities.get(caller, personality)
    response.headers["etag"] = etag(found.version)
    return found


@router.patch(
    "/{personality}",
    responses={**_NO_PERSONALITY, **problems(not_possible="It was changed since it was read.")},
    summary="Change a personality",
)
async def update(
    caller: Writer, services: WithServices, personality: PersonalityPath, body: UpdatePersonality
) -> PersonalityFiles:
    """Change its prompt or its settings, from the next turn on; a built-in one is overridden."""
    return await services.personalities.update(
        caller, personality, prompt=body.prompt, settings=body.settings, expected_version=body.expected_version
    )
