"""What was said in a conversation, read from the queues themselves: see `gateway.protocols.ConversationLog`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gateway.messages import ConversationRef
from gateway.protocols import LogEntry
from gateway.store.database import Database
from gateway.store.payloads import from_ms, inbound, is_emptied, outbound

_SAID = "SELECT * FROM inbox WHERE channel = ? AND conversation = ? AND thread IS ? AND seq > ? ORDER BY seq "
_ANSWERED = "SELECT * FROM outbox WHERE channel = ? AND conversation = ? AND thread IS ? AND seq > ? ORDER BY seq "


class SqliteConversationLog:
    """Both queues of a conversation as one sequence."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(
        self, conversation: ConversationRef, *, after: int = 0, limit: int = 200, newest: bool = False
    ) -> Sequence[LogEntry]:
        """Entries with a cursor above `after`, oldest first; with `newest` the last `limit` of them."""
        place = (conversation.channel, conversation.conversation, conversation.thread, after, limit)
        order = "DESC LIMIT ?" if newest else "ASC LIMIT ?"

        def work(connection: sqlite3.Connection) -> list[LogEntry]:
            connection.execute("BEGIN")  # both queues as they were at one moment, or a cursor could skip a row
            try:
                entries = [_said(row) for row in connection.execute(_SAID + order, place) if not is_emptied(row)]
                entries += [
                    _answered(row) for row in connection.execute(_ANSWERED + order, place) if not is_emptied(row)
                ]
            finally:
                connection.execute("ROLLBACK")
            entries.sort(key=lambda entry: entry.cursor)
            return entries[-limit:] if newest else entries[:limit]

        return await self._database.read(work) if limit > 0 else []


def _said(row: sqlite3.Row) -> LogEntry:
    message = inbound(row)
    return LogEntry(
        cursor=row["seq"],
        direction="in",
        id=message.id,
        text=message.text,
        display_name=message.sender.display_name,
        at=from_ms(row["accepted_at"]),
        state=row["state"],
        reply_to=message.reply_to,
    )


def _answered(row: sqlite3.Row) -> LogEntry:
    message = outbound(row)
    return LogEntry(
        cursor=row["seq"],
        direction="out",
        id=message.id,
        text=message.text,
        display_name="",
        at=from_ms(row["created_at"]),
        state=row["state"],
        reply_to=message.reply_to,
        actions=message.actions,
    )
