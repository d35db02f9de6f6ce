"""Messages to the agent, and the events of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, RootModel

from gateway.sdk.models.schema import ApiModel, PersonalityId, RequestBody

Base64 = Annotated[
    str,
    Field(max_length=6_000_000, pattern="^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"),
]
"""RFC 4648, section 4, with its padding."""
MAX_TEXT_CHARS = 1_000_000
"""Of one message."""
MAX_FILES = 20
"""Of one message."""


ConversationName = Annotated[
    str,
    Field(
        max_length=100,
        pattern=r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$",
        examples=["main"],
    ),
]
"""What a caller calls a conversation; the same name is another conversation for another caller."""


class File(RequestBody):
    """A file that goes with a message."""

    filename: Annotated[str, Field(min_length=1, max_length=255, description="Its name.", examples=["notes.txt"])]
    media_type: Annotated[str, Field(pattern=r"^[a-zA-Z0-9.+-]{1,80}/[a-zA-Z0-9.+-]{1,80}$")] = Field(
        description="Its media type.", examples=["text/plain"]
    )
    data: Base64 = Field(description="Its bytes in Base64, with padding.", examples=["VGVhIGF0IGZpdmUu"])


_ONE_BY_ID: dict[str, JsonValue] = {"required": ["session"], "properties": {"session": {"type": "string"}}}
_ONE_BY_NAME: dict[str, JsonValue] = {"required": ["conversation"], "properties": {"conversation": {"type": "string"}}}


class SendMessage(RequestBody):
    """Send a message to the agent."""

    model_config = ConfigDict(json_schema_extra={"not": {"allOf": [_ONE_BY_ID, _ONE_BY_NAME]}})

    session: Annotated[str | None, Field(max_length=64)] = Field(
        default=None, description="Session to go on in, of the gateway's own channel; a new one begins without it."
    )
    conversation: ConversationName | None = Field(
        default=None, description="In place of `session`: the caller's conversation of this name, begun if need be."
    )
    personality: PersonalityId | None = Field(
        default=None, description="Personality that answers in a new session; the configured default without it."
    )
    text: Annotated[str, Field(max_length=MAX_TEXT_CHARS, pattern=r"\S")] = Field(
        description="The text; may be a command, such as `/memory`.", examples=["My name is Ada"]
    )
    attachments: Annotated[tuple[File, ...], Field(max_length=MAX_FILES)] = Field(
        default=(), description="Files that go with it, 4 MiB together."
    )


class EditMessage(RequestBody):
    """Send a message again, edited or as it was, in a new session that has all that was said before it."""

    session: Annotated[str, Field(min_length=1, max_length=64, description="Session of the message.")]
    turn: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Turn of the message, from an event or the session's messages."
    )
    text: Annotated[str | None, Field(max_length=MAX_TEXT_CHARS, pattern=r"\S")] = Field(
        default=None, description="The new text; without it the same message is answered again."
    )


class AcceptedMessage(ApiModel):
    """The message is committed, and will be answered: the session's events show it."""

    session: str = Field(description="Session that the message is in.", examples=["s_5f0c1e7a9b3d2468"])
    message: str = Field(description="Id of the message; the answer has it as `replyTo`.")
    sequence: int = Field(description="The message is the first one behind this number in the session's events.")


class StopAnswer(RequestBody):
    """End the answer that is being written, in a session or in the caller's conversation of a name."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_ONE_BY_ID, _ONE_BY_NAME]})

    session: Annotated[str | None, Field(min_length=1, max_length=64)] = Field(
        default=None, description="Session of the answer."
    )
    conversation: ConversationName | None = Field(default=None, description="In place of `session`.")


class Choice(ApiModel):
    """A choice that an answer offers."""

    label: str = Field(description="What a button for it shows.")
    text: str = Field(description="What to send to choose it.")


class SentFile(ApiModel):
    """A file that came with a message."""

    filename: str = Field(description="Its name.")
    media_type: str = Field(description="Its media type, as its sender gave it.")
    size_bytes: int = Field(description="Its size.")


class ChatMessage(ApiModel):
    """The event `message`: one message of the conversation, in order. The event's id is its `sequence`."""

    id: str = Field(description="Id of the message: that of `AcceptedMessage`, or of a preview.")
    sequence: int = Field(description="Position in the conversation; `Last-Event-ID` continues behind it.")
    author: Literal["person", "agent"] = Field(description="Who wrote it.")
    text: str = Field(description="Markdown; empty where the message was stopped before anything was written.")
    at: datetime = Field(description="When it was accepted or written.")
    reply_to: str | None = Field(description="Id of the message that it answers.")
    choices: tuple[Choice, ...] = Field(default=(), description="What the answer offers to choose from.")
    has_failed: bool = Field(default=False, description="Whether it was given up: not answered, or not delivered.")
    turn: str = Field(default="", description="Turn that it begins, or that wrote it.")
    files: tuple[SentFile, ...] = Field(default=(), description="Files that the person sent with it.")


class Preview(ApiModel):
    """The event `preview`: the answer grows, until the message with its id comes.

    The text so far is `shown[:offset] + delta`, where `shown` is the text before; an empty one is withdrawn. A new
    stream begins with an offset of 0.
    """

    id: str = Field(description="Id of the message that will come.")
    reply_to: str | None = Field(description="Id of the message that it answers.")
    offset: int = Field(description="How many code points of the text before are still valid.")
    delta: str = Field(description="What follows them.")

    def shown(self, before: str) -> str:
        """The answer so far, from what this stream had shown before."""
        return before[: self.offset] + self.delta


class Tool(ApiModel):
    """The event `tool`: the agent uses a tool."""

    tool: str = Field(description="Name of the tool.")
    state: Literal["began", "ended"] = Field(description="Whether the call began or ended.")
    is_ok: bool = Field(description="Whether it succeeded; true while it runs.")


class Typing(ApiModel):
    """The event `typing`: an answer is being prepared."""


class Live(ApiModel):
    """The event `live`: all earlier messages are sent, and new ones follow. The event's id is its `sequence`."""

    sequence: int = Field(description="Position that the stream has reached; `Last-Event-ID` continues behind it.")


class Reset(ApiModel):
    """The event `reset`: `Last-Event-ID` is not of this conversation; its messages follow as without it."""


class Command(ApiModel):
    """A command that a message may be."""

    name: str = Field(description="Its name, without the `/`.", examples=["personality"])
    usage: str = Field(description="How it is written.", examples=["/personality [name]"])
    description: str = Field(description="What it does.")
    values: tuple[str, ...] = Field(default=(), description="What may follow it, where that is known.")


class CommandList(RootModel[tuple[Command, ...]]):
    """All commands that a message may be."""


EventName = Literal["message", "preview", "tool", "typing", "live", "reset"]
Event = ChatMessage | Preview | Tool | Typing | Live | Reset
EVENTS: Mapping[str, type[ChatMessage | Preview | Tool | Typing | Live | Reset]] = {
    "message": ChatMessage,
    "preview": Preview,
    "tool": Tool,
    "typing": Typing,
    "live": Live,
    "reset": Reset,
}
"""The model of each event's data."""
