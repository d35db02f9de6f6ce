"""Sessions and their messages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, StrictBool

from gateway.sdk.models.schema import ApiModel, Id, RequestBody

Title = Annotated[
    str,
    Field(
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        description="One line, not blank.",
        examples=["Tea plans"],
    ),
]
MessageRole = Annotated[
    Literal["user", "assistant", "tool_call", "tool_result"], Field(description="Who or what wrote the message.")
]


_BY_MESSAGE: dict[str, JsonValue] = {"required": ["message"], "properties": {"message": {"type": "integer"}}}
_BY_TURN: dict[str, JsonValue] = {"required": ["turn"], "properties": {"turn": {"type": "string"}}}


class Snippet(ApiModel):
    """A passage that a search found."""

    message: int = Field(description="Id of the message.")
    role: MessageRole
    text: str = Field(description="The passage, with matches between `[` and `]`.", examples=["the [teapot] is red"])
    at: datetime = Field(description="When it was written.")


class Session(ApiModel):
    """Messages that share one context."""

    id: str = Field(description="Id of the session.", examples=["s_5f0c1e7a9b3d2468"])
    title: str = Field(description="Its title.")
    user: str = Field(description="User who talks in it.")
    personality: str = Field(description="Personality that answers in it now.")
    channel: str = Field(description="Channel that it is on.", examples=["web"])
    conversation: str = Field(description="Conversation on that channel; opaque.")
    thread: str | None = Field(description="Thread in the conversation; opaque.")
    created_at: datetime = Field(description="When it began.")
    updated_at: datetime = Field(description="When the last message was written.")
    messages: int = Field(description="Number of messages, tool calls and their results included.")
    is_pinned: bool = Field(description="Whether it is pinned.")
    is_tainted: bool = Field(description="Whether it holds text that its user did not write.")
    forked_from: str | None = Field(description="Session that it was copied from.")
    branch_of: str | None = Field(
        default=None, description="Session whose other version it is, where a message was edited or answered again."
    )
    key: str = Field(default="", description="Conversation or person that it belongs to; opaque.")
    summary: str | None = Field(
        default=None, description="Summary of its older messages; null for a key that sees one person."
    )
    summary_until: int = Field(default=0, description="Id of the last message in the summary; 0 where there is none.")
    snippets: tuple[Snippet, ...] = Field(default=(), description="Passages that a search found in it.")


class Message(ApiModel):
    """One message of a session."""

    id: int = Field(description="Id of the message.")
    turn: str = Field(description="Turn that wrote it.")
    role: MessageRole
    personality: str = Field(description="Personality that answered.")
    user: str = Field(description="User who wrote or was answered.")
    author: str = Field(description="Name of the sender on the platform.")
    text: str = Field(description="The text; of a tool call its arguments, of a tool result what it returned.")
    at: datetime = Field(description="When it was written.")
    tool: str | None = Field(description="Name of the tool.")
    tool_call: str | None = Field(description="Id that a tool call and its result share.")
    is_superseded: bool = Field(description="Whether another answer replaced it.")
    is_tainted: bool = Field(description="Whether it holds text that its user did not write.")


class FoundMessage(ApiModel):
    """A message that a search found."""

    message: int = Field(description="Id of the message.")
    session: str = Field(description="Id of its session.")
    role: MessageRole
    personality: str = Field(description="Personality that answered.")
    text: str = Field(description="A passage, with matches between `[` and `]`.", examples=["the [teapot] is red"])
    score: float = Field(description="How well it matches; comparable within one answer.")
    at: datetime = Field(description="When it was written.")
    is_tainted: bool = Field(description="Whether it holds text that its user did not write.")


class Transcript(ApiModel):
    """A session with its messages, oldest first."""

    session: Session = Field(description="The session.")
    messages: tuple[Message, ...] = Field(description="Its messages.")
    next_cursor: str | None = Field(default=None, description="`cursor` of the next page; null at the end. Opaque.")


class Versions(ApiModel):
    """A message of which there are several versions, each in a session."""

    turn: str = Field(description="Turn of the message, in the session that was asked for.")
    sessions: tuple[str, ...] = Field(description="Sessions that begin a version, the oldest first.")
    shown: int = Field(description="Position among them of the version in the session that was asked for.")


class ForkSession(RequestBody):
    """Copy a session up to and including a message, or a whole turn."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_BY_MESSAGE, _BY_TURN]})

    message: Id | None = Field(default=None, description="The last message of the copy.")
    turn: Annotated[str | None, Field(min_length=1, max_length=200)] = Field(
        default=None, description="In place of `message`: the last turn of the copy."
    )
    title: Title | None = None


class UpdateSession(RequestBody):
    """Change the title, or pin; what is null stays."""

    title: Title | None = None
    is_pinned: StrictBool | None = Field(default=None, description="Whether it is pinned.")
