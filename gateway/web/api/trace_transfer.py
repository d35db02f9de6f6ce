"""`/traces/import` and `/traces/export`: files of any size, through the disk and never through memory."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gateway.sdk.models.traces import ExportFormat, ImportFormat, ImportReport
from gateway.services.caller import Caller
from gateway.services.trace_transfer import KINDS, TraceTransferService
from gateway.services.uploads import Transfer
from gateway.web.api.access import WithServices, requires
from gateway.web.api.answers import problems
from gateway.web.api.traces import OfUser, Reader
from gateway.web.downloads import Download

router = APIRouter(prefix="/traces", tags=["traces"])

Writer = Annotated[Caller, Depends(requires("traces:write"))]
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FILE = {"requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}}
_LEAVES = {
    kind.media_type: {"schema": {"type": "object"}} if kind.ending == "json" else _BINARY for kind in KINDS.values()
}


@router.post(
    "/import",
    name="import_file",
    openapi_extra=_FILE,
    responses=problems(
        not_found="There is no such user.",
        not_possible="The trace memory is off, or other imports are at work.",
        too_large="The file is larger than `web.max_upload_bytes`.",
    ),
    summary="Import traces",
)
async def import_(
    *,
    caller: Writer,
    services: WithServices,
    request: Request,
    name: Annotated[str, Query(max_length=255, description="Of the file; named in errors.")] = "upload",
    format: Annotated[ImportFormat, Query(description="`auto` looks into the file.")] = "auto",  # noqa: A002 (its name on the wire)
    user: OfUser = None,
    dry_run: Annotated[bool, Query(alias="dryRun", description="Say what would happen, and change nothing.")] = False,
) -> ImportReport:
    """Import the file that is the body. What is known is skipped, so it may be sent again."""
    transfer = services.trace_transfer
    upload = await _received(transfer, name, request)
    try:
        return await transfer.import_file(caller, upload, form=format, user=user, is_dry_run=dry_run)
    finally:
        await transfer.discard(upload)


@router.get(
    "/export",
    response_class=FileResponse,
    responses={
        200: {"description": "The file.", "content": _LEAVES},
        **problems(not_found="There is no such user.", not_possible="The trace memory is off, or it is busy."),
    },
    summary="Export traces",
    name="export_file",
)
async def export(
    *,
    caller: Reader,
    services: WithServices,
    format: Annotated[ExportFormat, Query(description="`markdown` and `obsidian` are notes in a zip.")] = "json",  # noqa: A002 (its name on the wire)
    user: OfUser = None,
    embeddings: Annotated[bool, Query(description="With the vectors; `sqlite` always has them.")] = False,
    conversations: Annotated[bool, Query(description="With the conversations that imports brought.")] = True,
) -> FileResponse:
    """All traces that the caller may see, or one person's, as they are at this moment."""
    async with AsyncExitStack() as stack:
        taken = await stack.enter_async_context(
            services.trace_transfer.export_file(
                caller, format, user=user, with_embeddings=embeddings, with_conversations=conversations
            )
        )
        return Download(taken, stack.pop_all())


async def _received(transfer: TraceTransferService, name: str, request: Request) -> Transfer:
    incoming = await transfer.receive(name)
    try:
        async for chunk in request.stream():
            await incoming.write(chunk)
        return await incoming.finish()
    except ClientDisconnect as error:
        raise HTTPException(422, "The file broke off.") from error
    finally:
        await incoming.close()
