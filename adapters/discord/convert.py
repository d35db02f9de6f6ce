"""Between Discord's JSON and the gateway's messages. Pure functions.

A payload is what the gateway dispatches or the REST API returns, as it came: no object of the SDK, so that one message
that the SDK cannot read does no harm to the others.
Discord's objects: https://docs.discord.com/developers/resources/message and .../interactions/receiving-and-responding.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.messages import Action, Attachment, ConversationRef, InboundMessage, QuotedText, Sender
from gateway.protocols import CommandInfo

Payload = Mapping[str, Any]
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, OSError)
"""What reading something raises that is not as Discord describes it; it would be the same if it came again."""

_DEFAULT, _REPLY = 0, 19  # message types; every other one is a notice of Discord's or the answer of an application
_FORWARD = 1  # message_reference.type
_IS_CROSSPOST = 1 << 1  # message flag: copied here from a channel that is followed
_COMMAND, _COMPONENT = 2, 3  # interaction types
_STRING_OPTION = 3
_FOR_EVERYBODY = frozenset({"retry"})  # commands that the agent answers
_EPOCH_MS = 1_420_070_400_000  # the first second of 2015, where snowflakes begin
_NONCE_CHARS = 25  # the longest that Discord takes

_MENTION = re.compile(r"<@(?P<kind>[!&]?)(?P<id>\d{1,20})>")
_EMOJI = re.compile(r"<a?(?P<name>:\w{2,32}:)\d{1,20}>")
_COMMAND_NAME = re.compile(r"[-_\w]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What has to be known to read a message.

    Attributes:
        channel: the configured channel's name.
        user: the bot's own id.
        guild: the server that the message was written in; None in a direct chat. Only the gateway's payloads name it.
        roles: the ids of the bot's own roles there.
    """

    channel: str
    user: str
    guild: str | None
    roles: Collection[str] = ()


# ---- snowflakes -----------------------------------------------------------------------------------------------------


def snowflake(value: object) -> int | None:
    """The number behind an id; None where it is none. Ids grow with time."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def made_at(identifier: int) -> datetime:
    """When a snowflake was made, in milliseconds: the upper 42 bits."""
    return datetime.fromtimestamp(((identifier >> 22) + _EPOCH_MS) / 1000, tz=UTC)


def snowflake_at(seconds: float) -> int:
    """The first that could be made at a time, in seconds since 1970."""
    return max(0, int(seconds * 1000) - _EPOCH_MS) << 22


def nonce(message_id: str, piece: int, generation: int = 0) -> str:
    """The key by which Discord knows a repeated send, the same on every try: 125 bits of a hash, in 25 characters."""
    digest = hashlib.sha256(f"{message_id}\n{piece}\n{generation}".encode()).digest()
    return base64.b32encode(digest)[:_NONCE_CHARS].decode("ascii").lower()


# ---- messages in ----------------------------------------------------------------------------------------------------


def guild_of(payload: Payload) -> str | None:
    """The server that a gateway's payload names; None for a direct chat."""
    guild = payload.get("guild_id")
    return None if guild is None else str(guild)


def to_inbound(payload: Payload, place: Place) -> InboundMessage | None:
    """What a person wrote; None for what no person wrote: bots, webhooks, followed channels, notices of Discord's.

    Raises:
        KeyError, TypeError, ValueError: it is not such a message.
    """
    author = payload["author"]
    if author.get("bot") or author.get("system") or str(author["id"]) == place.user or payload.get("webhook_id"):
        return None
    if payload["type"] not in (_DEFAULT, _REPLY) or int(payload.get("flags") or 0) & _IS_CROSSPOST:
        return None
    reference = payload.get("message_reference") or {}
    is_forward = reference.get("type") == _FORWARD
    quotes, answered_files = _answered(payload, place)
    return InboundMessage(
        id=str(int(payload["id"])),
        event_id=str(int(payload["id"])),
        conversation=ConversationRef(channel=place.channel, conversation=str(int(payload["channel_id"]))),
        sender=_sender(place.channel, author, payload.get("member") or {}),
        text=_text(payload, place, is_forward=is_forward),
        sent_at=datetime.fromisoformat(str(payload["timestamp"])).astimezone(UTC),
        is_direct=place.guild is None,
        mentions_bot=_mentions_bot(payload, place),
        reply_to=None if is_forward or "message_id" not in reference else str(reference["message_id"]),
        attachments=(*_attachments(payload, is_forward=is_forward), *answered_files),
        is_trusted_text=not is_forward,
        quotes=quotes,
    )


def is_for_us(message: InboundMessage) -> bool:
    """Whether anybody speaks to the bot; what is said in a server without naming it is not even handed over."""
    return message.is_direct or message.mentions_bot


def _answered(payload: Payload, place: Place) -> tuple[tuple[QuotedText, ...], tuple[Attachment, ...]]:
    """What stands in the message that this one answers, and its files.

    Left out are our own words, and in a direct chat the person's: the session has both. A message that was deleted is
    null. https://docs.discord.com/developers/resources/message#message-object
    """
    answered = payload.get("referenced_message") or {}
    author = answered.get("author") or {}
    if payload["type"] != _REPLY or "content" not in answered or str(author.get("id")) == place.user:
        return (), ()
    is_forward = (answered.get("message_reference") or {}).get("type") == _FORWARD
    is_known = place.guild is None and not is_forward
    text = "" if is_known else _text(answered, place, is_forward=is_forward)
    name = str(author.get("global_name") or author.get("username") or "")
    quotes = (QuotedText(origin="message that this one answers", text=text, author=name),) if text else ()
    return quotes, _attachments(answered, is_forward=is_forward)


def _sender(channel: str, user: Payload, member: Payload) -> Sender:
    name = member.get("nick") or user.get("global_name") or user.get("username") or ""
    # Discord has checked who it is; the id never changes hands, names do
    return Sender(channel=channel, user=str(int(user["id"])), display_name=str(name), is_verified=True)


def _mentions_bot(payload: Payload, place: Place) -> bool:
    """By name, by a role of ours, or by answering one of our messages; `@everyone` is not meant for us."""
    if any(str(user["id"]) == place.user for user in payload.get("mentions") or ()):
        return True
    if any(str(role) in place.roles for role in payload.get("mention_roles") or ()):
        return True
    answered = payload.get("referenced_message") or {}
    return payload["type"] == _REPLY and str((answered.get("author") or {}).get("id")) == place.user


def _text(payload: Payload, place: Place, *, is_forward: bool) -> str:
    snapshots = payload.get("message_snapshots") or () if is_forward else ()
    bodies = [snapshot["message"] for snapshot in snapshots] or [payload]
    text = "\n".join(str(body.get("content") or "") for body in bodies)
    if "<" in text:
        text = _EMOJI.sub(r"\g<name>", _readable_mentions(text, payload, place))
    if not text:
        text = " ".join(f"[sticker: {each['name']}]" for body in bodies for each in body.get("sticker_items") or ())
    return text


def _readable_mentions(text: str, payload: Payload, place: Place) -> str:
    """Without the mentions of the bot, and with names in place of the others' ids."""
    names = {str(user["id"]): _sender("", user, user.get("member") or {}) for user in payload.get("mentions") or ()}

    def spelled(match: re.Match[str]) -> str:
        if match["kind"] == "&":
            return "" if match["id"] in place.roles else match[0]
        if match["id"] == place.user:
            return ""
        return f"@{names[match['id']].display_name}" if match["id"] in names else match[0]

    spoken = _MENTION.sub(spelled, text)
    return spoken if spoken == text else spoken.strip()


def _attachments(payload: Payload, *, is_forward: bool) -> tuple[Attachment, ...]:
    snapshots = payload.get("message_snapshots") or () if is_forward else ()
    bodies = (payload, *(snapshot["message"] for snapshot in snapshots))
    files = (file for body in bodies for file in body.get("attachments") or ())
    return tuple(
        Attachment(
            media_type=str(file.get("content_type") or "application/octet-stream").partition(";")[0],
            filename=str(file["filename"]),
            size_bytes=int(file["size"]),
            ref=json.dumps([str(payload["channel_id"]), str(payload["id"]), str(file["id"]), str(file["url"])]),
        )
        for file in files
    )


def file_ref(ref: str) -> tuple[int, int, str, str]:
    """Channel, message, attachment and address behind `Attachment.ref`.

    Raises:
        ValueError: it is not a reference of ours.
    """
    parts = json.loads(ref)
    if not isinstance(parts, list) or len(parts) != 4 or not all(isinstance(part, str) for part in parts):
        raise ValueError("not a reference to a file")
    channel, message, attachment, url = parts
    return int(channel), int(message), attachment, url


def file_url(payload: Payload, attachment: str) -> str | None:
    """Where a file of a message is now; addresses are signed, and end after a day. None: it is gone."""
    bodies = (payload, *(each["message"] for each in payload.get("message_snapshots") or ()))
    files = (file for body in bodies for file in body.get("attachments", ()))
    return next((str(file["url"]) for file in files if str(file["id"]) == attachment), None)


# ---- interactions in ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """What is needed to answer a command or a button; the token is a secret, and good for 15 minutes.

    Attributes:
        is_private: only who gave the command sees its answer.
    """

    id: str
    application_id: str
    type: int
    token: str
    is_private: bool = False


def to_interaction(payload: Payload) -> Interaction | None:
    """A command or a button; None for anything else.

    Raises:
        KeyError, TypeError, ValueError: it is not an interaction.
    """
    if payload["type"] not in (_COMMAND, _COMPONENT):
        return None
    return Interaction(
        id=str(int(payload["id"])),
        application_id=str(int(payload["application_id"])),
        type=int(payload["type"]),
        token=str(payload["token"]),
        is_private=_is_of_interest_to_one(payload),
    )


def _is_of_interest_to_one(payload: Payload) -> bool:
    """In a server the answer of a command is; not the agent's own, which everybody has seen before."""
    return (
        payload["type"] == _COMMAND and guild_of(payload) is not None and payload["data"]["name"] not in _FOR_EVERYBODY
    )


def command_to_inbound(payload: Payload, place: Place) -> InboundMessage:
    """The command that a person chose, or that is behind the button that was pressed.

    Raises:
        KeyError, TypeError, ValueError: it is not such an interaction.
    """
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
        conversation=ConversationRef(channel=place.channel, conversation=str(int(payload["channel_id"]))),
        sender=_sender(place.channel, member.get("user") or payload["user"], member),
        text=f"/{command}",
        sent_at=made_at(identifier),
        is_direct=place.guild is None,
        mentions_bot=True,
        command=command,
    )


def components_left(payload: Payload) -> tuple[int, int, list[Payload]] | None:
    """The message below which a button was pressed, and its components without those that decide the same.

    None where others may press them, or none are told. Raises as `command_to_inbound` does.
    """
    message = payload.get("message") or {}
    rows = message.get("components") or ()
    if payload["type"] != _COMPONENT or guild_of(payload) is not None or not rows:
        return None
    question = _question(payload["data"])
    kept = [{**row, "components": [each for each in row["components"] if _question(each) != question]} for row in rows]
    return int(payload["channel_id"]), int(message["id"]), [row for row in kept if row["components"]]


def _question(button: Payload) -> str:
    return Action(id=str(button.get("custom_id") or ""), label="").question


# ---- commands out ---------------------------------------------------------------------------------------------------


def to_commands(commands: Sequence[CommandInfo]) -> list[dict[str, Any]]:
    """The gateway's commands for the menu; 100 at most, only those whose names Discord takes.

    They are for servers and the direct chat with the bot (`contexts`), and come with the bot (`integration_types`).
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
    """Changes with what would be registered, and for whom."""
    text = json.dumps([application_id, *commands], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
