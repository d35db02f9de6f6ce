"""Between Discord's JSON and the gateway's messages. Pure functions.

A payload is the JSON of the WebSocket or the REST API, not an object of the SDK: then a message that the SDK cannot
read does no harm to the others.
Discord's objects: https://docs.discord.com/developers/resources/message and .../interactions/receiving-and-responding.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gateway.messages import Attachment, ConversationRef, InboundMessage, QuotedText, Sender, remaining_actions
from gateway.protocols import CommandInfo

Payload = Mapping[str, Any]
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, OSError)
"""What these functions raise if a payload is not as Discord documents it."""

_DEFAULT, _REPLY = 0, 19  # message types; all others are notices of Discord or answers of an application
_FORWARD = 1  # message_reference.type
_IS_CROSSPOST = 1 << 1  # message flag: copied from a followed channel
IS_VOICE = 1 << 13
"""Message flag: its one file was recorded in Discord. https://docs.discord.com/developers/resources/message."""
_COMMAND, _COMPONENT = 2, 3  # interaction types
_STRING_OPTION = 3
_PUBLIC_COMMANDS = frozenset({"retry"})  # answered by the agent
_EPOCH_MS = 1_420_070_400_000  # the first second of 2015
_NONCE_CHARS = 25  # Discord's maximum

_MENTION = re.compile(r"<@(?P<kind>[!&]?)(?P<id>\d{1,20})>")
_EMOJI = re.compile(r"<a?(?P<name>:\w{2,32}:)\d{1,20}>")
_COMMAND_NAME = re.compile(r"[-_\w]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """What is needed to read a message besides its payload.

    Attributes:
        channel: the configured channel's name.
        user: the bot's own id.
        guild: the server of the message; None in a direct chat. The payloads of the REST API lack it.
        roles: the ids of the bot's own roles there.
    """

    channel: str
    user: str
    guild: str | None
    roles: Collection[str] = ()


# ---- snowflakes -----------------------------------------------------------------------------------------------------


def snowflake(value: object) -> int | None:
    """An id as a number; None if it is none. Ids grow with time."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def snowflake_time(identifier: int) -> datetime:
    """When a snowflake was made: its upper 42 bits are milliseconds."""
    return datetime.fromtimestamp(((identifier >> 22) + _EPOCH_MS) / 1000, tz=UTC)


def snowflake_at(seconds: float) -> int:
    """The first possible snowflake of a time, in seconds since 1970."""
    return max(0, int(seconds * 1000) - _EPOCH_MS) << 22


def nonce(message_id: str, piece: int, generation: int = 0) -> str:
    """The key by which Discord detects a repeated send, the same on every try: 125 bits of a hash, in 25 characters."""
    digest = hashlib.sha256(f"{message_id}\n{piece}\n{generation}".encode()).digest()
    return base64.b32encode(digest)[:_NONCE_CHARS].decode("ascii").lower()


# ---- messages in ----------------------------------------------------------------------------------------------------


def guild_id_of(payload: Payload) -> str | None:
    """The server in a payload of the WebSocket; None for a direct chat."""
    guild = payload.get("guild_id")
    return None if guild is None else str(guild)


def to_inbound(payload: Payload, context: ReadContext) -> InboundMessage | None:
    """What a person wrote; None for all else: bots, webhooks, followed channels, notices of Discord."""
    author = payload["author"]
    if author.get("bot") or author.get("system") or str(author["id"]) == context.user or payload.get("webhook_id"):
        return None
    if payload["type"] not in (_DEFAULT, _REPLY) or int(payload.get("flags") or 0) & _IS_CROSSPOST:
        return None
    reference = payload.get("message_reference") or {}
    is_forward = reference.get("type") == _FORWARD
    quotes, answered_files = _quoted(payload, context)
    return InboundMessage(
        id=str(int(payload["id"])),
        event_id=str(int(payload["id"])),
        conversation=ConversationRef(channel=context.channel, conversation=str(int(payload["channel_id"]))),
        sender=_sender(context.channel, author, payload.get("member") or {}),
        text=_text(payload, context, is_forward=is_forward),
        sent_at=datetime.fromisoformat(str(payload["timestamp"])).astimezone(UTC),
        is_direct=context.guild is None,
        mentions_bot=_mentions_bot(payload, context),
        reply_to=None if is_forward or "message_id" not in reference else str(reference["message_id"]),
        attachments=(*_attachments(payload, is_forward=is_forward), *answered_files),
        is_trusted_text=not is_forward,
        quotes=quotes,
    )


def is_for_bot(message: InboundMessage) -> bool:
    """Whether the message addresses the bot. All others in a server are not handed over."""
    return message.is_direct or message.mentions_bot


def _quoted(payload: Payload, context: ReadContext) -> tuple[tuple[QuotedText, ...], tuple[Attachment, ...]]:
    """The text of the message that this one answers, and its files.

    Left out because the session has it: the bot's own text, and in a direct chat the person's. A deleted message is
    null. https://docs.discord.com/developers/resources/message#message-object
    """
    answered = payload.get("referenced_message") or {}
    author = answered.get("author") or {}
    if payload["type"] != _REPLY or "content" not in answered or str(author.get("id")) == context.user:
        return (), ()
    is_forward = (answered.get("message_reference") or {}).get("type") == _FORWARD
    is_in_session = context.guild is None and not is_forward
    text = "" if is_in_session else _text(answered, context, is_forward=is_forward)
    name = str(author.get("global_name") or author.get("username") or "")
    quotes = (QuotedText(origin="message that this one answers", text=text, author=name),) if text else ()
    files = _attachments(answered, is_forward=is_forward)
    return quotes, tuple(replace(file, is_voice=False) for file in files)  # of who wrote that one


def _sender(channel: str, user: Payload, member: Payload) -> Sender:
    name = member.get("nick") or user.get("global_name") or user.get("username") or ""
    # Discord has checked who it is; only the id stays with one person
    return Sender(channel=channel, user=str(int(user["id"])), display_name=str(name), is_verified=True)


def _mentions_bot(payload: Payload, context: ReadContext) -> bool:
    """By its name, one of its roles, or an answer to one of its messages; `@everyone` does not count."""
    if any(str(user["id"]) == context.user for user in payload.get("mentions") or ()):
        return True
    if any(str(role) in context.roles for role in payload.get("mention_roles") or ()):
        return True
    answered = payload.get("referenced_message") or {}
    return payload["type"] == _REPLY and str((answered.get("author") or {}).get("id")) == context.user


def _text(payload: Payload, context: ReadContext, *, is_forward: bool) -> str:
    snapshots = payload.get("message_snapshots") or () if is_forward else ()
    bodies = [snapshot["message"] for snapshot in snapshots] or [payload]
    text = "\n".join(str(body.get("content") or "") for body in bodies)
    if "<" in text:
        text = _EMOJI.sub(r"\g<name>", _readable_mentions(text, payload, context))
    if not text:
        text = " ".join(f"[sticker: {each['name']}]" for body in bodies for each in body.get("sticker_items") or ())
    return text


def _readable_mentions(text: str, payload: Payload, context: ReadContext) -> str:
    """Without the mentions of the bot, and with names in place of other ids."""
    names = {str(user["id"]): _sender("", user, user.get("member") or {}) for user in payload.get("mentions") or ()}

    def spelled(match: re.Match[str]) -> str:
        if match["kind"] == "&":
            return "" if match["id"] in context.roles else match[0]
        if match["id"] == context.user:
            return ""
        return f"@{names[match['id']].display_name}" if match["id"] in names else match[0]

    spoken = _MENTION.sub(spelled, text)
    return spoken if spoken == text else spoken.strip()


def _attachments(payload: Payload, *, is_forward: bool) -> tuple[Attachment, ...]:
    snapshots = payload.get("message_snapshots") or () if is_forward else ()
    bodies = (payload, *(snapshot["message"] for snapshot in snapshots))
    files = ((file, int(body.get("flags") or 0)) for body in bodies for file in body.get("attachments") or ())
    place = [str(int(payload["channel_id"])), str(int(payload["id"]))]
    return tuple(
        Attachment(
            media_type=str(file.get("content_type") or "application/octet-stream").partition(";")[0],
            filename=str(file["filename"]),
            size_bytes=int(file["size"]),
            ref=json.dumps([*place, str(file["id"]), str(file["url"])]),
            is_voice=bool(flags & IS_VOICE),
        )
        for file, flags in files
    )


def parse_file_ref(ref: str) -> tuple[int, int, str, str]:
    """Channel, message, attachment and address in `Attachment.ref`; raises ValueError for any other text."""
    parts = json.loads(ref)
    if not isinstance(parts, list) or len(parts) != 4 or not all(isinstance(part, str) for part in parts):
        raise ValueError("not a reference to a file")
    channel, message, attachment, url = parts
    return int(channel), int(message), attachment, url


def file_url(payload: Payload, attachment: str) -> str | None:
    """The current address of a file, since a signed one expires after a day; None if the file is gone."""
    bodies = (payload, *(each["message"] for each in payload.get("message_snapshots") or ()))
    files = (file for body in bodies for file in body.get("attachments", ()))
    return next((str(file["url"]) for file in files if str(file["id"]) == attachment), None)


# ---- interactions in ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """What is needed to answer a command or a button; the token is a secret, valid for 15 minutes."""

    id: str
    application_id: str
    type: int
    token: str
    is_private: bool = False  # only the person who gave the command sees the answer


def to_interaction(payload: Payload) -> Interaction | None:
    """A command or a button; None for anything else."""
    if payload["type"] not in (_COMMAND, _COMPONENT):
        return None
    return Interaction(
        id=str(int(payload["id"])),
        application_id=str(int(payload["application_id"])),
        type=int(payload["type"]),
        token=str(payload["token"]),
        is_private=_is_private(payload),
    )


def _is_private(payload: Payload) -> bool:
    """In a server, answers of commands are private; not those of the agent, which others have seen before."""
    return (
        payload["type"] == _COMMAND
        and guild_id_of(payload) is not None
        and payload["data"]["name"] not in _PUBLIC_COMMANDS
    )


def command_to_inbound(payload: Payload, context: ReadContext) -> InboundMessage:
    """The command that a person chose, or that the pressed button stands for."""
    data, member = payload["data"], payload.get("member") or {}
    if payload["type"] == _COMPONENT:
        command = str(data["custom_id"])
    else:
        values = (str(option["value"]) for option in data.get("options") or ())
        command = " ".join((str(data["name"]), *values)).rstrip()
    identifier = int(payload["id"])
    return InboundMessage(
        id=str(identifier),
        event_id=str(identifier),
        conversation=ConversationRef(channel=context.channel, conversation=str(int(payload["channel_id"]))),
        sender=_sender(context.channel, member.get("user") or payload["user"], member),
        text=f"/{command}",
        sent_at=snowflake_time(identifier),
        is_direct=context.guild is None,
        mentions_bot=True,
        command=command,
    )


def remaining_components(payload: Payload) -> tuple[int, int, list[Payload]] | None:
    """The channel and message of a pressed button, and the components that remain.

    None in a server, where others may press them, or without components.
    """
    message = payload.get("message") or {}
    rows = message.get("components") or ()
    if payload["type"] != _COMPONENT or guild_id_of(payload) is not None or not rows:
        return None
    ids = [str(each.get("custom_id") or "") for row in rows for each in row["components"]]
    left = iter(remaining_actions(ids, str(payload["data"].get("custom_id") or "")))
    kept = [
        {**row, "components": [{**each, "custom_id": i} for each in row["components"] if (i := next(left)) is not None]}
        for row in rows
    ]
    return int(payload["channel_id"]), int(message["id"]), [row for row in kept if row["components"]]


# ---- commands out ---------------------------------------------------------------------------------------------------


def to_commands(commands: Sequence[CommandInfo]) -> list[dict[str, Any]]:
    """The gateway's commands for the menu: at most 100, and only names that Discord takes.

    They are for servers and direct chats (`contexts`), and are installed with the bot (`integration_types`).
    """
    return [
        {
            "type": 1,
            "name": command.name,
            "description": command.description[:100] or command.name,
            "contexts": [0, 1],
            "integration_types": [0],
            "options": _options(command),
        }
        for command in commands[:100]
        if _COMMAND_NAME.fullmatch(command.name) and command.name == command.name.lower()
    ]


def _options(command: CommandInfo) -> list[dict[str, Any]]:
    arguments = command.usage.removeprefix("/").removeprefix(command.name).strip()
    if not arguments:
        return []
    return [{"type": _STRING_OPTION, "name": "arguments", "description": arguments[:100], "required": False}]


def commands_hash(commands: Sequence[Mapping[str, Any]], application_id: str) -> str:
    """Differs if the commands or the application differ."""
    text = json.dumps([application_id, *commands], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
