"""`/personalities`: who can answer, and the two files that each is made of."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from gateway.desk.caller import Caller
from gateway.sdk.models.personalities import (
    CreatePersonality,
    Personality,
    PersonalityConflict,
    PersonalityFiles,
    WritePersonality,
)
from gateway.sdk.models.wire import Page
from gateway.web.api import PATH
from gateway.web.api.access import WithDesks, requires
from gateway.web.api.answers import NOT_MODIFIED, conflict, problems
from gateway.web.api.etags import IfMatch, IfNoneMatch, etag, expected_version, is_known
from gateway.web.api.naming import ID_PATTERN

router = APIRouter(prefix="/personalities", tags=["personalities"])

Reader = Annotated[Caller, Depends(requires("personalities:read"))]
Writer = Annotated[Caller, Depends(requires("personalities:write"))]
Id = Annotated[str, Path(pattern=ID_PATTERN, description="Of a personality.")]
_NONE = problems(not_found="There is no such personality.")


@router.get("")
async def list_personalities(caller: Reader, desks: WithDesks) -> Page[Personality]:
    """All that can be chosen, the built-in ones first; those that cannot be used with the reason."""
    return Page(items=tuple(await desks.personalities.list(caller)))


@router.post(
    "",
    status_code=201,
    responses={
        **problems(not_found="There is no personality `copyOf`.", not_possible="There is one of that id already."),
        201: {"headers": {"Location": {"schema": {"type": "string"}}, "ETag": {"schema": {"type": "string"}}}},
    },
)
async def create(caller: Writer, desks: WithDesks, body: CreatePersonality, response: Response) -> PersonalityFiles:
    """Make a new one; it can be chosen at once."""
    made = await desks.personalities.create(
        caller, body.id, name=body.name, description=body.description, copy_of=body.copy_of
    )
    response.headers["etag"] = etag(made.version)
    response.headers["location"] = f"{PATH}/personalities/{made.id}"
    return made


@router.get("/{personality}", response_model=PersonalityFiles, responses={**NOT_MODIFIED, **_NONE})
async def get(
    caller: Reader, desks: WithDesks, personality: Id, if_none_match: IfNoneMatch = None
) -> PersonalityFiles | Response:
    """Both files as they count now, also those of a built-in one, and those that are not valid."""
    files = await desks.personalities.get(caller, personality)
    headers = {"etag": etag(files.version)}
    if is_known(files.version, if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(files.model_dump_json(by_alias=True), media_type="application/json", headers=headers)


@router.put(
    "/{personality}",
    responses={
        **conflict("The files changed since they were read; what they are now is there.", model=PersonalityConflict),
        **_NONE,
        **problems(
            precondition_failed="`If-Match` is no version, or another one.",
            precondition_required="It is not said which version was read.",
            too_large="The texts are too large.",
        ),
    },
)
async def update(
    *,
    caller: Writer,
    desks: WithDesks,
    personality: Id,
    body: WritePersonality,
    response: Response,
    if_match: IfMatch = None,
) -> PersonalityFiles:
    """Replace both files, once they are valid, and if they are still the version that was read.

    Of a built-in personality these are the first of its own. They count from the next turn on. What is not valid is
    named with its file, line and column.
    """
    version = expected_version(body.expected_version, if_match)
    files = await desks.personalities.update(
        caller, personality, soul=body.soul, settings=body.settings, expected_version=version
    )
    response.headers["etag"] = etag(files.version)
    return files
