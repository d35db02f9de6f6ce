"""`client.people`: who is known, who is whom, who asks to be let in, and what each may do."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.sdk.models.people import (
    Approve,
    Decided,
    Erase,
    Erased,
    Link,
    Linked,
    MakeLink,
    PairingRequest,
    Person,
    Refuse,
    Role,
    SetRole,
)
from gateway.sdk.models.schema import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation


class Pairing(Namespace[S]):
    """Strangers who ask to be let in. `who` is their code, or their account, `kind:id`."""

    @operation
    async def list(self) -> tuple[PairingRequest, ...]:
        """Those who wait for a yes, the oldest first."""
        return (await self.courier.ask(Request("GET", "/people/pairing", Page[PairingRequest]))).items

    @operation
    async def approve(self, who: str, *, role: Role | None = None, idempotency_key: str | None = None) -> Decided:
        """Let a stranger in, without a role as the channel says; `NotFound` where nobody waits by that name."""
        body = Approve(who=who, role=role)
        return await self.courier.ask(
            Request("POST", "/people/pairing/approve", Decided, body=body, idempotency_key=idempotency_key)
        )

    @operation
    async def refuse(self, who: str, *, idempotency_key: str | None = None) -> Decided:
        """Refuse a stranger, who gets no other code for a week; raises as `approve`."""
        return await self.courier.ask(
            Request("POST", "/people/pairing/refuse", Decided, body=Refuse(who=who), idempotency_key=idempotency_key)
        )


class People(Namespace[S]):
    """Whoever is known. Scopes: `people:read`, `people:write`.

    A person is named by a user id or an account, `kind:id`; `NotFound` where nobody is known by it.
    """

    @property
    def pairing(self) -> Pairing[S]:
        """Who asks to be let in."""
        return Pairing(self.courier)

    @listing
    def list(self, words: str | None = None, *, limit: int | None = None) -> AsyncIterator[Person]:
        """Everybody, whoever became known last first; `words` is a part of a name, an account or an id."""
        return self.courier.items(Request("GET", "/people", Page[Person], query={"q": words}), limit)

    @operation
    async def show(self, user: str) -> Person:
        """Accounts, links, role, where and how they are let in, and when they were seen last."""
        return await self.courier.ask(Request("GET", "/people/{user}", Person, place={"user": user}))

    @operation
    async def set_role(self, user: str, role: Role, *, idempotency_key: str | None = None) -> Person:
        """Say what somebody may do; `NotPossible` where it would leave the gateway no owner."""
        place = {"user": user}
        body = SetRole(role=role)
        return await self.courier.ask(
            Request("PUT", "/people/{user}/role", Person, place=place, body=body, idempotency_key=idempotency_key)
        )

    @operation
    async def revoke(self, user: str, *, idempotency_key: str | None = None) -> Person:
        """Let somebody in nowhere any more; raises as `set_role`."""
        place = {"user": user}
        return await self.courier.ask(
            Request("POST", "/people/{user}/revoke", Person, place=place, idempotency_key=idempotency_key)
        )

    @operation
    async def link(
        self, one: str, other: str, *, is_one_kept: bool = False, idempotency_key: str | None = None
    ) -> Linked:
        """Make two users one; their notes are united. `NotPossible` where they cannot be linked now.

        Args:
            other: may also be an account that has not written yet.
            is_one_kept: `one` keeps its user id; else whoever was there first does.
        """
        body = MakeLink(one=one, other=other, is_one_kept=is_one_kept)
        return await self.courier.ask(
            Request("POST", "/people/links", Linked, body=body, idempotency_key=idempotency_key)
        )

    @operation
    async def unlink(self, link: str, *, idempotency_key: str | None = None) -> Link:
        """Take a link back: by its id, or by an account or user id that came in with it."""
        place = {"link_id": link}
        return await self.courier.ask(
            Request("POST", "/people/links/{link_id}/undo", Link, place=place, idempotency_key=idempotency_key)
        )

    @operation
    async def export(self, user: str) -> bytes:
        """Everything that is kept about somebody, as a zip file; needs `memory:read` and `sessions:read`, too."""
        return await self.courier.ask(Request("GET", "/people/{user}/export", bytes, place={"user": user}))

    @operation
    async def erase(self, user: str, *, confirm: str, idempotency_key: str | None = None) -> Erased:
        """Erase everything that is kept about somebody, for good. Raises as `set_role`.

        Args:
            confirm: the user id, or the account that is no user's, once more.
        """
        place = {"user": user}
        body = Erase(confirm=confirm)
        return await self.courier.ask(
            Request("POST", "/people/{user}/erase", Erased, place=place, body=body, idempotency_key=idempotency_key)
        )
