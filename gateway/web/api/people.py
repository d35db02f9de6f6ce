"""`/people`: who is known, who is whom, who asks to be let in, and what each may do."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response
from starlette.responses import StreamingResponse

from gateway.sdk.models.names import USER_PATTERN
from gateway.sdk.models.people import (
    ApprovePairing,
    CreateLink,
    ErasePerson,
    Erasure,
    ErasurePlan,
    ErasureState,
    IdentityMap,
    ImportMap,
    Invitation,
    InviteNew,
    Link,
    LinkResult,
    MapChanges,
    OwnerCode,
    PairingDecision,
    PairingRequest,
    Person,
    RefusePairing,
    SetRole,
    SignInsEnded,
)
from gateway.sdk.models.schema import Page
from gateway.services.caller import Caller
from gateway.services.people import Place, place_of_person
from gateway.web.api.access import Operator, Requires, WithServices
from gateway.web.api.answers import NOT_KEPT, problems
from gateway.web.api.paging import Cursor, Limit, no_page, page_of, place_of
from gateway.web.downloads import ZIP, download

router = APIRouter(prefix="/people", tags=["people"])

Reader = Annotated[Caller, Depends(Requires("people:read"))]
Writer = Annotated[Caller, Depends(Requires("people:write"))]
Who = Annotated[
    str,
    Path(pattern=USER_PATTERN, max_length=512, description="A user id, or an account, `kind:id`, in URL encoding."),
]
_NO_USER = problems(not_found="There is no such user.")
_NOT_NOW = problems(not_found="There is no such user.", not_possible="It would leave the gateway no owner.")
_NOT_WAITING = problems(not_found="There is no pending request with that code or account.")


@router.get("", summary="List people")
async def list_(
    caller: Reader,
    services: WithServices,
    q: Annotated[str | None, Query(max_length=200, description="A part of a name, an account or an id.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Person]:
    """Everybody, the newest first."""
    found = await services.people.list(caller, query=q, limit=limit + 1, after=_after(cursor))
    return page_of("people", found, limit, _place_of)


# ---- who asks to be let in ------------------------------------------------------------------------------------------


@router.get("/pairing", summary="List requests for access", name="pairing.list")
async def list_pairing(caller: Reader, services: WithServices) -> Page[PairingRequest]:
    """Pending requests of strangers, the oldest first; a channel has three at most."""
    return Page(items=tuple(await services.pairing.waiting(caller)))


@router.post("/pairing/approve", responses=_NOT_WAITING, summary="Approve a request for access", name="pairing.approve")
async def approve(caller: Writer, services: WithServices, body: ApprovePairing) -> PairingDecision:
    """Give a stranger access; what they wrote meanwhile is answered."""
    return await services.pairing.approve(caller, body.who, body.role)


@router.post("/pairing/refuse", responses=_NOT_WAITING, summary="Refuse a request for access", name="pairing.refuse")
async def refuse(caller: Writer, services: WithServices, body: RefusePairing) -> PairingDecision:
    """Refuse a stranger, who gets no other code for a week."""
    return await services.pairing.refuse(caller, body.who)


@router.post("/owner-code", summary="Make a code for an owner")
async def owner_code(caller: Operator, services: WithServices, response: Response) -> OwnerCode:
    """Make a code: the account that sends it to the agent becomes an owner. A new code ends an earlier one."""
    response.headers.update(NOT_KEPT)
    return await services.pairing.owner_code(caller)


# ---- who signs in to the pages --------------------------------------------------------------------------------------


@router.post("/invitations", summary="Invite somebody new")
async def invite_new(caller: Operator, services: WithServices, response: Response, body: InviteNew) -> Invitation:
    """Make a person without an account elsewhere, and a link by which they set up how they sign in to the pages."""
    response.headers.update(NOT_KEPT)
    return await services.logins.invite_new(caller, body.name, body.role)


@router.post("/{user}/invitation", responses=_NOT_NOW, summary="Invite a person")
async def invite(caller: Operator, services: WithServices, response: Response, user: Who) -> Invitation:
    """Make a link by which a person sets up how they sign in to the pages, once; an earlier one ends."""
    response.headers.update(NOT_KEPT)
    return await services.logins.invite(caller, user)


@router.post("/{user}/sign-ins/end", responses=_NO_USER, summary="End the logins of a person")
async def end_sign_ins(caller: Operator, services: WithServices, user: Who) -> SignInsEnded:
    """Delete a person's password and second factor, and sign all their browsers out."""
    return await services.logins.end(caller, user)


# ---- who is whom ----------------------------------------------------------------------------------------------------


@router.post(
    "/links",
    responses=problems(not_found="There is no such user.", not_possible="They cannot be linked now."),
    summary="Link two users",
)
async def link(caller: Writer, services: WithServices, body: CreateLink) -> LinkResult:
    """Make two users one person. Their notes are merged, and both sides are told; it can be undone."""
    return await services.people.link(caller, body.one, body.other, is_one_kept=body.is_one_kept)


@router.post(
    "/links/{link}/undo",
    responses=problems(not_found="There is no such link that counts.", not_possible="It is still being carried out."),
    summary="Undo a link",
)
async def unlink(
    caller: Writer,
    services: WithServices,
    link: Annotated[
        str,
        Path(min_length=1, max_length=512, description="The link's id, or an account or user id that came in with it."),
    ],
) -> Link:
    """Undo a link, however old it is. Both sides are told."""
    return await services.people.unlink(caller, link)


@router.get("/identity-map", summary="Export the identity map")
async def export_map(caller: Operator, services: WithServices) -> IdentityMap:
    """Who is behind each account, as a text that can be imported here or elsewhere."""
    return await services.identity_map.export(caller)


@router.post("/identity-map", summary="Import an identity map")
async def import_map(caller: Operator, services: WithServices, response: Response, body: ImportMap) -> MapChanges:
    """Bring in the accounts of a map, all or none. No account gets another user unless that is asked for."""
    response.headers.update(NOT_KEPT)  # it names people
    return await services.identity_map.take_in(
        caller, body.text, is_replacing=body.is_replacing, is_dry_run=body.is_dry_run
    )


# ---- what is erased -------------------------------------------------------------------------------------------------


@router.get("/erasures/{erasure}", responses=problems(not_found="There is no such erasure."), summary="Get an erasure")
async def erasure(
    caller: Writer, services: WithServices, erasure: Annotated[str, Path(max_length=64, description="Its id.")]
) -> ErasureState:
    """Say how far an erasure is. The answer waits up to 20 seconds for its end."""
    return await services.personal.erasure(caller, erasure)


@router.get("/{user}/erasure", responses=_NOT_NOW, summary="Preview an erasure")
async def erasure_plan(caller: Operator, services: WithServices, user: Who) -> ErasurePlan:
    """What an erasure would delete, and what it would leave to the operator. The account may belong to no user."""
    return await services.personal.erasure_plan(caller, user)


# ---- one person -----------------------------------------------------------------------------------------------------


@router.get("/{user}", responses=_NO_USER, summary="Get a person")
async def get(caller: Reader, services: WithServices, user: Who) -> Person:
    """One person: accounts, links, role and access, and when they were seen last."""
    return await services.people.show(caller, user)


@router.put("/{user}/role", responses=_NOT_NOW, summary="Set a role")
async def set_role(caller: Writer, services: WithServices, user: Who, body: SetRole) -> Person:
    """Give a person a role, on every channel where they have access."""
    return await services.people.set_role(caller, user, body.role)


@router.post("/{user}/revoke", responses=_NOT_NOW, summary="Revoke access")
async def revoke(caller: Writer, services: WithServices, user: Who) -> Person:
    """Revoke all access of a person, whatever the configuration says."""
    return await services.people.revoke(caller, user)


@router.get(
    "/{user}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {ZIP: {"schema": {"type": "string", "format": "binary"}}}}, **_NO_USER},
    summary="Export a person's data",
)
async def export(caller: Reader, services: WithServices, user: Who) -> StreamingResponse:
    """Everything that is kept about a person, as one zip file. The key needs `memory:read` and `sessions:read`, too."""
    return download(await services.personal.export(caller, user))


@router.post("/{user}/erase", responses=_NOT_NOW, summary="Erase a person")
async def erase(caller: Writer, services: WithServices, response: Response, user: Who, body: ErasePerson) -> Erasure:
    """Erase everything that is kept about a person, for good. The account may belong to no user."""
    response.headers.update(NOT_KEPT)  # it names the person
    return await services.personal.erase(caller, user, confirmed=body.confirm)


def _place_of(person: Person) -> tuple[str, str]:
    known_at, user_id = place_of_person(person)
    return known_at.isoformat(), user_id


def _after(cursor: str | None) -> Place | None:
    place = place_of("people", cursor, str, str)
    if place is None:
        return None
    try:
        known_at = datetime.fromisoformat(str(place[0]))
    except ValueError:
        known_at = None
    if known_at is None or known_at.tzinfo is None:
        raise no_page()
    return known_at, str(place[1])
