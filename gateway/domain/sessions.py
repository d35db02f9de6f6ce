"""Sessions: the messages that share one context, and who answers in it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Protocol

from gateway.messages import ConversationRef, InboundMessage

Role = Literal["user", "assistant", "tool_call", "tool_result"]
SessionScope = Literal["conversation", "user"]
TITLE_CHARS = 60
LOCAL = "local"
"""The gateway's own channel, see `pipeline/local_channel.py`."""
OPERATOR_ACCOUNT = "operator"
"""The operator there, in the terminal and on the web page; all others hold an API key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session.

    Attributes:
        key: which conversation (or person) it belongs to; one session per key is the active one.
        personality_id: who answers in it now; each message keeps who wrote it.
        title: the beginning of the first message.
        summary: what stands in front of the model for the messages up to and including `summary_until`.
        summary_until: a message id, 0 where nothing is summarised.
        is_tainted: words of others stand in it; see `provenance.py`. Once so, so for ever: `/new` starts without.
    """

    id: str
    key: str
    user_id: str
    personality_id: str
    conversation: ConversationRef
    title: str
    created_at: datetime
    updated_at: datetime
    summary: str = ""
    summary_until: int = 0
    is_tainted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMessage:
    """One message of a session, as it was; never changed, except that a `/retry` puts another answer in its place.

    Attributes:
        id: given by the store, growing; 0 before it is stored.
        text: what was written; for a tool call its arguments, for a tool result what the tool returned.
        tool_call_id: joins a call and its result.
        is_superseded: another answer took its place; kept and shown, but no longer put in front of the model.
        author: how the platform showed the sender; for other people's messages in a group.
        is_tainted: words of others stand in it, or it was written by the agent after it had read some.
    """

    id: int = 0
    session_id: str
    turn_id: str
    role: Role
    personality_id: str
    user_id: str
    text: str
    created_at: datetime
    tool_name: str | None = None
    tool_call_id: str | None = None
    is_superseded: bool = False
    author: str = ""
    is_tainted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHit:
    """A message that a search found.

    Attributes:
        snippet: a passage of it with what matched between `[` and `]`.
        score: higher is better, comparable within one answer.
        is_tainted: as of the message.
    """

    message_id: int
    session_id: str
    role: Role
    personality_id: str
    snippet: str
    score: float
    created_at: datetime
    is_tainted: bool = False


class SessionStore(Protocol):
    """Sessions and their messages. Only the turn's commit writes messages."""

    async def active_session(self, key: str) -> Session | None:
        """The session that the key's next message belongs to."""

    async def session(self, session_id: str) -> Session | None:
        """One session."""

    async def list_sessions(
        self, *, user_id: str | None = None, limit: int = 50, before: Session | None = None
    ) -> Sequence[Session]:
        """Newest first by `updated_at`; those behind `before`, the last of the page before."""

    async def messages(self, session_id: str, *, limit: int | None = None) -> Sequence[SessionMessage]:
        """All messages (or the last `limit`), oldest first, superseded ones too."""

    async def window(self, session_id: str, *, after: int, max_chars: int) -> Sequence[SessionMessage]:
        """The newest messages with an id above `after` that fit into `max_chars`, whole turns only, oldest first.

        Superseded messages are left out. Its cost does not grow with the length of the session.
        """

    async def results(self, session_id: str, tool: str) -> Sequence[str]:
        """What a tool has returned in a session, oldest first."""

    async def older_than(self, session_id: str, *, after: int, before: int) -> Sequence[SessionMessage]:
        """Messages with an id above `after` and below `before`, oldest first: what a summary has to cover."""

    async def save_summary(self, session_id: str, *, summary: str, until: int) -> None:
        """Put the summary in front of the messages after `until`.

        An `until` that is older than the stored one changes no summary. `TurnCommit.session` never changes one.
        """

    async def search_messages(self, query: str, *, user_id: str | None, limit: int = 20) -> Sequence[SessionHit]:
        """Messages with all the words of the query, best first; within one person's sessions, or all for None.

        Words in any order and any script, `"a phrase"`, `prefix*`. No input is a syntax error.
        """


def is_named(place: ConversationRef) -> bool:
    """Whether a conversation of the local channel has a name that its account gave it: `account/name`."""
    return "/" in place.conversation


def session_key(message: InboundMessage, user_id: str, scope: SessionScope) -> str:
    """The key under which the message's session is found.

    With the scope `user`, all direct chats of a person share one session, over all channels; but who names a session
    of the local channel means that one.
    """
    names_session = message.conversation.channel == LOCAL and not is_named(message.conversation)
    if scope == "user" and message.is_direct and not names_session:
        return f"user:{user_id}"
    return conversation_key(message.conversation)


def conversation_key(where: ConversationRef) -> str:
    """The key of the session of one conversation."""
    # JSON-free and unambiguous: the parts are opaque and may hold any character, so each is led by its length
    return ":".join(f"{len(part)}.{part}" for part in (where.channel, where.conversation, where.thread or ""))


def new_session(message: InboundMessage, *, key: str, user_id: str, personality_id: str) -> Session:
    """A session that begins with this message; it is durable once the turn is committed."""
    now = datetime.now(UTC)
    return Session(
        id=f"s_{secrets.token_hex(8)}",
        key=key,
        user_id=user_id,
        personality_id=personality_id,
        conversation=message.conversation,
        title="",
        created_at=now,
        updated_at=now,
    )


def with_title(session: Session, text: str) -> Session:
    """Name a session that has no title yet after the first words written in it."""
    if session.title:
        return session
    words = " ".join(text.split())
    return replace(session, title=words if len(words) <= TITLE_CHARS else words[: TITLE_CHARS - 1].rstrip() + "…")
