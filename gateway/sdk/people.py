"""`client.people`: who is known, who is let in and as what, who is whom."""

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
from gateway.sdk.models.wire import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation


class Pairing(Namespace[S]):
    """Strangers who ask to be let in."""

    @operation
    async def list(self) -> tuple[PairingRequest, ...]:
        """Who waits for a yes, the oldest first."""
        return (await self.courier.ask(Request("GET", "/people/pairing", Page[PairingRequest]))).items

    @operation
    async def approve(self, who: str, *, role: Role | None = None, idempotency_key: str | None = None) -> Decided:
        """Let somebody in; what they wrote meanwhile is answered.

        Args:
            who: the code, or the account, `kind:id`.
            role: that of the channel without it.

        Raises:
            NotFound: nobody waits who has that code or account.
        """
        body = Approve(who=who, role=role)
        return await self.courier.ask(
            Request("POST", "/people/pairing/approve", Decided, body=body, idempotency_key=idempotency_key)
        )

    @operation
    async def refuse(self, who: str, *, idempotency_key: str | None = None) -> Decided:
        """Refuse somebody, who gets no other code for a week; raises as `approve`."""
        body = Refuse(who=who)
        return await self.courier.ask(
            Request("POST", "/people/pairing/refuse", Decided, body=body, idempotency_key=idempotency_key)
        )


class People(Namespace[S]):
    """Everybody who is known; each is named by user id or account. Scopes: `people:read`, `people:write`."""

    @property
    def pairing(self) -> Pairing[S]:
        """Strangers who ask to be let in."""
        return Pairing(self.courier)

    @listing
    def list(self, words: str | None = None, *, limit: int | None = None) -> AsyncIterator[Person]:
        """Whoever became known last comes first.

        Args:
            words: a part of a name, an account or an id.
        """
        return self.courier.items(Request("GET", "/people", Page[Person], query={"q": words}), limit)

    @operation
    async def show(self, user: str) -> Person:
        """One person; `NotFound` where nobody is known by that name."""
        return await self.courier.ask(Request("GET", "/people/{user}", Person, place={"user": user}))

    @operation
    async def set_role(self, user: str, role: Role, *, idempotency_key: str | None = None) -> Person:
        """Say what somebody may do, on every channel where they are let in.

        Raises:
            NotFound: nobody is known by that name.
            NotPossible: it is the operator, or nobody would be an owner any more.
        """
        return await self.courier.ask(
            Request(
                "PUT",
                "/people/{user}/role",
                Person,
                place={"user": user},
                body=SetRole(role=role),
                idempotency_key=idempotency_key,
            )
        )

    @operation
    async def revoke(self, user: str, *, idempotency_key: str | None = None) -> Person:
        """Let somebody in nowhere any more, whatever the configuration says; raises as `set_role`."""
        return await self.courier.ask(
            Request("POST", "/people/{user}/revoke", Person, place={"user": user}, idempotency_key=idempotency_key)
        )

    @operation
    async def links(self) -> tuple[Link, ...]:
        """The links that count, the oldest first."""
        return (await self.courier.ask(Request("GET", "/people/links", Page[Link]))).items

    @operation
    async def link(
        self, one: str, other: str, *, is_one_kept: bool = False, idempotency_key: str | None = None
    ) -> Linked:
        """Make two users one, and tell both.

        Args:
            other: also an account, `kind:id`, that has not written yet.
            is_one_kept: `one` keeps its user id; else whoever was there first does.

        Raises:
            NotFound: nobody is known by one of the names.
            NotPossible: they cannot be linked now; says why.
        """
        body = MakeLink(one=one, other=other, is_one_kept=is_one_kept)
        return await self.courier.ask(
            Request("POST", "/people/links", Linked, body=body, idempotency_key=idempotency_key)
        )

    @operation
    async def unlink(self, link: str, *, idempotency_key: str | None = None) -> Link:
        """Take a link back, however old it is.

        Args:
            link: its id, or an account or user id that came in with it.

        Raises:
            NotFound: there is no such link that counts.
            NotPossible: it is still being carried out.
        """
        return await self.courier.ask(
            Request(
                "POST", "/people/links/{link_id}/undo", Link, place={"link_id": link}, idempotency_key=idempotency_key
            )
        )

    @operation
    async def export(self, user: str) -> bytes:
        """Everything that is kept about somebody, as a zip file; needs `memory:read` and `sessions:read`, too."""
        return await self.courier.ask(Request("GET", "/people/{user}/export", bytes, place={"user": user}))

    @operation
    async def erase(self, user: str, confirm: str, *, idempotency_key: str | None = None) -> Erased:
        """Erase everything that is kept about somebody, for good.

        Args:
            user: also an account, `kind:id`, that is no user's.
            confirm: the user id, or that account, once more.

        Raises:
            NotFound: nothing is kept of anybody by that name.
            NotPossible: `confirm` is somebody else's, or they are the last owner.
        """
        return await self.courier.ask(
            Request(
                "POST",
                "/people/{user}/erase",
                Erased,
                place={"user": user},
                body=Erase(confirm=confirm),
                idempotency_key=idempotency_key,
            )
        )
