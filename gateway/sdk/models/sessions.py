"""Sessions and what was said in them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StrictBool

from gateway.sdk.models.schema import Id, Sent, Wire

Title = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$")]
"""One line, with something to see in it."""


class Snippet(Wire):
    """A passage that a search found; what matched stands between `[` and `]`."""

    message: int
    role: Literal["user", "assistant", "tool_call", "tool_result"]
    text: str
    at: datetime


class Session(Wire):
    """Messages that share one context.

    Attributes:
        personality: who answers in it now.
        conversation: the channel's own id of the place, opaque.
        messages: how many, tool calls and their results too.
        is_tainted: words of others stand in it.
        forked_from: the session that it was copied from.
        snippets: what a search found in it.
    """

    id: str
    title: str
    user: str
    personality: str
    channel: str
    conversation: str
    thread: str | None
    created_at: datetime
    updated_at: datetime
    messages: int
    is_pinned: bool
    is_tainted: bool
    forked_from: str | None
    snippets: tuple[Snippet, ...] = ()


class Message(Wire):
    """One message of a session, as it was.

    Attributes:
        text: for a tool call its arguments, for a tool result what it returned.
        tool_call: joins a call and its result.
        is_superseded: another answer took its place.
        author: how the platform showed the sender.
    """

    id: int
    turn: str
    role: Literal["user", "assistant", "tool_call", "tool_result"]
    personality: str
    user: str
    author: str
    text: str
    at: datetime
    tool: str | None
    tool_call: str | None
    is_superseded: bool
    is_tainted: bool


class Transcript(Wire):
    """A session with its messages, oldest first; `nextCursor` leads to those behind them."""

    session: Session
    messages: tuple[Message, ...]
    next_cursor: str | None = None


class Fork(Sent):
    """Copy a session up to and including this message."""

    message: Id
    title: Title | None = None


class UpdateSession(Sent):
    """Another title, or pinned or not; what is None stays."""

    title: Title | None = None
    is_pinned: StrictBool | None = None
