"""`client.memory`: documents, their history, and proposals."""

from __future__ import annotations

from collections.abc import AsyncIterator

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
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation

_PROPOSAL = "/memory/proposals/{proposal}"
_CHANGE = "/memory/changes/{change}"


class Proposals(Namespace[S]):
    """Changes of the memory that a person must approve. Scopes: `memory:read`, `memory:write`.

    Every operation on one raises `NotFoundError` where there is none, a write `ConflictError` where it is decided.
    """

    @operation
    async def list(self, *, state: ProposalState = "waiting", limit: int = 50) -> tuple[Proposal, ...]:
        """The newest of that state, oldest first; at most 200."""
        return (await self.sender.get("/memory/proposals", Page[Proposal], {"state": state, "limit": limit})).items

    @operation
    async def get(self, proposal: int) -> Proposal:
        """One, with what it would change now."""
        return await self.sender.get(_PROPOSAL, Proposal, proposal=proposal)

    @operation
    async def edit(self, proposal: int, content: str, *, idempotency_key: str | None = None) -> Proposal:
        """Change the text that would be added; the proposal remains waiting."""
        body = EditProposal(content=content)
        return await self.sender.write("PATCH", _PROPOSAL, Proposal, idempotency_key, body, proposal=proposal)

    @operation
    async def approve(self, proposal: int, *, idempotency_key: str | None = None) -> Proposal:
        """Write it into the memory, exactly once."""
        return await self.sender.write("POST", f"{_PROPOSAL}/approve", Proposal, idempotency_key, proposal=proposal)

    @operation
    async def refuse(self, proposal: int, *, idempotency_key: str | None = None) -> Proposal:
        """Refuse it; it is kept, and never written."""
        return await self.sender.write("POST", f"{_PROPOSAL}/refuse", Proposal, idempotency_key, proposal=proposal)


class Memory(Namespace[S]):
    """The memory as it is now. Scopes: `memory:read`, `memory:write`.

    `store` is `user` for USER.md or `memory` for MEMORY.md. `personality` is the configured default without a name,
    `user` a user id or an account (`kind:id`), and the only user without a name. What the memory that was chosen cannot
    do raises `NotOfferedError`.
    """

    @property
    def proposals(self) -> Proposals[S]:
        """Changes that a person must approve."""
        return Proposals(self.sender)

    @operation
    async def provider(self) -> MemoryKind:
        """Where the memory is, and what can be done with it."""
        return await self.sender.get("/memory/provider", MemoryKind)

    @operation
    async def get(self, store: StoreName, *, personality: str | None = None, user: str | None = None) -> Document:
        """A document with its text.

        Raises:
            NotFoundError: there is no such user or personality.
            UnprocessableEntityError: there are several users; say which.
        """
        return await self.sender.get("/memory", Document, {"store": store, "personality": personality, "user": user})

    @operation
    async def get_if_changed(
        self, store: StoreName, version: str, *, personality: str | None = None, user: str | None = None
    ) -> Document | None:
        """The document, where its version is another one; None where it is the same. Raises as `get`."""
        query = {"store": store, "personality": personality, "user": user}
        headers = {"if-none-match": f'"{version}"'}
        return await self.sender.send_if_changed(Request("GET", "/memory", Document, query=query, headers=headers))

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
        """Replace the whole text, if it is still `expected_version`.

        Raises:
            VersionConflictError: it is not, and nothing was written; has both texts.
            RequestTooLargeError: the text is larger than a document may be.
            and as `get`.
        """
        body = WriteDocument(
            store=store, personality=personality, user=user, content=content, expected_version=expected_version
        )
        return await self.sender.write("PUT", "/memory", Document, idempotency_key, body)

    @listing
    def list(self, *, limit: int | None = None) -> AsyncIterator[DocumentInfo]:
        """Every document that exists, without its text."""
        return self.sender.items(Request("GET", "/memory/documents", Page[DocumentInfo]), limit)

    @operation
    async def search(
        self, query: str, *, personality: str | None = None, user: str | None = None, limit: int = 50
    ) -> tuple[Passage, ...]:
        """What fits a question, the best first; at most 200. Not for the key of a person."""
        asked = {"q": query, "personality": personality, "user": user, "limit": limit}
        return (await self.sender.get("/memory/search", Page[Passage], asked)).items

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
        return self.sender.items(Request("GET", "/memory/changes", Page[Change], query=query), limit)

    @operation
    async def diff(self, change: int) -> ChangeTexts:
        """A change, with the whole text before and after it.

        Raises:
            NotFoundError: there is no such change.
            ConflictError: its texts are not kept any more.
        """
        return await self.sender.get(_CHANGE, ChangeTexts, change=change)

    @operation
    async def restore(self, change: int, expected_version: str, *, idempotency_key: str | None = None) -> Document:
        """Restore the text that a change left, if the document is still `expected_version`.

        Raises:
            VersionConflictError: it is not, and nothing was written; has both texts.
            NotFoundError: there is no such change.
            ConflictError: its text is not kept any more.
        """
        body = RestoreDocument(expected_version=expected_version)
        return await self.sender.write("POST", f"{_CHANGE}/restore", Document, idempotency_key, body, change=change)

    @operation
    async def undo(self, change: int, *, idempotency_key: str | None = None) -> Document:
        """Restore the text from before a change, if nothing has changed since; raises as `restore`."""
        return await self.sender.write("POST", f"{_CHANGE}/undo", Document, idempotency_key, change=change)

    @operation
    async def why(
        self,
        line: str,
        *,
        store: StoreName | None = None,
        personality: str | None = None,
        user: str | None = None,
    ) -> Origin:
        """Where a line, or a part of one, comes from; without a store, USER.md is searched first.

        `facts` are those of the trace memory that hold its words; where only they do, there is no `change`.

        Raises:
            NotFoundError: no known change added it, and no fact holds it.
        """
        query = {"line": line, "store": store, "personality": personality, "user": user}
        return await self.sender.get("/memory/why", Origin, query)
