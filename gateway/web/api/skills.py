"""`/skills`: instructions that the agent loads when it needs them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from gateway.sdk.models.schema import Page
from gateway.sdk.models.skills import (
    PIN_PATTERN,
    SKILL_NAME_PATTERN,
    RemovedSkill,
    Skill,
    SkillDetails,
    TrustSkill,
)
from gateway.services.caller import Caller
from gateway.services.skills import MAX_ZIP_BYTES
from gateway.web.api.access import Operator, Requires, WithServices
from gateway.web.api.answers import problems

router = APIRouter(prefix="/skills", tags=["skills"])

Reader = Annotated[Caller, Depends(Requires("tools:read"))]
Name = Annotated[str, Path(pattern=SKILL_NAME_PATTERN, description="Name of a skill.")]
Whose = Annotated[
    str | None,
    Query(pattern="^[A-Za-z0-9_-]{1,64}$", description="Id of the personality that alone has it; without: of all."),
]
_NONE = "There is no such skill."
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FILE = {"requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}}
_TOO_LARGE = f"The ZIP file is larger than {MAX_ZIP_BYTES >> 20} MB."


@router.get("", summary="List skills")
async def list_(caller: Reader, services: WithServices) -> Page[Skill]:
    """All that lie in a place for skills, trusted or not; not for the key of a person."""
    return Page(items=tuple(await services.skills.listed(caller)))


@router.post(
    "",
    openapi_extra=_FILE,
    responses=problems(
        not_found="There is no such personality.",
        not_possible="It is not taken; says why.",
        too_large=_TOO_LARGE,
    ),
    summary="Add a skill",
)
async def add(
    *,
    caller: Operator,
    services: WithServices,
    request: Request,
    personality: Whose = None,
    replace: Annotated[bool, Query(description="In place of one that has its name.")] = False,
    pin: Annotated[str | None, Query(pattern=PIN_PATTERN, description="Trust it at once, if this is its pin.")] = None,
) -> SkillDetails:
    """Put the ZIP file that is the body in place. Without its `pin` it is withheld until it is trusted."""
    data = await _received(request)
    return await services.skills.added(caller, data, personality=personality, replaces=replace, pin=pin)


@router.get("/{skill}", responses=problems(not_found=_NONE), summary="Show a skill")
async def get(caller: Reader, services: WithServices, skill: Name, personality: Whose = None) -> SkillDetails:
    """One of them, with its instructions, the addresses in it, and what looks wrong; not for the key of a person."""
    return await services.skills.shown(caller, skill, personality)


@router.post(
    "/{skill}/trust",
    responses=problems(not_found=_NONE, not_possible="It has changed since it was seen, or cannot be used."),
    summary="Trust a skill",
)
async def trust(caller: Operator, services: WithServices, skill: Name, body: TrustSkill) -> SkillDetails:
    """Let the agent have it, exactly as it was seen."""
    return await services.skills.trusted(caller, skill, body.personality, body.pin)


@router.delete(
    "/{skill}",
    responses=problems(not_found=_NONE, not_possible="It cannot be removed; says why."),
    summary="Remove a skill",
)
async def remove(caller: Operator, services: WithServices, skill: Name, personality: Whose = None) -> RemovedSkill:
    """Trust it no more, and delete its files where the gateway put them."""
    return await services.skills.removed(caller, skill, personality)


async def _received(request: Request) -> bytes:
    """The body, whatever its type: what is no ZIP is refused by what it is."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_ZIP_BYTES:
                raise HTTPException(413, _TOO_LARGE)
    except ClientDisconnect as error:
        raise HTTPException(422, "The file broke off.") from error
    return bytes(body)
