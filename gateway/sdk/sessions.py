"""`client.sessions`: find, read, fork and change sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import NoneType

from gateway.sdk.models.schema import Page
from gateway.sdk.models.sessions import ForkSession, FoundMessage, Message, Session, Transcript, UpdateSession, Versions
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation

_ONE = "/sessions/{session}"


class Sessions(Namespace[S]):
    """Messages that share one context. Scopes: `sessions:read`, `sessions:write`.

    A session is named by its id; `NotFoundError` where there is none, or not for this key.
    """

    @listing
    def list(
        self,
        query: str | None = None,
        *,
        personality: str | None = None,
        user: str | None = None,
        channel: str | None = None,
        pinned: bool | None = None,
        title: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Session]:
        """All sessions, the newest first; with `query` those that hold its words, the best match first.

        Args:
            query: words in any order; `"a phrase"` and `begin*` work, too. Matches are in `snippets`.
            title: words that stand so in the title, in small or large letters.
            limit: at most so many; all without it, fetched page by page as you go on.
        """
        asked = {
            "q": query,
            "personality": personality,
            "user": user,
            "channel": channel,
            "pinned": pinned,
            "title": title,
        }
        return self.sender.items(Request("GET", "/sessions", Page[Session], query=asked), limit)

    @operation
    async def search(self, query: str, *, user: str | None = None, limit: int = 20) -> tuple[FoundMessage, ...]:
        """Messages that have all words of the query, the best match first; the words are as for `list`."""
        asked = {"q": query, "user": user, "limit": limit}
        return (await self.sender.get("/sessions/messages", Page[FoundMessage], asked)).items

    @operation
    async def get(self, session: str) -> Session:
        """A session, without its messages."""
        return (await self.sender.get(_ONE, Transcript, {"limit": 1}, session=session)).session

    @listing
    async def messages(self, session: str, *, limit: int | None = None) -> AsyncIterator[Message]:
        """Its messages, oldest first, tool calls and their results included."""
        request = Request("GET", _ONE, Transcript, {"session": session})
        async for message in self.sender.pages(request, limit, lambda transcript: transcript.messages):
            yield message

    @operation
    async def export(self, session: str) -> Transcript:
        """The whole session, for programs."""
        return await self.sender.get(f"{_ONE}/export", Transcript, {"format": "json"}, session=session)

    @operation
    async def markdown(self, session: str) -> str:
        """The whole session, as Markdown for people."""
        return await self.sender.get(f"{_ONE}/export", str, {"format": "markdown"}, session=session)

    @operation
    async def versions(self, session: str) -> tuple[Versions, ...]:
        """Its messages that were edited or answered again, each with the sessions of its versions; see `chat.edit`."""
        return (await self.sender.get(f"{_ONE}/versions", Page[Versions], session=session)).items

    @operation
    async def fork(
        self,
        session: str,
        message: int | None = None,
        *,
        turn: str | None = None,
        title: str | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Copy it up to and including a message, or a `turn`; `client.chat` continues in the copy."""
        body = ForkSession(message=message, turn=turn, title=title)
        return await self.sender.write("POST", f"{_ONE}/fork", Session, idempotency_key, body, session=session)

    @operation
    async def update(
        self,
        session: str,
        *,
        title: str | None = None,
        is_pinned: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Change the title, or pin; what is None stays."""
        body = UpdateSession(title=title, is_pinned=is_pinned)
        return await self.sender.write("PATCH", _ONE, Session, idempotency_key, body, session=session)

    @operation
    async def delete(self, session: str, *, idempotency_key: str | None = None) -> None:
        """Delete it, with all its messages."""
        await self.sender.write("DELETE", _ONE, NoneType, idempotency_key, session=session)
