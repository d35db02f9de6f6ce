"""What inbox and outbox have in common: a number of their lane, and how long what waits there is to wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from gateway.messages import ConversationRef
from gateway.store.clock import LONGEST_WAIT_MS
from gateway.store.engine import Connection

Queue = Literal["inbox", "outbox"]

LANE = "(SELECT id FROM lanes WHERE channel = ? AND conversation = ? AND thread = ?)"
"""The lane of a conversation, by `lane_key`."""
IS_RUNNING = """
    ended_at IS NULL AND EXISTS (SELECT 1 FROM lanes WHERE lanes.id = inbox.lane AND lanes.claim IS NOT NULL)
    AND NOT EXISTS (
        SELECT 1 FROM inbox AS earlier
        WHERE earlier.lane = inbox.lane AND earlier.seq < inbox.seq AND earlier.ended_at IS NULL
    )
"""
"""Of a row of the inbox: it is being answered, being the oldest one that is open in a lane that is claimed."""
STATE: Mapping[Queue, str] = {
    "inbox": f"CASE WHEN {IS_RUNNING} THEN 'running' ELSE state END",
    "outbox": "state",
}
"""The state of a row for people."""

RAISE = """
    INSERT INTO lanes (channel, conversation, thread, last_seq) VALUES (?, ?, ?, 1)
    ON CONFLICT (channel, conversation, thread) DO UPDATE SET last_seq = lanes.last_seq + 1
"""
"""Give out the next number of a lane, by `lane_key`."""


class Place(NamedTuple):
    """Where a row stands: its lane's number, and its own there, which is shared by both queues."""

    lane: int
    seq: int


def lane_key(conversation: ConversationRef) -> tuple[str, str, str]:
    """What `lanes` calls a conversation: `thread` is empty for none."""
    return (conversation.channel, conversation.conversation, conversation.thread or "")


def next_place(connection: Connection, conversation: ConversationRef) -> Place:
    """The next number of a conversation's lane, which stays locked until the transaction ends.

    So what is committed later never has a lower number.
    """
    return Place(*connection.execute(f"{RAISE} RETURNING id, last_seq", lane_key(conversation)).fetchone())


def correct_waits(connection: Connection, table: Literal["lanes", "outbox"]) -> None:
    """For a start: let nothing wait longer than it was meant to, because the clock was set back since; nor an hour."""
    is_open = "order_at IS NOT NULL" if table == "lanes" else "ended_at IS NULL"
    connection.execute(
        f"UPDATE {table} SET due_at = due_at - (waiting_since - now_ms()), waiting_since = now_ms() "  # noqa: S608 (two names of ours)
        f"WHERE {is_open} AND waiting_since > now_ms()",
    )
    sql = f"UPDATE {table} SET due_at = now_ms() + ?1 WHERE {is_open} AND due_at > now_ms() + ?1"  # noqa: S608 (as above)
    connection.execute(sql, (LONGEST_WAIT_MS,))
