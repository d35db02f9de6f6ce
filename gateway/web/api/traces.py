"""`/traces`: many small facts, each with a strength."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gateway.sdk.models.names import USER_PATTERN
from gateway.sdk.models.schema import ID_PATTERN, Page
from gateway.sdk.models.traces import (
    TRACE_ID_PATTERN,
    AddTrace,
    Consolidation,
    ConsolidationResult,
    ExportFormat,
    FoundTrace,
    ImportFormat,
    ImportReport,
    MergeTraces,
    Recalled,
    ScopeKind,
    StrengthCurve,
    Tag,
    Trace,
    TraceGraph,
    TraceType,
    UpdateTrace,
)
from gateway.services.caller import Caller
from gateway.services.trace_transfer import KINDS, TraceTransferService
from gateway.services.traces import MOST_NEIGHBOURS, MOST_POINTS, MOST_RANKED, Filters
from gateway.services.uploads import Transfer
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import problems
from gateway.web.api.naming import PersonalityParam, UserParam
from gateway.web.api.paging import Cursor, Limit, cursor_of, number_of, page_of
from gateway.web.downloads import traces_file

router = APIRouter(prefix="/traces", tags=["traces"])

Reader = Annotated[Caller, Depends(Requires("traces:read"))]
Writer = Annotated[Caller, Depends(Requires("traces:write"))]
TraceParam = Annotated[str, Path(pattern=TRACE_ID_PATTERN, description="Id of the trace.")]
OfUser = Annotated[
    str | None,
    Query(pattern=USER_PATTERN, max_length=512, description="Of one person only: a user id or an account, `kind:id`."),
]
_OFF = problems(not_possible="The trace memory is off.")
_NO_USER = problems(not_found="There is no such user.", not_possible="The trace memory is off.")
_NO_TRACE = problems(not_found="There is no such trace.", not_possible="The trace memory is off.")
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FILE = {"requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}}
_LEAVES = {
    kind.media_type: {"schema": {"type": "object"}} if kind.ending == "json" else _BINARY for kind in KINDS.values()
}


async def filters(
    *,
    q: Annotated[
        str,
        Query(max_length=2_000, description='A question or words; `"a phrase"`, `AND`, `OR`, `NOT`, `prefix*`.'),
    ] = "",
    type: Annotated[TraceType | None, Query(description="Of one type only.")] = None,  # noqa: A002 (its name on the wire)
    scope: Annotated[ScopeKind | None, Query(description="Of one scope only.")] = None,
    tag: Annotated[tuple[Tag, ...], Query(max_length=10, description="With each of these tags.")] = (),
    user: OfUser = None,
    personality: Annotated[
        str | None, Query(pattern=ID_PATTERN, description="Only what this personality alone knows.")
    ] = None,
    deleted: Annotated[bool, Query(description="Those that were deleted; `q` counts for nothing.")] = False,
) -> Filters:
    """The filters of a list, from its query parameters."""
    return Filters(
        query=q.strip(), type=type, scope=scope, tags=tag, user=user, personality=personality, is_deleted=deleted
    )


@router.get("", responses=_NO_USER, summary="List or search traces")
async def search(
    *,
    caller: Reader,
    services: WithServices,
    wanted: Annotated[Filters, Depends(filters)],
    explain: Annotated[bool, Query(description="Say what each score is made of.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[FoundTrace]:
    """With `q` the best matches, a hundred at most; without it all, the newest first."""
    if wanted.query and not wanted.is_deleted:
        start = max(0, number_of("traces found", cursor) or 0)
        found = await services.traces.search(caller, wanted, limit=min(start + limit + 1, MOST_RANKED), explain=explain)
        return page_of("traces found", found[start:], limit, lambda _last: (start + limit,))
    before = number_of("traces", cursor)
    items, rest = await services.traces.browse(caller, wanted, limit=limit, before=before)
    return Page(items=tuple(items), next_cursor=None if rest is None else cursor_of("traces", (rest,)))


@router.get("/recalled", responses=_NO_USER, summary="Recall traces")
async def recall(
    *,
    caller: Reader,
    services: WithServices,
    q: Annotated[str, Query(min_length=1, max_length=2_000, description="The question; as for a search.")],
    user: UserParam = None,
    personality: PersonalityParam = None,
    limit: Annotated[int, Query(ge=1, le=MOST_RANKED, description="At most so many.")] = 10,
) -> Recalled:
    """What a personality finds for a question of a person, and why; the best match first."""
    return await services.traces.recall(caller, q.strip(), user=user, personality=personality, limit=limit)


@router.post("", status_code=201, responses=_NO_USER, summary="Add a trace")
async def add(caller: Writer, services: WithServices, body: AddTrace) -> Trace:
    """Remember a fact. If the same owner has it with the same type already, the tags are added."""
    return await services.traces.add(caller, body)


@router.post(
    "/merge",
    responses=problems(not_possible="They are not there, or belong to different owners."),
    summary="Merge traces",
)
async def merge(caller: Writer, services: WithServices, body: MergeTraces) -> Trace:
    """Replace several traces by one; those are deleted, and can be restored."""
    return await services.traces.merge(caller, body.traces, body.content)


@router.post("/consolidate", responses=_OFF, summary="Consolidate traces")
async def consolidate(
    *,
    caller: Writer,
    services: WithServices,
    derive: Annotated[bool, Query(description="Ask a model for insights, where one is configured.")] = True,
) -> ConsolidationResult:
    """Prune, merge, link, derive and compact now, what the caller may change. Answers when it is done."""
    return await services.traces.consolidate(caller, derives=derive)


@router.get("/consolidations", responses=_OFF, summary="List consolidations")
async def consolidations(
    caller: Reader, services: WithServices, limit: Limit = 50, cursor: Cursor = None
) -> Page[Consolidation]:
    """Earlier consolidations, the newest first."""
    found = await services.traces.log(caller, limit=limit + 1, before=number_of("consolidations", cursor))
    return page_of("consolidations", found, limit, lambda entry: (entry.id,))


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
    dedup: Annotated[bool, Query(description="Skip what is known.")] = True,
) -> ImportReport:
    """Import the file that is the body. What is known is skipped, so it may be sent again.

    The operator at the machine may send a file of any size, and also while the trace memory is off.
    """
    transfer = services.trace_transfer
    upload = await _received(transfer, caller, name, request)
    try:
        return await transfer.import_file(caller, upload, form=format, user=user, is_dry_run=dry_run, dedup=dedup)
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
) -> Response:
    """All traces that the caller may see, or one person's, as they are at this moment."""
    return await traces_file(
        services.trace_transfer.export_file(
            caller, format, user=user, with_embeddings=embeddings, with_conversations=conversations
        )
    )


@router.get("/{trace}", responses=_NO_TRACE, summary="Get a trace")
async def get(caller: Reader, services: WithServices, trace: TraceParam) -> Trace:
    """One trace, also a deleted one."""
    return await services.traces.get(caller, trace)


@router.patch("/{trace}", responses=_NO_TRACE, summary="Change a trace")
async def update(caller: Writer, services: WithServices, trace: TraceParam, body: UpdateTrace) -> Trace:
    """Change what is given; search and vector follow."""
    return await services.traces.update(caller, trace, content=body.content, tags=body.tags)


@router.delete("/{trace}", responses=_NO_TRACE, summary="Delete a trace")
async def delete(caller: Writer, services: WithServices, trace: TraceParam) -> Trace:
    """Hide it from searches, answers and exports; it can be restored."""
    return await services.traces.delete(caller, trace)


@router.post("/{trace}/restore", responses=_NO_TRACE, summary="Restore a trace")
async def restore(caller: Writer, services: WithServices, trace: TraceParam) -> Trace:
    """Restore a deleted trace."""
    return await services.traces.restore(caller, trace)


@router.get("/{trace}/strength", responses=_NO_TRACE, summary="Get the strength over time")
async def strength(
    caller: Reader,
    services: WithServices,
    trace: TraceParam,
    points: Annotated[int, Query(ge=2, le=MOST_POINTS, description="So many moments.")] = 60,
) -> StrengthCurve:
    """How its strength falls: S(t) = S0 * exp(-t / stability), since it was last used and from now on."""
    return await services.traces.strength(caller, trace, points=points)


@router.get("/{trace}/graph", responses=_NO_TRACE, summary="Get the neighbours of a trace")
async def graph(
    caller: Reader,
    services: WithServices,
    trace: TraceParam,
    limit: Annotated[int, Query(ge=1, le=MOST_NEIGHBOURS, description="At most so many neighbours.")] = 25,
) -> TraceGraph:
    """Its neighbours, those of the highest weight first, and the links among them."""
    return await services.traces.around(caller, trace, limit=limit)


async def _received(transfer: TraceTransferService, caller: Caller, name: str, request: Request) -> Transfer:
    incoming = await transfer.receive(caller, name)
    try:
        async for chunk in request.stream():
            await incoming.write(chunk)
        return await incoming.finish()
    except ClientDisconnect as error:
        raise HTTPException(422, "The file broke off.") from error
    finally:
        await incoming.close()
