"""`/files`: memory and personalities as files, to be edited elsewhere and merged."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from gateway.sdk.models.files import FilesRevision, PutTextFile, TextFile, TextFileInfo
from gateway.sdk.models.memory import Version
from gateway.sdk.models.schema import Page
from gateway.services.caller import Caller
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import CONFLICT, problems
from gateway.web.api.paging import Cursor, Limit, cursor_of, place_of

router = APIRouter(prefix="/files", tags=["files"])

Reader = Annotated[Caller, Depends(Requires("memory:read"))]
Writer = Annotated[Caller, Depends(Requires("memory:write"))]
PathParam = Annotated[str, Query(min_length=1, max_length=300, description="Path of the file, from the list.")]
_NOT_OFFERED = problems(not_offered="The memory cannot be edited here.")


@router.get("", responses=_NOT_OFFERED, summary="List files")
async def list_(caller: Reader, services: WithServices, limit: Limit = 50, cursor: Cursor = None) -> Page[TextFileInfo]:
    """Every file that exists, without its text. Needs `personalities:read`, too."""
    place = place_of("files", cursor, str)
    after = None if place is None else str(place[0])
    found, rest = await services.files.list(caller, limit=limit, after=after)
    return Page(items=tuple(found), next_cursor=None if rest is None else cursor_of("files", (rest,)))


@router.get("/text", responses={**_NOT_OFFERED, **problems(not_found="There is no such file.")}, summary="Get a file")
async def get(caller: Reader, services: WithServices, path: PathParam) -> TextFile:
    """One, with its text. Needs `personalities:read`, too."""
    return await services.files.get(caller, path)


@router.put(
    "",
    responses={
        **CONFLICT,
        **_NOT_OFFERED,
        **problems(not_found="There is no such person or personality.", too_large="The text is too large."),
    },
    summary="Put a file",
)
async def put(caller: Writer, services: WithServices, body: PutTextFile) -> TextFile:
    """Merge an edited text with what the file is now; where both sides changed the same lines, nothing is written.

    Needs `personalities:write`, too.
    """
    return await services.files.put(caller, body.path, body.content, base=body.base)


@router.get("/revision", responses=_NOT_OFFERED, summary="Watch files")
async def revision(
    caller: Reader,
    services: WithServices,
    seen: Annotated[Version | None, Query(description="Answer when it is another one than this.")] = None,
    wait: Annotated[int, Query(ge=0, le=10, description="Seconds; then answer in any case.")] = 0,
) -> FilesRevision:
    """What all files are now, in one word. Needs `personalities:read`, too."""
    return FilesRevision(revision=await services.files.revision(caller, seen=seen, wait_s=wait))
