"""`client.people`: people, their roles and links, and pending requests for access."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

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
    Role,
    SetRole,
    SignInsEnded,
)
from gateway.sdk.models.schema import Page
from gateway.sdk.request import LONG_TIMEOUT_S, Downloaded, Request
from gateway.sdk.styles import Namespace, S, listing, operation


class Pairing(Namespace[S]):
    """Strangers who ask for access. `who` is their code, or their account, `kind:id`; else `NotFoundError`."""

    @operation
    async def list(self) -> tuple[PairingRequest, ...]:
        """Pending requests, the oldest first."""
        return (await self.sender.get("/people/pairing", Page[PairingRequest])).items

    @operation
    async def approve(
        self, who: str, *, role: Role | None = None, idempotency_key: str | None = None
    ) -> PairingDecision:
        """Give a stranger access, without a role with that of the channel."""
        body = ApprovePairing(who=who, role=role)
        return await self.sender.write("POST", "/people/pairing/approve", PairingDecision, idempotency_key, body)

    @operation
    async def refuse(self, who: str, *, idempotency_key: str | None = None) -> PairingDecision:
        """Refuse a stranger, who gets no other code for a week."""
        body = RefusePairing(who=who)
        return await self.sender.write("POST", "/people/pairing/refuse", PairingDecision, idempotency_key, body)


class People(Namespace[S]):
    """People. Scopes: `people:read`, `people:write`.

    A person is named by a user id or an account, `kind:id`; `NotFoundError` where there is none.
    """

    @property
    def pairing(self) -> Pairing[S]:
        """Pending requests for access."""
        return Pairing(self.sender)

    @listing
    def list(self, query: str | None = None, *, limit: int | None = None) -> AsyncIterator[Person]:
        """Everybody, the newest first; `query` is a part of a name, an account or an id."""
        return self.sender.items(Request("GET", "/people", Page[Person], query={"q": query}), limit)

    @operation
    async def get(self, user: str) -> Person:
        """A person with accounts, links, role and access, and when they were seen last."""
        return await self.sender.get("/people/{user}", Person, user=user)

    @operation
    async def set_role(self, user: str, role: Role, *, idempotency_key: str | None = None) -> Person:
        """Give a person a role; `ConflictError` where the gateway would have no owner."""
        body = SetRole(role=role)
        return await self.sender.write("PUT", "/people/{user}/role", Person, idempotency_key, body, user=user)

    @operation
    async def revoke(self, user: str, *, idempotency_key: str | None = None) -> Person:
        """Revoke all access of a person; raises as `set_role`."""
        return await self.sender.write("POST", "/people/{user}/revoke", Person, idempotency_key, user=user)

    @operation
    async def link(
        self, one: str, other: str, *, is_one_kept: bool = False, idempotency_key: str | None = None
    ) -> LinkResult:
        """Make two users one person and merge their notes. `ConflictError` where they cannot be linked now.

        Args:
            other: may also be an account that has not written yet.
            is_one_kept: `one` keeps its user id; else the user who was there first.
        """
        body = CreateLink(one=one, other=other, is_one_kept=is_one_kept)
        return await self.sender.write("POST", "/people/links", LinkResult, idempotency_key, body)

    @operation
    async def unlink(self, link: str, *, idempotency_key: str | None = None) -> Link:
        """Undo a link: by its id, or by an account or user id that came with it."""
        return await self.sender.write("POST", "/people/links/{link}/undo", Link, idempotency_key, link=link)

    @operation
    async def export(self, user: str) -> bytes:
        """Everything that is kept about a person, as a zip file; needs `memory:read` and `sessions:read`, too."""
        return await self.sender.get("/people/{user}/export", bytes, user=user)

    @operation
    async def export_file(self, user: str, file: Path) -> Path:
        """The same in a file, which is written whole or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        path, path_values = "/people/{user}/export", {"user": user}
        request = Request("GET", path, Downloaded, path_values, download=file, timeout_s=LONG_TIMEOUT_S)
        return (await self.sender.send(request)).path

    @operation
    async def export_map(self) -> IdentityMap:
        """Who is behind each account, as a text that `import_map` takes. Only for the operator."""
        return await self.sender.get("/people/identity-map", IdentityMap)

    @operation
    async def import_map(
        self, text: str, *, is_replacing: bool = False, is_dry_run: bool = False, idempotency_key: str | None = None
    ) -> MapChanges:
        """Bring in the accounts of a map, all or none. Only for the operator.

        Args:
            text: in any of the forms of `identity-map.json`; `UnprocessableEntityError` says where it is wrong.
            is_replacing: accounts may get another user than they have.
            is_dry_run: say what would change, and change nothing.
        """
        body = ImportMap(text=text, is_replacing=is_replacing, is_dry_run=is_dry_run)
        return await self.sender.write("POST", "/people/identity-map", MapChanges, idempotency_key, body)

    @operation
    async def erasure_plan(self, user: str) -> ErasurePlan:
        """What an erasure would delete, and what it would leave. Only for the operator; raises as `set_role`."""
        return await self.sender.get("/people/{user}/erasure", ErasurePlan, user=user)

    @operation
    async def erase(self, user: str, *, confirm: str, idempotency_key: str | None = None) -> Erasure:
        """Erase everything that is kept about a person, for good. Raises as `set_role`.

        Args:
            confirm: the user id again, or the account where it belongs to no user.
        """
        body = ErasePerson(confirm=confirm)
        return await self.sender.write("POST", "/people/{user}/erase", Erasure, idempotency_key, body, user=user)

    @operation
    async def erasure(self, erasure: str) -> ErasureState:
        """How far an erasure is, by its id; waits for its end, though not for long."""
        return await self.sender.get("/people/erasures/{erasure}", ErasureState, erasure=erasure)

    @operation
    async def owner_code(self, *, idempotency_key: str | None = None) -> OwnerCode:
        """A code that makes the account that sends it to the agent an owner. Only for the operator."""
        return await self.sender.write("POST", "/people/owner-code", OwnerCode, idempotency_key)

    @operation
    async def invite(self, user: str, *, idempotency_key: str | None = None) -> Invitation:
        """A link by which a person sets up how they sign in to the pages, once. Only for the operator."""
        return await self.sender.write("POST", "/people/{user}/invitation", Invitation, idempotency_key, user=user)

    @operation
    async def invite_new(self, name: str, role: Role = "member", *, idempotency_key: str | None = None) -> Invitation:
        """The same for somebody who has no account here yet, and becomes a person with this role."""
        body = InviteNew(name=name, role=role)
        return await self.sender.write("POST", "/people/invitations", Invitation, idempotency_key, body)

    @operation
    async def end_sign_ins(self, user: str, *, idempotency_key: str | None = None) -> SignInsEnded:
        """Delete a person's password and second factor, and sign their browsers out. Only for the operator."""
        return await self.sender.write("POST", "/people/{user}/sign-ins/end", SignInsEnded, idempotency_key, user=user)
