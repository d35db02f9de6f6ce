"""`client.sessions`: found, read, forked, tidied."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import NoneType
from typing import TypeVar

from gateway.sdk.models.schema import Page
from gateway.sdk.models.sessions import Fork, Message, Session, Transcript, UpdateSession
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation

T = TypeVar("T", Transcript, str)


class Sessions(Namespace[S]):
    """Messages that share one context. Scopes: `sessions:read`, `sessions:write`.

    A session is named by its id; `NotFound` where there is none, or not for this key.
    """

    @listing
    def list(
        self,
        words: str | None = None,
        *,
        personality: str | None = None,
        user: str | None = None,
        channel: str | None = None,
        pinned: bool | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Session]:
        """All sessions, the newest first; with `words` those in which they were said, the best first.

        Args:
            words: in any order; `"a phrase"` and `begin*` work, too. What matched stands in `snippets`.
            limit: at most so many; all without it, fetched page by page as you go on.
        """
        query = {"q": words, "personality": personality, "user": user, "channel": channel, "pinned": pinned}
        return self.courier.items(Request("GET", "/sessions", Page[Session], query=query), limit)

    @operation
    async def get(self, session: str) -> Session:
        """A session, without its messages."""
        found = await self.courier.ask(_transcript(session).asking(limit=1))
        return found.session

    @listing
    async def messages(self, session: str, *, limit: int | None = None) -> AsyncIterator[Message]:
        """What was said, oldest first, calls of tools and their results too."""
        pages = self.courier.pages(_transcript(session), limit, lambda transcript: transcript.messages)
        async for message in pages:
            yield message

    @operation
    async def export(self, session: str) -> Transcript:
        """All of it, for programs."""
        return await self.courier.ask(_export(session, Transcript).asking(format="json"))

    @operation
    async def markdown(self, session: str) -> str:
        """All of it, as Markdown for people."""
        return await self.courier.ask(_export(session, str).asking(format="markdown"))

    @operation
    async def fork(
        self, session: str, message: int, *, title: str | None = None, idempotency_key: str | None = None
    ) -> Session:
        """Copy it up to and including a message; `client.chat` goes on in the copy."""
        return await self.courier.ask(
            Request(
                "POST",
                "/sessions/{session}/fork",
                Session,
                place={"session": session},
                body=Fork(message=message, title=title),
                idempotency_key=idempotency_key,
            )
        )

    @operation
    async def update(
        self,
        session: str,
        *,
        title: str | None = None,
        is_pinned: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Another title, pinned or not; what is None stays."""
        return await self.courier.ask(
            Request(
                "PATCH",
                "/sessions/{session}",
                Session,
                place={"session": session},
                body=UpdateSession(title=title, is_pinned=is_pinned),
                idempotency_key=idempotency_key,
            )
        )

    @operation
    async def delete(self, session: str, *, idempotency_key: str | None = None) -> None:
        """Forget it, with all that was said in it."""
        await self.courier.ask(
            Request(
                "DELETE", "/sessions/{session}", NoneType, place={"session": session}, idempotency_key=idempotency_key
            )
        )


def _transcript(session: str) -> Request[Transcript]:
    return Request("GET", "/sessions/{session}", Transcript, place={"session": session})


def _export(session: str, form: type[T]) -> Request[T]:
    return Request("GET", "/sessions/{session}/export", form, place={"session": session})
