"""Converts between the webhook's JSON and the gateway's messages. Pure functions.

In, `{"id", "conversation", "thread"?, "user", "name"?, "text", "sent_at"?, "is_group"?}`; out, `{"type": "reply",
"id", "conversation", "thread"?, "reply_to"?, "text"}`. No reply could be taken for a message, were it sent back to us.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.messages import ConversationRef, InboundMessage, OutboundMessage, Sender

MAX_ID_CHARS = 200
FIELDS = ("id", "conversation", "thread", "user", "name", "text", "sent_at", "is_group")

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]")


class BadMessage(ValueError):
    """The body is no message; the text tells its sender what to change."""


def to_inbound(body: bytes, *, channel: str, realm: str, event_id: str, received_at: datetime) -> InboundMessage:
    """Read a body whose signature was good.

    Args:
        realm: whose user ids these are: the number 42 of one system is not the person 42 of another.
        received_at: the time for a body without `sent_at`.

    Raises:
        BadMessage: names the field.
    """
    posted = _object(body)
    text = posted.get("text")
    if not isinstance(text, str) or not text.strip():
        raise BadMessage("text: expected a text that is not blank.")
    is_group = posted.get("is_group", False)
    if not isinstance(is_group, bool):
        raise BadMessage("is_group: expected true or false.")
    name = posted.get("name")
    if name is not None and not isinstance(name, str):
        raise BadMessage("name: expected a text.")
    return InboundMessage(
        id=_id(posted, "id"),
        event_id=event_id,
        conversation=ConversationRef(
            channel=channel,
            conversation=_id(posted, "conversation"),
            thread=None if posted.get("thread") is None else _id(posted, "thread"),
        ),
        sender=Sender(
            channel=channel,
            user=f"{realm}/{_id(posted, 'user')}",
            display_name=name or "",
            is_verified=True,  # the holder of the secret names them
        ),
        text=text,
        sent_at=_time(posted, received_at),
        is_direct=not is_group,
        mentions_bot=is_group,  # a program posts only what is meant for the agent
    )


def to_reply(message: OutboundMessage) -> tuple[str, bytes]:
    """The reply's id and its body; the same however often it is asked for."""
    id_ = webhook_id(message.id)
    fields = {
        "type": "reply",
        "id": id_,
        "conversation": message.conversation.conversation,
        "thread": message.conversation.thread,
        "reply_to": message.reply_to,
        "text": message.text,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    # half of a surrogate pair, which a model can write, has no form in UTF-8
    return id_, json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def webhook_id(message_id: str) -> str:
    """The outbox's id in the characters that a `webhook-id` may have; two ids never become one.

    >>> webhook_id("t_0f3a.reply")
    't_0f3a~2e~reply'
    """
    return _NOT_IN_AN_ID.sub(lambda match: f"~{ord(match[0]):x}~", message_id)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        posted = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadMessage("The body is not JSON in UTF-8.") from error
    if not isinstance(posted, dict):
        raise BadMessage(f"The body must be a JSON object with some of {', '.join(FIELDS)}.")
    unknown = [name for name in posted if name not in FIELDS]
    if unknown:  # a misspelt `thread` would send the answer elsewhere
        raise BadMessage(f"{unknown[0][:40]!a}: unknown field; expected some of {', '.join(FIELDS)}.")
    return posted


def _id(posted: Mapping[str, Any], name: str) -> str:
    value = posted.get(name)
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not 1 <= len(value.strip()) == len(value) <= MAX_ID_CHARS
    ):
        raise BadMessage(f"{name}: expected a text of 1 to {MAX_ID_CHARS} printable characters, no space at its ends.")
    return value


def _time(posted: Mapping[str, Any], received_at: datetime) -> datetime:
    value = posted.get("sent_at")
    if value is None:
        return received_at
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        pass  # said below, as for a time without a zone
    raise BadMessage("sent_at: expected an ISO 8601 time with its offset, such as 2026-11-20T10:00:00Z.")
