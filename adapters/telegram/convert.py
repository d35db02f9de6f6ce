"""From the JSON of a Telegram update to the gateway's message. Pure functions.

The JSON is read, not the library's objects: then an update of an unknown form does no harm to the others.
The fields: https://core.telegram.org/bots/api#update and #message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gateway.messages import Attachment, ConversationRef, InboundMessage, QuotedText, Sender
from gateway.protocols import CommandInfo

Json = Mapping[str, Any]

UPDATE_KINDS = ("message", "callback_query")
"""What we ask Telegram for; the second is a button that was pressed. Edited messages are not read: an answer stays, and
a person can send a changed question again."""

# Accounts that stand for a chat or for Telegram itself: the service account, channel posts in a linked group, and
# anonymous administrators (measured by others; Telegram documents the last one only in passing).
_NOT_PERSONS = frozenset({777000, 136817688, 1087968824})
_FILES = ("document", "audio", "voice", "video", "video_note", "sticker")
_MEDIA_TYPES = {
    "audio": "audio/mpeg",
    "voice": "audio/ogg",
    "video": "video/mp4",
    "video_note": "video/mp4",
    "sticker": "image/webp",
}
_EXTENSIONS = {"audio/mpeg": ".mp3", "audio/ogg": ".ogg", "video/mp4": ".mp4", "image/webp": ".webp"}
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@(\w+))?(?:\s+(.*))?", re.DOTALL)
_MENU_NAME = re.compile(r"[a-z0-9_]{1,32}")
_MAX_MENU_COMMANDS = 100
_ANSWERED, _PART = "message that this one answers", "part of a message that this one answers"


UNREADABLE = (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError, OSError)
"""What these functions raise if an update is not as Telegram documents it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The bot itself."""

    id: int
    username: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads updates for one bot.

    Attributes:
        channel: the configured channel's name.
        aliases: the gateway's name of a command by its name on Telegram; see `aliases_of`.
        commands: the gateway's names of all commands.
        original_chat: the id of a chat before its group was upgraded, which the gateway stores.
        command: the command for a button's data; None if it is not ours, or too old.
        now: the time; Telegram does not say when a button was pressed.
    """

    channel: str
    bot: Account
    aliases: Mapping[str, str]
    original_chat: Callable[[int], int]
    command: Callable[[str], str | None]
    commands: Collection[str] = ()
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def message_from(self, update: Json) -> InboundMessage | None:
        """What a person wrote, or chose with a button.

        None for all else: bots, channels, anonymous administrators, service messages, old buttons.
        """
        if "callback_query" in update:
            return self._read_query(update, update["callback_query"])
        message = update.get("message")
        return self._read(update, message) if message is not None and _is_by_person(message) else None

    def _read(self, update: Json, message: Json) -> InboundMessage | None:
        chat, sender, answered = message["chat"], message["from"], message.get("reply_to_message")
        message_id = qualified_id(int(chat["id"]), int(message["message_id"]))
        attachments = _attachments(message)
        written, entities = _text(message)
        if written is None and not attachments:
            return None  # a service message, such as somebody joining
        is_direct = chat["type"] == "private"
        mentions = [entity for entity in entities if _is_mention(entity, written or "", self.bot)]
        is_addressed = is_direct or bool(mentions) or _is_reply_to(message, self.bot)
        is_for_bot = is_addressed or self._is_command(written or "", entities)
        quotes, answered_files = _quoted(message, self.bot)
        text = _plain_text(written or "", entities, [] if is_direct else mentions)
        return InboundMessage(
            id=message_id,
            event_id=self._event_id(update, message_id),
            conversation=self._conversation(message),
            sender=self._sender(sender),
            text=text,
            sent_at=datetime.fromtimestamp(int(message["date"]), UTC),
            is_direct=is_direct,
            mentions_bot=is_for_bot and not is_direct,
            reply_to=None if answered is None else qualified_id(int(chat["id"]), int(answered["message_id"])),
            attachments=(*attachments, *answered_files),
            command=_command(text, self.bot, self.aliases) if is_for_bot else None,
            is_trusted_text=_is_own_text(message),
            quotes=quotes,
        )

    def _event_id(self, update: Json, message_id: str) -> str:
        """With the message id: after a quiet week Telegram begins at a random update id, which may repeat one."""
        return f"{self.bot.id}:{int(update['update_id'])}:{message_id}"

    def _is_command(self, text: str, entities: Sequence[Json]) -> bool:
        """A known `/name` without a bot's name: in a group Telegram sends it to the bot that was the last to write.

        https://core.telegram.org/bots/features#privacy-mode
        """
        if not any(entity["type"] == "bot_command" and int(entity["offset"]) == 0 for entity in entities):
            return False
        found = _COMMAND.fullmatch(text)
        return found is not None and not found[2] and _gateway_name(found[1], self.aliases) in self.commands

    def _read_query(self, update: Json, query: Json) -> InboundMessage | None:
        """https://core.telegram.org/bots/api#callbackquery; an old `message` has only a few fields."""
        command = self.command(str(query.get("data", "")))
        message, sender = query.get("message"), query["from"]
        if command is None or message is None or sender.get("is_bot"):
            return None
        chat = message["chat"]
        is_direct = chat["type"] == "private"
        message_id = qualified_id(int(chat["id"]), f"press-{query['id']}")
        return InboundMessage(
            id=message_id,
            event_id=self._event_id(update, message_id),
            conversation=self._conversation(message),
            sender=self._sender(sender),
            text=f"/{command}",
            sent_at=self.now(),
            is_direct=is_direct,
            mentions_bot=not is_direct,
            reply_to=qualified_id(int(chat["id"]), int(message["message_id"])),
            command=command,
        )

    def _conversation(self, message: Json) -> ConversationRef:
        return ConversationRef(
            channel=self.channel,
            conversation=str(self.original_chat(int(message["chat"]["id"]))),
            thread=str(int(message["message_thread_id"])) if message.get("is_topic_message") else None,
        )

    def _sender(self, sender: Json) -> Sender:
        return Sender(
            channel=self.channel,
            user=str(int(sender["id"])),
            display_name=_display_name(sender),
            is_verified=True,  # Telegram has checked who is logged in
        )


def chat_id_of(update: Json) -> int | None:
    """The chat, for the order of its messages; None without one. Never raises."""
    query = update.get("callback_query")
    message = query.get("message") if isinstance(query, Mapping) else update.get("message")
    chat = message.get("chat") if isinstance(message, Mapping) else None
    chat_id = chat.get("id") if isinstance(chat, Mapping) else None
    return chat_id if isinstance(chat_id, int) else None


def callback_query_id(update: Json) -> str | None:
    """The id by which the press of a button is answered; None for anything else. Never raises."""
    query = update.get("callback_query")
    query_id = query.get("id") if isinstance(query, Mapping) else None
    return query_id if isinstance(query_id, str) else None


def migration_of(update: Json) -> tuple[int, int] | None:
    """The old and the new id of an upgraded group; each of the two chats gets such a service message."""
    message = update.get("message")
    chat_id = chat_id_of(update)
    if not isinstance(message, Mapping) or not isinstance(chat_id, int):
        return None
    if isinstance(new_id := message.get("migrate_to_chat_id"), int):
        return chat_id, new_id
    if isinstance(old_id := message.get("migrate_from_chat_id"), int):
        return old_id, chat_id
    return None


def menu(commands: Sequence[CommandInfo]) -> list[tuple[str, str]]:
    """The commands in Telegram's form: a name of 1 to 32 of a-z, 0-9 and _, a description of 1 to 256 characters."""
    named = [(command.name.replace("-", "_"), command.description[:256]) for command in commands]
    return [(name, text) for name, text in named if _MENU_NAME.fullmatch(name) and text][:_MAX_MENU_COMMANDS]


def aliases_of(commands: Sequence[CommandInfo]) -> dict[str, str]:
    """Commands with another name on Telegram. Its button to begin a chat sends `/start`."""
    names = {command.name for command in commands}
    aliases = {name.replace("-", "_"): name for name in names if "-" in name}
    return aliases if "start" in names else {**aliases, "start": "help"}


def qualified_id(chat_id: int, message_id: int | str) -> str:
    """A message's id for the gateway. Telegram's message ids are unique within their chat only."""
    return f"{chat_id}:{message_id}"


def message_id_in(chat_id: int, qualified: str | None) -> int | None:
    """Telegram's message id; None if it is of another chat, such as the group before it was upgraded."""
    chat, _, message_id = (qualified or "").partition(":")
    return int(message_id) if chat == str(chat_id) and message_id.isdecimal() else None


def _is_by_person(message: Json) -> bool:
    """`sender_chat` is set if a chat speaks: a channel, or a group for an anonymous administrator."""
    sender = message.get("from")
    if not sender or "sender_chat" in message or message["chat"]["type"] == "channel":
        return False
    return not sender.get("is_bot") and sender["id"] not in _NOT_PERSONS


def _gateway_name(name: str, aliases: Mapping[str, str]) -> str:
    return aliases.get(name.lower(), name.lower())


def _is_own_text(message: Json) -> bool:
    """The person wrote it. The name in a contact or a place was chosen by others."""
    return not message.keys() & {"forward_origin", "via_bot", "contact", "venue"}


def _quoted(message: Json, bot: Account) -> tuple[tuple[QuotedText, ...], tuple[Attachment, ...]]:
    """The text of the message that this one answers, or of the selected part of it; and its files.

    Left out because the session has it: the bot's own text, unless a part was selected, and in a private chat the
    person's. https://core.telegram.org/bots/api#textquote, #externalreplyinfo
    """
    answered, other = message.get("reply_to_message"), message.get("external_reply")
    quote = message.get("quote") or {}
    if answered is None:
        author = "" if other is None else _author_of(other.get("origin") or {})
        selected = str(quote.get("text", ""))
        return (QuotedText(origin=_PART, text=selected, author=author),) if selected else (), ()
    sender = answered.get("from") or {}
    author = str((answered.get("sender_chat") or {}).get("title") or _display_name(sender))
    is_by_bot = sender.get("id") == bot.id and "sender_chat" not in answered
    is_in_session = message["chat"]["type"] == "private" and _is_own_text(answered)
    if quote.get("text") and (quote.get("is_manual") or not is_by_bot):
        return (QuotedText(origin=_PART, text=str(quote["text"]), author=author),), ()
    if is_by_bot:
        return (), ()
    written, entities = (None, ()) if is_in_session else _text(answered)
    text = _plain_text(written or "", entities, ())
    quotes = (QuotedText(origin=_ANSWERED, text=text, author=author),) if text else ()
    return quotes, tuple(replace(file, is_voice=False) for file in _attachments(answered))  # of who wrote that one


def _author_of(origin: Json) -> str:
    """See https://core.telegram.org/bots/api#messageorigin."""
    chat = origin.get("sender_chat") or origin.get("chat") or {}
    user = origin.get("sender_user")
    return _display_name(user) if user else str(origin.get("sender_user_name") or chat.get("title") or "")


def _display_name(sender: Json) -> str:
    name = " ".join(part for part in (sender.get("first_name"), sender.get("last_name")) if part)
    return f"{name} (@{sender['username']})" if sender.get("username") else name


# ---- the text ------------------------------------------------------------------------------------------------------


def _text(message: Json) -> tuple[str | None, Sequence[Json]]:
    """The text or the caption, and its entities; for a place, a poll and the like, a text that describes it."""
    for kind, entities in (("text", "entities"), ("caption", "caption_entities")):
        if kind in message:
            return str(message[kind]), message.get(entities, ())
    described = next((kind for kind in _DESCRIPTIONS if kind in message), None)
    return (None if described is None else _DESCRIPTIONS[described](message[described])), ()


def _contact(contact: Json) -> str:
    name = " ".join(str(contact[key]) for key in ("first_name", "last_name") if contact.get(key))
    return f"[contact: {name}, {contact['phone_number']}]"


def _poll(poll: Json) -> str:
    return f"[poll: {poll['question']} ({', '.join(str(option['text']) for option in poll['options'])})]"


_DESCRIPTIONS: Mapping[str, Callable[[Json], str]] = {
    "sticker": lambda sticker: str(sticker.get("emoji", "")),
    "venue": lambda place: f"[place: {place['title']}, {place['address']}]",  # it has a location too
    "location": lambda place: f"[location: {float(place['latitude'])}, {float(place['longitude'])}]",
    "contact": _contact,
    "dice": lambda dice: f"{dice['emoji']} {dice['value']}",
    "poll": _poll,
}


def _span(entity: Json) -> slice:
    """Where the entity is in the UTF-16 bytes; its offset counts two-byte units (…/bots/api#messageentity)."""
    start = 2 * int(entity["offset"])
    return slice(start, start + 2 * int(entity["length"]))


def _is_mention(entity: Json, text: str, bot: Account) -> bool:
    """It names the bot: `@name`, a name that links to it, or `/command@name`."""
    if entity["type"] == "text_mention":
        return bool(entity["user"]["id"] == bot.id)
    covered = text.encode("utf-16-le", "surrogatepass")[_span(entity)].decode("utf-16-le", "replace").lower()
    if entity["type"] == "mention":
        return covered == f"@{bot.username.lower()}"
    return bool(entity["type"] == "bot_command") and covered.endswith(f"@{bot.username.lower()}")


def _plain_text(text: str, entities: Sequence[Json], mentions: Sequence[Json]) -> str:
    """The text without `mentions`, except in commands, and with the addresses of its links."""
    raw = text.encode("utf-16-le", "surrogatepass")
    for entity in sorted(entities, key=lambda one: int(one["offset"]), reverse=True):
        span = _span(entity)
        before, covered, after = (
            part.decode("utf-16-le", "replace") for part in (raw[: span.start], raw[span], raw[span.stop :])
        )
        if entity["type"] == "text_link" and entity["url"].rstrip("/") != covered.rstrip("/"):
            covered = f"{covered} ({entity['url']})"
        elif entity in mentions and entity["type"] != "bot_command":
            covered = ""
            before, after = (before.rstrip(" "), after) if before.strip() else ("", after.lstrip(" ,:\n"))
        else:
            continue
        raw = (before + covered + after).encode("utf-16-le", "surrogatepass")
    return raw.decode("utf-16-le", "replace")


def _is_reply_to(message: Json, bot: Account) -> bool:
    """In a topic, every message that is no reply has the message that opened the topic as `reply_to_message`."""
    answered = message.get("reply_to_message")
    if answered is None or "forum_topic_created" in answered:
        return False
    return bool(answered.get("from", {}).get("id") == bot.id)


def _command(text: str, bot: Account, aliases: Mapping[str, str]) -> str | None:
    """The command if its name differs here; the gateway reads all others from the text."""
    found = _COMMAND.fullmatch(text)
    if found is None or (found[2] or bot.username).lower() != bot.username.lower():
        return None
    name = aliases.get(found[1].lower())
    return None if name is None else f"{name} {found[3] or ''}".rstrip()


# ---- files ---------------------------------------------------------------------------------------------------------


def _attachments(message: Json) -> tuple[Attachment, ...]:
    """The largest size of a photo, and any other file. An animation comes as a document too."""
    if photo := message.get("photo"):
        largest = max(photo, key=lambda size: int(size["width"]) * int(size["height"]))
        return (_attachment(largest, "image/jpeg", f"photo-{largest['file_unique_id']}.jpg"),)
    return tuple(_file(kind, message[kind]) for kind in _FILES if kind in message)


def _file(kind: str, file: Json) -> Attachment:
    media_type = str(file.get("mime_type") or _MEDIA_TYPES.get(kind, "application/octet-stream"))
    if kind == "sticker" and (file.get("is_animated") or file.get("is_video")):
        media_type = "video/webm" if file.get("is_video") else "application/x-tgsticker"
    name = file.get("file_name") or f"{kind}-{file['file_unique_id']}{_EXTENSIONS.get(media_type, '')}"
    return _attachment(file, media_type, str(name), is_voice=kind == "voice")  # recorded there: …/bots/api#voice


def _attachment(file: Json, media_type: str, name: str, *, is_voice: bool = False) -> Attachment:
    return Attachment(
        media_type=media_type,
        filename=name,
        size_bytes=int(file.get("file_size") or 0),
        ref=str(file["file_id"]),
        is_voice=is_voice,
    )
