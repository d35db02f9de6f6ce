"""Events of erased people: kept as digests, so that a repeated delivery is recognized without their content."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from gateway.messages import InboundMessage
from gateway.store.engine import Connection

_DIGEST_BYTES = 16
_KEY_BYTES = 32
_MAKE_KEY = "INSERT INTO erased_events_key (only_row, key) VALUES (1, ?) ON CONFLICT DO NOTHING"
_KEY = "SELECT key FROM erased_events_key"


def remember_events(connection: Connection, turns: str) -> None:
    """Keep digests of the inbox rows of some turns; `turns` selects them."""
    connection.execute(_MAKE_KEY, (secrets.token_bytes(_KEY_BYTES),))
    key = _key(connection)
    sql = f"SELECT channel, event_id, conversation, message_id FROM inbox WHERE turn_id IN ({turns})"  # noqa: S608 (names of ours)
    for channel, event_id, conversation, message_id in connection.execute(sql).fetchall():
        digests = _digests(key, channel, event_id, conversation, message_id)
        connection.execute("INSERT INTO erased_events VALUES (?, ?) ON CONFLICT DO NOTHING", digests)


def is_erased_event(connection: Connection, message: InboundMessage) -> bool:
    """Whether the event, or the message, was erased; almost free before the first erasure."""
    return ask_whether_erased(connection, message)()


def ask_whether_erased(connection: Connection, message: InboundMessage) -> Callable[[], bool]:
    """The same, to be read with what is asked behind it."""
    asked = connection.execute("SELECT 1 FROM erased_events LIMIT 1")
    return lambda: asked.fetchone() is not None and _is_erased(connection, message)


def none_erased(key: bytes | None, message: InboundMessage) -> tuple[str, tuple[bytes, ...]]:
    """A condition that neither the event nor the message was erased, and its values; without a key, that nothing was.

    `key` is what `key_of_erased` gave once: it never changes.
    """
    if key is None:
        return "NOT EXISTS (SELECT 1 FROM erased_events)", ()
    where = message.conversation
    digests = _digests(key, where.channel, message.event_id, where.conversation, message.id)
    return "NOT EXISTS (SELECT 1 FROM erased_events WHERE event = ? OR message = ?)", digests


def key_of_erased(connection: Connection) -> bytes | None:
    """What digests are made with; None before the first erasure."""
    row = connection.execute(_KEY).fetchone()
    return None if row is None else bytes(row[0])


def _is_erased(connection: Connection, message: InboundMessage) -> bool:
    where = message.conversation
    digests = _digests(_key(connection), where.channel, message.event_id, where.conversation, message.id)
    found = connection.execute("SELECT 1 FROM erased_events WHERE event = ? OR message = ? LIMIT 1", digests)
    return found.fetchone() is not None


def _key(connection: Connection) -> bytes:
    return bytes(connection.execute(_KEY).fetchone()[0])


def _digests(key: bytes, channel: str, event_id: str, conversation: str, message_id: str) -> tuple[bytes, bytes]:
    return (_digest(key, "event", channel, event_id), _digest(key, "message", channel, conversation, message_id))


def _digest(key: bytes, *parts: str) -> bytes:
    text = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in parts)
    return hmac.digest(key, text, hashlib.sha256)[:_DIGEST_BYTES]
