"""Talking to the agent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from gateway.sdk.models.schema import PersonalityId, Sent, Wire

Base64 = Annotated[
    str,
    Field(max_length=6_000_000, pattern="^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"),
]
"""RFC 4648, section 4, with its padding."""


class File(Sent):
    """A file that goes with a message."""

    filename: Annotated[str, Field(min_length=1, max_length=255)]
    media_type: Annotated[str, Field(pattern=r"^[a-zA-Z0-9.+-]{1,80}/[a-zA-Z0-9.+-]{1,80}$")]
    data: Base64


class SendMessage(Sent):
    """Say something.

    Attributes:
        session: of the API's own channel, to go on in; without it a new one begins.
        personality: who answers in a new session; the configured default one without it.
        text: not blank; may be a command, such as `/memory`.
    """

    session: Annotated[str | None, Field(max_length=64)] = None
    personality: PersonalityId | None = None
    text: Annotated[str, Field(max_length=1_000_000, pattern=r"\S")]
    attachments: Annotated[tuple[File, ...], Field(max_length=20)] = ()


class SentMessage(Wire):
    """What was said is committed, and will be answered: the stream of the session's events shows it.

    Attributes:
        place: the message is the first one behind it in the session's events.
    """

    session: str
    message: str
    place: int


class StopAnswer(Sent):
    """End the answer that is being written in a session."""

    session: Annotated[str, Field(min_length=1, max_length=64)]


class Choice(Wire):
    """A choice that an answer offers; `text` is what one says to choose it."""

    label: str
    text: str


class ChatMessage(Wire):
    """The event `message`: what was said, in order. The event's id is its place; `Last-Event-ID` goes on behind it.

    Attributes:
        author: who said it.
        id: that of `SentMessage`, or of a preview.
        place: the event's id, once more.
        text: empty where the message that it answers was stopped before anything was written.
        reply_to: the message that it answers.
    """

    id: str
    place: int
    author: Literal["person", "agent"]
    text: str
    at: datetime
    reply_to: str | None
    choices: tuple[Choice, ...] = ()


class Preview(Wire):
    """The event `preview`: the answer grows, until the message with its id comes.

    What is shown of it now is `shown[:offset] + delta`; where that is empty, it is withdrawn. A new stream begins with
    an offset of 0.

    Attributes:
        id: of the message that will come.
        offset: how many code points of what was shown still stand.
        delta: what follows them.
    """

    id: str
    offset: int
    delta: str

    def shown(self, before: str) -> str:
        """The answer so far, of what this stream had shown before."""
        return before[: self.offset] + self.delta


class Tool(Wire):
    """The event `tool`: the agent uses one."""

    tool: str
    state: Literal["began", "ended"]
    is_ok: bool


class Typing(Wire):
    """The event `typing`: an answer is on its way."""


class Live(Wire):
    """The event `live`: all that was said is sent, and news follow."""


class Reset(Wire):
    """The event `reset`: the place in `Last-Event-ID` is not of this conversation's log; all of it follows anew."""


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
"""What the data of each event is."""
