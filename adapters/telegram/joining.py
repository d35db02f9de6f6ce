"""What a person sent as one thing and Telegram delivers in parts: albums, and texts that their app has cut.

Pure functions. Which messages belong together is told by the messages themselves, never by when they reached us, so
that the same parts always make the same messages.

- An album's messages have one `media_group_id` (https://core.telegram.org/bots/api#message).
- A text above 4096 UTF-16 units is cut by the sender's app. Telegram Desktop cuts at the best place in the second half
  (`CutPart`, https://github.com/telegramdesktop/tdesktop, Telegram/SourceFiles/ui/text/text_entity.cpp), so that a part
  which is not the last has more than 2048. Nothing else marks the parts; they are sent within a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise

from adapters.telegram.convert import Json
from gateway.messages import InboundMessage

MAX_UNITS = 4096
_LEAST_UNITS = MAX_UNITS // 2
_MOMENT = timedelta(seconds=3)
"""Between two parts of a text, by Telegram's clock, which counts whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A message, and what tells whether others belong to it.

    Attributes:
        album: the album's id, None without one.
        text_units: UTF-16 units of a text of the sender's own; 0 for anything else.
    """

    update: Json
    message: InboundMessage
    album: str | None
    text_units: int

    @property
    def may_go_on(self) -> bool:
        """Another part may follow."""
        return self.album is not None or self.text_units > _LEAST_UNITS


def part_of(update: Json, message: InboundMessage) -> Part:
    """What an update brings; `message` is what was read from it."""
    sent = update.get("message") or {}
    text = sent.get("text")
    is_own = isinstance(text, str) and message.is_trusted_text
    album = sent.get("media_group_id")
    return Part(
        update=update,
        message=message,
        album=album if isinstance(album, str) else None,
        text_units=_units(str(text)) if is_own else 0,
    )


def grouped(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts of each message, in the order of the first of each; what others wrote between them is no hindrance."""
    groups: list[list[Part]] = []
    latest: dict[str, list[Part]] = {}
    for part in parts:
        group = latest.get(part.message.sender.user)
        if group is None or not _continues(part, group[-1]):
            group = latest[part.message.sender.user] = []
            groups.append(group)
        group.append(part)
    return groups


def may_go_on(parts: Sequence[Part]) -> bool:
    """Somebody who wrote one of them may not be done."""
    latest = {part.message.sender.user: part for part in parts}
    return any(part.may_go_on for part in latest.values())


def joined(group: Sequence[Part]) -> InboundMessage:
    """One message with all that its parts hold. Its ids are those of the first."""
    first = group[0].message
    if len(group) == 1:
        return first
    messages = [part.message for part in group]
    commands = [message.command for message in messages if message.command is not None]
    return replace(
        first,
        text=_joined_text(group),
        attachments=tuple(dict.fromkeys(file for message in messages for file in message.attachments)),
        mentions_bot=any(message.mentions_bot for message in messages),
        reply_to=next((message.reply_to for message in messages if message.reply_to is not None), None),
        command=None if not commands else _joined_command(group, commands[0]),
        is_trusted_text=all(message.is_trusted_text for message in messages),
        quotes=tuple(dict.fromkeys(quote for message in messages for quote in message.quotes)),
    )


def _continues(part: Part, before: Part) -> bool:
    if part.message.conversation != before.message.conversation:
        return False
    if part.album is not None or before.album is not None:
        return part.album == before.album
    is_soon = abs(part.message.sent_at - before.message.sent_at) <= _MOMENT
    is_text = part.text_units > 0 and not part.message.attachments and not part.message.text.startswith("/")
    return before.text_units > _LEAST_UNITS and is_text and is_soon


def _joined_text(group: Sequence[Part]) -> str:
    """A part that is full was cut in the middle of a word; the white space at any other cut is lost on the way."""
    text = group[0].message.text
    for before, part in pairwise(group):
        if part.message.text:
            separator = "" if before.text_units >= MAX_UNITS or not text else "\n"
            text += separator + part.message.text
    return text


def _joined_command(group: Sequence[Part], command: str) -> str:
    """The arguments of a command may have been cut too."""
    if group[0].album is not None or group[0].message.command is None:
        return command
    return command + _joined_text(group).removeprefix(group[0].message.text)


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
