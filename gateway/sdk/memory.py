"""`client.memory`: documents, their history, and what waits for a yes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.sdk.models.memory import (
    Change,
    ChangeTexts,
    Document,
    DocumentInfo,
    EditProposal,
    Origin,
    Proposal,
    ProposalState,
    RestoreDocument,
    StoreName,
    WriteDocument,
)
from gateway.sdk.models.schema import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation


class Proposals(Namespace[S]):
    """What turns would remember, and somebody has to say yes to. Scopes: `memory:read`, `memory:write`."""

    @operation
    async def list(self, *, state: ProposalState = "waiting", limit: int = 50) -> tuple[Proposal, ...]:
        """The newest of that state, oldest first; at most 200."""
        query = {"state": state, "limit": limit}
        return (await self.courier.ask(Request("GET", "/memory/proposals", Page[Proposal], query=query))).items

    @operation
    async def get(self, proposal: int) -> Proposal:
        """One, with what it would change now; `NotFound` where there is none."""
        place = {"proposal": proposal}
        return await self.courier.ask(Request("GET", "/memory/proposals/{proposal}", Proposal, place=place))

    @operation
    async def edit(self, proposal: int, content: str, *, idempotency_key: str | None = None) -> Proposal:
        """Edit the text that would be added; the proposal goes on waiting.

        Raises:
            NotFound: there is no such proposal.
            NotPossible: it is decided already.
        """
        return await self.courier.ask(
            Request(
                "PATCH",
                "/memory/proposals/{proposal}",
                Proposal,
                place={"proposal": proposal},
                body=EditProposal(content=content),
                idempotency_key=idempotency_key,
            )
        )

    @operation
    async def approve(self, proposal: int, *, idempotency_key: str | None = None) -> Proposal:
        """Write it into the memory, exactly once; raises as `edit`."""
        return await self.courier.ask(
            Request(
                "POST",
                "/memory/proposals/{proposal}/approve",
                Proposal,
                place={"proposal": proposal},
                idempotency_key=idempotency_key,
            )
        )

    @operation
    async def refuse(self, proposal: int, *, idempotency_key: str | None = None) -> Proposal:
        """Let it go; it is kept, and never written. Raises as `edit`."""
        return await self.courier.ask(
            Request(
                "POST",
                "/memory/proposals/{proposal}/refuse",
                Proposal,
                place={"proposal": proposal},
                idempotency_key=idempotency_key,
            )
        )


class Memory(Namespace[S]):
    """The memory as it is in the files, now. Scopes: `memory:read`, `memory:write`.

    `store` is `user` for USER.md or `memory` for MEMORY.md. `personality` is the configured default one where none is
    named, `user` a user id or an account (`kind:id`), and the only user where none is named.
    """

    @property
    def proposals(self) -> Proposals[S]:
        """What waits for a yes."""
        return Proposals(self.courier)

    @operation
    async def get(self, store: StoreName, *, personality: str | None = None, user: str | None = None) -> Document:
        """A document with its text.

        Raises:
            NotFound: nobody, or no personality, is known by that name.
            Invalid: it is not clear who is meant.
        """
        query = {"store": store, "personality": personality, "user": user}
        return await self.courier.ask(Request("GET", "/memory", Document, query=query))

    @operation
    async def newer(
        self, store: StoreName, version: str, *, personality: str | None = None, user: str | None = None
    ) -> Document | None:
        """The document, where it is not that version any more; None where it still is. Raises as `get`."""
        query = {"store": store, "personality": personality, "user": user}
        headers = {"if-none-match": f'"{version}"'}
        return await self.courier.ask_if_changed(Request("GET", "/memory", Document, query=query, headers=headers))

    @operation
    async def write(
        self,
        store: StoreName,
        content: str,
        expected_version: str,
        *,
        personality: str | None = None,
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> Document:
        """Put `content` in place of the whole text, if that is still `expected_version`.

        Raises:
            Conflict: it is not, and nothing was written; has both texts.
            TooLarge: the text is larger than a document may be.
            and as `get`.
        """
        body = WriteDocument(
            store=store, personality=personality, user=user, content=content, expected_version=expected_version
        )
        return await self.courier.ask(Request("PUT", "/memory", Document, body=body, idempotency_key=idempotency_key))

    @listing
    def list(self, *, limit: int | None = None) -> AsyncIterator[DocumentInfo]:
        """Every document that there is, without its text."""
        return self.courier.items(Request("GET", "/memory/documents", Page[DocumentInfo]), limit)

    @listing
    def history(
        self,
        *,
        store: StoreName | None = None,
        personality: str | None = None,
        user: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Change]:
        """Who changed the memory, when, where and how, the newest first; of all documents where none is named."""
        query = {"store": store, "personality": personality, "user": user}
        return self.courier.items(Request("GET", "/memory/changes", Page[Change], query=query), limit)

    @operation
    async def diff(self, change: int) -> ChangeTexts:
        """A change, with the whole text from before and after it.

        Raises:
            NotFound: there is no such change.
            NotPossible: its texts are not known any more.
        """
        return await self.courier.ask(Request("GET", "/memory/changes/{change}", ChangeTexts, place={"change": change}))

    @operation
    async def restore(self, change: int, expected_version: str, *, idempotency_key: str | None = None) -> Document:
        """Put the text as a change left it in place again, if the document is still `expected_version`.

        Raises:
            Conflict: it is not, and nothing was written; has both texts.
            NotFound: there is no such change.
            NotPossible: its text is not known any more.
        """
        return await self.courier.ask(
            Request(
                "POST",
                "/memory/changes/{change}/restore",
                Document,
                place={"change": change},
                body=RestoreDocument(expected_version=expected_version),
                idempotency_key=idempotency_key,
            )
        )

    @operation
    async def undo(self, change: int, *, idempotency_key: str | None = None) -> Document:
        """Bring back the text from before a change, if nothing has changed since; raises as `restore`."""
        return await self.courier.ask(
            Request(
                "POST",
                "/memory/changes/{change}/undo",
                Document,
                place={"change": change},
                idempotency_key=idempotency_key,
            )
        )

    @operation
    async def why(
        self,
        line: str,
        *,
        store: StoreName | None = None,
        personality: str | None = None,
        user: str | None = None,
    ) -> Origin:
        """Where a line, or a part of one, comes from; without a store, USER.md is looked at first.

        `facts` are those of the trace memory that hold its words; where only they do, there is no `change`.

        Raises:
            NotFound: no change is known that brought it in, and no fact holds it.
        """
        query = {"line": line, "store": store, "personality": personality, "user": user}
        return await self.courier.ask(Request("GET", "/memory/why", Origin, query=query))
