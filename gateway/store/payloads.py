"""Messages as the rows of the queues keep them: columns for what queries look at, JSON for the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.messages import (
    Action,
    Attachment,
    ConversationRef,
    InboundMessage,
    OutboundMessage,
    QuotedText,
    Receipt,
    Sender,
    Speech,
)
from gateway.store.engine import Row

EMPTIED = '{"is_emptied":true'
"""How a payload begins whose text was forgotten for its age."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def storable(text: str) -> str:
    """The text without what no encoding or no database takes: lone surrogates and NULs become U+FFFD.

    A model or a tool may write anything.
    """
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def to_ms(moment: datetime) -> int:
    """An aware time as milliseconds since 1970, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(moment_ms: int) -> datetime:
    """The aware UTC time."""
    return _EPOCH + moment_ms * _MILLISECOND


def conversation_of(row: Row) -> ConversationRef:
    """The conversation that a row of any table names."""
    return ConversationRef(channel=row["channel"], conversation=row["conversation"], thread=row["thread"])


def inbound_json(message: InboundMessage) -> str:
    """What `inbound` needs besides the columns `message_id`, `event_id` and the conversation's three."""
    sender = message.sender
    return storable(
        _encode(
            {
                "sender": [sender.channel, sender.user, sender.display_name, sender.is_verified],
                "text": message.text,
                "sent_at": message.sent_at.isoformat(),
                "is_direct": message.is_direct,
                "mentions_bot": message.mentions_bot,
                "reply_to": message.reply_to,
                "attachments": _attachments_json(message.attachments),
                "command": message.command,
                "is_trusted_text": message.is_trusted_text,
                "quotes": [[quote.origin, quote.text, quote.author] for quote in message.quotes],
            }
        )
    )


def inbound(row: Row) -> InboundMessage:
    """The message of an inbox row."""
    payload = json.loads(row["payload"])
    channel, user, display_name, is_verified = payload["sender"]
    return InboundMessage(
        id=row["message_id"],
        event_id=row["event_id"],
        conversation=conversation_of(row),
        sender=Sender(channel=channel, user=user, display_name=display_name, is_verified=is_verified),
        text=payload["text"],
        sent_at=datetime.fromisoformat(payload["sent_at"]).astimezone(UTC),
        is_direct=payload["is_direct"],
        mentions_bot=payload["mentions_bot"],
        reply_to=payload["reply_to"],
        attachments=attachments_of(payload),
        command=payload["command"],
        is_trusted_text=payload["is_trusted_text"],
        quotes=tuple(QuotedText(origin=origin, text=text, author=author) for origin, text, author in payload["quotes"]),
    )


def emptied(payload: str) -> str:
    """The payload of either queue without what was said: who wrote, and what kind of message it was, stay."""
    known = json.loads(payload)
    kept = {name: value if isinstance(value, bool) else _nothing_of(value) for name, value in known.items()}
    if "sender" in known:
        channel, user, _, is_verified = known["sender"]
        kept |= {"sender": [channel, user, "", is_verified], "sent_at": known["sent_at"]}
    return _encode({"is_emptied": True, **kept})


def _nothing_of(value: object) -> object:
    return "" if isinstance(value, str) else [] if isinstance(value, list) else {} if isinstance(value, dict) else None


def outbound_json(message: OutboundMessage) -> str:
    """What `outbound` needs besides the columns `id` and the conversation's three."""
    speech = message.speech
    said = {} if speech is None else {"speech": [speech.text, speech.user_id, speech.personality_id]}
    return storable(
        _encode(
            {
                "text": message.text,
                "reply_to": message.reply_to,
                "attachments": _attachments_json(message.attachments),
                "actions": [[action.id, action.label] for action in message.actions],
                "codes": message.codes,
                **said,
            }
        )
    )


def outbound(row: Row) -> OutboundMessage:
    """The message of an outbox row."""
    payload = json.loads(row["payload"])
    return OutboundMessage(
        id=row["id"],
        conversation=conversation_of(row),
        text=payload["text"],
        reply_to=payload["reply_to"],
        attachments=attachments_of(payload),
        actions=actions_of(payload),
        codes=tuple(payload["codes"]),
        speech=_speech(*payload["speech"]) if payload.get("speech") else None,
    )


def actions_of(payload: Mapping[str, Any]) -> tuple[Action, ...]:
    """The choices that the payload of a reply offers."""
    return tuple(Action(id=action_id, label=label) for action_id, label in payload["actions"])


def receipt_json(receipt: Receipt) -> str:
    """The platform's ids as a list."""
    return storable(_encode(receipt.message_ids))


def _speech(text: str, user_id: str, personality_id: str) -> Speech:
    return Speech(text=text, user_id=user_id, personality_id=personality_id)


def _attachments_json(attachments: Sequence[Attachment]) -> list[list[Any]]:
    """Four values of each, and two more of a voice message."""
    return [
        [file.media_type, file.filename, file.size_bytes, file.ref]
        + ([file.duration_s, file.waveform] if file.is_voice else [])
        for file in attachments
    ]


def attachments_of(payload: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """The files of a message of either queue."""
    return tuple(
        Attachment(
            media_type=media_type,
            filename=filename,
            size_bytes=size_bytes,
            ref=ref,
            is_voice=bool(voice),
            duration_s=voice[0] if voice else 0.0,
            waveform=voice[1] if voice else "",
        )
        for media_type, filename, size_bytes, ref, *voice in payload["attachments"]
    )
