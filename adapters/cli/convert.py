"""The terminal's protocol: JSON objects, one per line, UTF-8, over a Unix socket.

::

    person's side                                    gateway's side
    hello {version, conversation, after}        ──▶
                                                ◀──  welcome {version, cursor, commands}
    message {id, text, is_trusted}              ──▶
                                                ◀──  accepted {id}                  after the commit
                                                ◀──  refused {id, reason, is_temporary}
                                                ◀──  typing {}                      an answer is on its way
                                                ◀──  preview {id, text}             so far; empty withdraws it
                                                ◀──  message {id, cursor, direction, author, text, reply_to, choices}
                                                ◀──  error {reason}

- `hello` comes first and once. `after` is the cursor of the last `message` that the person's side has shown, null to
  begin with what is said from now on. `welcome.cursor` is where the gateway begins.
- `message` with the cursors above that follow in order, those of the person (`direction` `in`, from every terminal)
  and those of the agent (`out`); a line is lost only with its connection, and a new `hello` with the last cursor
  brings it again. A `message` replaces the `preview` with its id.
- `choices` are `{command, label}` each: what the answer offers. Who takes one sends `/command` as a message.
- A person's message has a UUID for an id. The same id is one message however often it is sent, so whoever got neither
  `accepted` nor `refused` sends it again, as does who got a `refused` that is temporary. Send the next one after
  that, and the order is kept.
- `is_trusted` false says that the text holds somebody else's words, such as a file to be summarised.
- A line that cannot be read is answered with `error` and the connection goes on; after an `error` before `welcome` it
  is closed. A line of the person's side has at most `MAX_LINE_BYTES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.protocols import CommandInfo, LogEntry

VERSION = 1
MAX_LINE_BYTES = 1024 * 1024
"""Of a line to the gateway, its newline included."""

MAX_CONVERSATION_CHARS = 100

_UNREADABLE = {0x0000: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class BadLine(ValueError):
    """A line that is not of the protocol; its text is for people."""


class Frame(BaseModel):
    """One line."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Hello(Frame):
    """The person's side says what it wants to see."""

    type: Literal["hello"] = "hello"
    version: int = VERSION
    conversation: str
    after: int | None = None


class PersonMessage(Frame):
    """Something written by the person."""

    type: Literal["message"] = "message"
    id: str
    text: str
    is_trusted: bool = True


class Command(Frame):
    """A command of the gateway, for completion."""

    name: str
    usage: str
    description: str


class Welcome(Frame):
    """The gateway's side begins after `cursor`."""

    type: Literal["welcome"] = "welcome"
    version: int = VERSION
    cursor: int
    commands: tuple[Command, ...] = ()


class Accepted(Frame):
    """The message is committed."""

    type: Literal["accepted"] = "accepted"
    id: str


class Refused(Frame):
    """The message was not kept; if that is temporary, the same one may be sent again."""

    type: Literal["refused"] = "refused"
    id: str
    reason: str
    is_temporary: bool = False


class Typing(Frame):
    """An answer is on its way."""

    type: Literal["typing"] = "typing"


class Preview(Frame):
    """An answer so far; an empty text withdraws it."""

    type: Literal["preview"] = "preview"
    id: str
    text: str


class Choice(Frame):
    """Something that an answer offers; to take it is to send `/command`."""

    command: str
    label: str


class LogMessage(Frame):
    """One entry of the conversation."""

    type: Literal["message"] = "message"
    id: str
    cursor: int
    direction: Literal["in", "out"]
    author: str
    text: str
    reply_to: str | None = None
    choices: tuple[Choice, ...] = ()


class Failure(Frame):
    """What the other side sent, or asked for, cannot be had."""

    type: Literal["error"] = "error"
    reason: str


FromPerson = Hello | PersonMessage
FromGateway = Welcome | Accepted | Refused | Typing | Preview | LogMessage | Failure

_F = TypeVar("_F", FromPerson, FromGateway)

_FROM_PERSON: TypeAdapter[FromPerson] = TypeAdapter(Annotated[FromPerson, Field(discriminator="type")])
_FROM_GATEWAY: TypeAdapter[FromGateway] = TypeAdapter(Annotated[FromGateway, Field(discriminator="type")])


def encode(frame: Frame) -> bytes:
    """One line with its newline; characters that UTF-8 or a database cannot hold are replaced."""
    try:
        return frame.model_dump_json().encode() + b"\n"
    except ValueError:  # pydantic's PydanticSerializationError, for a lone surrogate
        fields = {key: clean(value) if isinstance(value, str) else value for key, value in frame}
        return frame.model_copy(update=fields).model_dump_json().encode() + b"\n"


def decode_from_person(line: bytes) -> FromPerson:
    """Read a line of the person's side.

    Raises:
        BadLine: it is not of the protocol.
    """
    return _decode(_FROM_PERSON, line)


def decode_from_gateway(line: bytes) -> FromGateway:
    """Read a line of the gateway's side.

    Raises:
        BadLine: it is not of the protocol.
    """
    return _decode(_FROM_GATEWAY, line)


def _decode(adapter: TypeAdapter[_F], line: bytes) -> _F:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadLine(f"{where}: {first['msg']}" if where else first["msg"]) from error


def clean(text: str) -> str:
    """Replace what no file and no database keeps, NUL and halves of surrogate pairs, with U+FFFD."""
    return text.translate(_UNREADABLE)


def conversation_problem(name: str) -> str | None:
    """Say why this cannot be a conversation's name, None if it can."""
    if not name or len(name) > MAX_CONVERSATION_CHARS or name != name.strip() or not name.isprintable():
        return f"a conversation's name has 1 to {MAX_CONVERSATION_CHARS} printable characters, no space at its ends"
    return None


def message_problem(message: PersonMessage) -> str | None:
    """Say why this message cannot be taken, None if it can."""
    try:
        is_canonical = str(UUID(message.id)) == message.id
    except ValueError:
        is_canonical = False
    if not is_canonical:
        return "the id must be a UUID in lower case with hyphens, new for every message"
    if not message.text.strip():
        return "the message is empty"
    return None


def to_inbound(
    message: PersonMessage, conversation: ConversationRef, account: str, display_name: str, sent_at: datetime
) -> InboundMessage:
    """The person's message as the gateway takes it; the UUID is both the message's and the delivery's id."""
    sender = Sender(channel=conversation.channel, user=account, display_name=display_name, is_verified=True)
    return InboundMessage(
        id=message.id,
        event_id=message.id,
        conversation=conversation,
        sender=sender,
        text=clean(message.text),
        sent_at=sent_at,
        is_trusted_text=message.is_trusted,
    )


def to_log_message(entry: LogEntry) -> LogMessage | None:
    """An entry as the terminal shows it; None for an answer that will never be delivered."""
    if entry.direction == "out" and entry.state in {"dead", "dropped"}:
        return None
    return LogMessage(
        id=entry.id,
        cursor=entry.cursor,
        direction=entry.direction,
        author=entry.display_name,
        text=entry.text,
        reply_to=entry.reply_to,
        choices=tuple(Choice(command=action.id, label=action.label) for action in entry.actions),
    )


def to_commands(commands: Sequence[CommandInfo]) -> tuple[Command, ...]:
    """The gateway's commands, for completion."""
    return tuple(Command(name=each.name, usage=each.usage, description=each.description) for each in commands)
