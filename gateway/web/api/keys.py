"""`/keys`: keys of this API, which only the operator makes and ends."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from gateway.sdk.models.keys import CreateKey, Key, NewKey
from gateway.sdk.models.schema import Page
from gateway.web.api.access import Operator, WithServices
from gateway.web.api.answers import NOT_KEPT, problems

router = APIRouter(prefix="/keys", tags=["keys"])


@router.get("", summary="List keys")
async def list_(caller: Operator, services: WithServices) -> Page[Key]:
    """All keys, the newest first, also those that were revoked; never their texts."""
    return Page(items=tuple(await services.keys.all(caller)))


@router.post(
    "",
    responses=problems(not_found="There is no such user.", not_possible="The key cannot have this name or scope."),
    summary="Create a key",
)
async def create(caller: Operator, services: WithServices, response: Response, body: CreateKey) -> NewKey:
    """Make a key. Its text is in this answer, and never shown again; sent again, another key is made."""
    response.headers.update(NOT_KEPT)
    return await services.keys.create(caller, body.name, body.scopes, body.user)


@router.post(
    "/{key}/revoke",
    responses=problems(not_found="There is no such key that is in force.", not_possible="Several keys have that name."),
    summary="Revoke a key",
)
async def revoke(
    caller: Operator, services: WithServices, key: Annotated[str, Path(max_length=512, description="Its id or name.")]
) -> Key:
    """End a key at once."""
    return await services.keys.revoke(caller, key)
