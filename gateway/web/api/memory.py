"""`/memory`: documents, their history, and proposals."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from gateway.errors import MemoryConflict
from gateway.sdk.models.memory import (
    Change,
    ChangeTexts,
    Document,
    DocumentInfo,
    EditProposal,
    MemoryKind,
    Origin,
    Passage,
    Proposal,
    ProposalState,
    RestoreDocument,
    StoreName,
    WriteDocument,
)
from gateway.sdk.models.schema import Page
from gateway.services.caller import Caller
from gateway.services.naming import Wanted
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import CONFLICT, NOT_MODIFIED, PRECONDITION_FAILED, problems
from gateway.web.api.etags import IfMatch, IfNoneMatch, etag, expected_version, is_known
from gateway.web.api.naming import PersonalityParam, RowId, UserParam
from gateway.web.api.paging import Cursor, Limit, cursor_of, number_of, page_of, place_of
from gateway.web.api.problems import changed_meanwhile

router = APIRouter(prefix="/memory", tags=["memory"])

Reader = Annotated[Caller, Depends(Requires("memory:read"))]
Writer = Annotated[Caller, Depends(Requires("memory:write"))]
StoreParam = Annotated[StoreName, Query(description="`user` is USER.md, `memory` is MEMORY.md.")]
Question = Annotated[str, Query(min_length=1, max_length=10_000, description="What is looked for.")]
Line = Annotated[str, Query(min_length=1, max_length=10_000, description="A line of the memory, or a part of one.")]
_NO_USER = problems(not_found="There is no such user or personality.")
_NO_HISTORY = problems(not_offered="The memory keeps no history.")
_NO_CHANGE = {**_NO_HISTORY, **problems(not_found="There is no such change.")}
_NO_PROPOSAL = problems(not_found="There is no such proposal.", not_possible="It is decided already, or not yours.")


# ---- what there is --------------------------------------------------------------------------------------------------


@router.get("/provider", summary="Get the memory")
async def provider(_caller: Reader, services: WithServices) -> MemoryKind:
    """Where the memory is, and what can be done with it; the operations for the rest answer 501."""
    return services.memory.provider()


# ---- documents ------------------------------------------------------------------------------------------------------


@router.get("", response_model=Document, responses={**NOT_MODIFIED, **_NO_USER}, summary="Get a document")
async def get(
    *,
    caller: Reader,
    services: WithServices,
    store: StoreParam,
    personality: PersonalityParam = None,
    user: UserParam = None,
    if_none_match: IfNoneMatch = None,
) -> Document | Response:
    """The text as it is now. The gateway knows where it is; a client never says that."""
    document = await services.memory.get(caller, Wanted(personality=personality, user=user, store=store))
    return _tagged(document, if_none_match)


@router.put(
    "",
    response_model=Document,
    responses={
        **CONFLICT,
        **PRECONDITION_FAILED,
        **_NO_USER,
        **problems(
            too_large="The text is too large.",
            version_required="Neither `expectedVersion` nor `If-Match` is given.",
            not_offered="The memory cannot be edited here.",
        ),
    },
    summary="Write a document",
)
async def write(
    caller: Writer, services: WithServices, body: WriteDocument, response: Response, if_match: IfMatch = None
) -> Document | Response:
    """Replace the text, if it is still the version that was read; else both texts come back, and nothing is written.

    The version is `expectedVersion`, and then a change is a 409; or `If-Match`, and then it is a 412.
    """
    wanted = Wanted(personality=body.personality, user=body.user, store=body.store)
    version = expected_version(body.expected_version, if_match)
    try:
        document = await services.memory.write(caller, wanted, body.content, version)
    except MemoryConflict as error:
        return changed_meanwhile(error, 409 if if_match is None else 412)
    response.headers["etag"] = etag(document.version)
    return document


@router.get("/documents", summary="List documents")
async def list_(caller: Reader, services: WithServices, limit: Limit = 50, cursor: Cursor = None) -> Page[DocumentInfo]:
    """Every document that exists, without its text."""
    place = place_of("documents", cursor, str)
    after = None if place is None else str(place[0])
    found, rest = await services.memory.documents(caller, limit=limit, after=after)
    return Page(items=tuple(found), next_cursor=None if rest is None else cursor_of("documents", (rest,)))


@router.get(
    "/search",
    responses={**_NO_USER, **problems(not_offered="The memory cannot be searched.")},
    summary="Search the memory",
)
async def search(
    *,
    caller: Reader,
    services: WithServices,
    q: Question,
    personality: PersonalityParam = None,
    user: UserParam = None,
    limit: Limit = 50,
) -> Page[Passage]:
    """What fits a question, the best first; not for the key of a person."""
    wanted = Wanted(personality=personality, user=user)
    return Page(items=tuple(await services.memory.search(caller, wanted, q, limit=limit)))


# ---- history --------------------------------------------------------------------------------------------------------


@router.get("/changes", responses={**_NO_USER, **_NO_HISTORY}, summary="List changes")
async def history(
    *,
    caller: Reader,
    services: WithServices,
    store: Annotated[StoreName | None, Query(description="Without it, the changes of all documents.")] = None,
    personality: PersonalityParam = None,
    user: UserParam = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Change]:
    """Who changed the memory, when, where and how; the newest first."""
    is_all = store is None and personality is None and user is None
    wanted = None if is_all else Wanted(personality=personality, user=user, store=store)
    found = await services.memory.history(caller, wanted, limit=limit + 1, before=number_of("changes", cursor))
    return page_of("changes", found, limit, lambda change: (change.id,))


@router.get(
    "/changes/{change}",
    responses={**_NO_CHANGE, **problems(not_possible="Its texts are not known any more.")},
    summary="Get a change",
)
async def diff(caller: Reader, services: WithServices, change: RowId) -> ChangeTexts:
    """One change, with the whole text before and after it."""
    return await services.memory.diff(caller, change)


@router.post("/changes/{change}/restore", responses={**_NO_CHANGE, **CONFLICT}, summary="Restore a text")
async def restore(caller: Writer, services: WithServices, change: RowId, body: RestoreDocument) -> Document:
    """Restore the text that this change left."""
    return await services.memory.restore(caller, change, body.expected_version)


@router.post("/changes/{change}/undo", responses={**_NO_CHANGE, **CONFLICT}, summary="Undo a change")
async def undo(caller: Writer, services: WithServices, change: RowId) -> Document:
    """Restore the text from before this change, if nothing has changed since."""
    return await services.memory.undo(caller, change)


@router.get(
    "/why",
    responses={**_NO_HISTORY, **problems(not_found="No known change brought the line in, and no fact holds it.")},
    summary="Explain a line",
)
async def why(
    *,
    caller: Reader,
    services: WithServices,
    line: Line,
    store: Annotated[StoreName | None, Query(description="Without it, the user's document is looked at first.")] = None,
    personality: PersonalityParam = None,
    user: UserParam = None,
) -> Origin:
    """Where a line comes from, and the facts of the trace memory that hold its words (with `traces:read`)."""
    return await services.memory.why(caller, Wanted(personality=personality, user=user, store=store), line)


# ---- proposals ------------------------------------------------------------------------------------------------------


@router.get("/proposals", summary="List proposals", name="proposals.list")
async def list_proposals(
    caller: Reader,
    services: WithServices,
    state: Annotated[ProposalState, Query(description="`waiting` for a yes, or decided.")] = "waiting",
    limit: Limit = 50,
) -> Page[Proposal]:
    """Changes of the memory that a person must approve; the newest, oldest first."""
    return Page(items=tuple(await services.memory.proposals(caller, state=state, limit=limit)))


@router.get(
    "/proposals/{proposal}",
    responses=problems(not_found="There is no such proposal."),
    summary="Get a proposal",
    name="proposals.get",
)
async def get_proposal(caller: Reader, services: WithServices, proposal: RowId) -> Proposal:
    """One, with what it would change now."""
    return await services.memory.proposal(caller, proposal)


@router.patch("/proposals/{proposal}", responses=_NO_PROPOSAL, summary="Edit a proposal", name="proposals.edit")
async def edit_proposal(caller: Writer, services: WithServices, proposal: RowId, body: EditProposal) -> Proposal:
    """Change the text that would be added; the proposal remains waiting."""
    return await services.memory.edit(caller, proposal, body.content)


@router.post(
    "/proposals/{proposal}/approve", responses=_NO_PROPOSAL, summary="Approve a proposal", name="proposals.approve"
)
async def approve_proposal(caller: Writer, services: WithServices, proposal: RowId) -> Proposal:
    """Write it into the memory, exactly once."""
    return await services.memory.approve(caller, proposal)


@router.post(
    "/proposals/{proposal}/refuse", responses=_NO_PROPOSAL, summary="Refuse a proposal", name="proposals.refuse"
)
async def refuse_proposal(caller: Writer, services: WithServices, proposal: RowId) -> Proposal:
    """Refuse it; it is kept, and never written."""
    return await services.memory.refuse(caller, proposal)


def _tagged(document: Document, if_none_match: str | None) -> Response:
    headers = {"etag": etag(document.version)}
    if is_known(document.version, if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(document.model_dump_json(by_alias=True), media_type="application/json", headers=headers)
