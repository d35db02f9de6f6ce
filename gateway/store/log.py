"""What was said in a conversation, read from the queues themselves: see `gateway.protocols.ConversationLog`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from gateway.messages import ConversationRef
from gateway.protocols import LogEntry
from gateway.store.engine import Connection, Engine, Row
from gateway.store.payloads import EMPTIED, actions_of, attachments_of
from gateway.store.queue_rows import STATE, lane_key
from gateway.store.rows import marks_for, value_of

# One statement, and so both queues as they are at one moment: else a cursor could skip a row. What was forgotten for
# its age is not counted: a page of such rows alone would look like the end.
_ENTRIES = """
    SELECT * FROM (
        SELECT {said} FROM inbox
        WHERE lane = (SELECT id FROM lanes WHERE channel = ?1 AND conversation = ?2 AND thread = ?3) AND seq > ?4
        AND schedule_id IS NULL AND substr(payload, 1, length(?6)) <> ?6 ORDER BY seq {order} LIMIT ?5
    ) AS said UNION ALL SELECT * FROM (
        SELECT {answered} FROM outbox
        WHERE lane = (SELECT id FROM lanes WHERE channel = ?1 AND conversation = ?2 AND thread = ?3) AND seq > ?4
        AND substr(payload, 1, length(?6)) <> ?6 ORDER BY seq {order} LIMIT ?5
    ) AS answered
"""
_WHOLE = {
    "said": f"'in' AS direction, seq, message_id AS id, payload, {STATE['inbox']} AS state, accepted_at AS at, turn_id",
    "answered": "'out', seq, id, payload, state, created_at, turn_id",
}
_OLDEST, _NEWEST = _ENTRIES.format(order="ASC", **_WHOLE), _ENTRIES.format(order="DESC", **_WHOLE)
_NEWEST_CURSORS = _ENTRIES.format(order="DESC", said="seq", answered="seq")
_SAID = """
    SELECT {said} FROM inbox WHERE turn_id IN ({marks}) AND channel = ? AND substr(payload, 1, length(?)) <> ?
"""
_BEGAN = "SELECT 1 FROM inbox WHERE turn_id = ? AND channel = ? AND conversation = ?"
_MODELS = "SELECT turn_id, model FROM usage WHERE turn_id IN ({}) ORDER BY id"
_PLACE = "SELECT seq FROM inbox WHERE channel = ? AND conversation = ? AND message_id = ?"


class SqlConversationLog:
    """Both queues of a conversation as one sequence."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def read(
        self, conversation: ConversationRef, *, after: int = 0, limit: int = 200, newest: bool = False
    ) -> Sequence[LogEntry]:
        place = (*lane_key(conversation), after, limit, EMPTIED)
        sql = _NEWEST if newest else _OLDEST

        def work(connection: Connection) -> list[LogEntry]:
            entries = [_entry(row) for row in connection.execute(sql, place).fetchall()]
            entries.sort(key=lambda entry: entry.cursor)
            return entries[-limit:] if newest else entries[:limit]

        return await self._engine.read(work) if limit > 0 else []

    async def place_before(self, conversation: ConversationRef, *, newest: int) -> int:
        """Behind which cursor the newest so many entries are; 0 where there are no more."""
        rows = await self._engine.rows(_NEWEST_CURSORS, (*lane_key(conversation), 0, newest + 1, EMPTIED))
        cursors = sorted((int(row["seq"]) for row in rows), reverse=True)
        return cursors[newest] if len(cursors) > newest else 0

    async def said(self, turn_ids: Collection[str], channel: str) -> dict[str, LogEntry]:
        """What a person wrote on a channel, by the turn that it began; what is forgotten is left out."""
        values = (*turn_ids, channel, EMPTIED, EMPTIED)
        entries = [
            _entry(row)
            for row in await self._engine.rows(_SAID.format(said=_WHOLE["said"], marks=marks_for(turn_ids)), values)
        ]
        return {entry.turn_id: entry for entry in entries}

    async def has(self, conversation: ConversationRef, turn_id: str) -> bool:
        """Whether a message of the conversation began this turn."""
        values = (turn_id, conversation.channel, conversation.conversation)
        return await self._engine.row(_BEGAN, values) is not None

    async def models(self, turn_ids: Collection[str]) -> dict[str, str]:
        """Which model gave the answer of each of these turns, as far as it is still known."""
        rows = await self._engine.rows(_MODELS.format(marks_for(turn_ids)), tuple(turn_ids))
        return {row["turn_id"]: row["model"] for row in rows}

    async def cursor_of(self, conversation: ConversationRef, message_id: str) -> int | None:
        """Where a person's message stands; None where it is not there."""
        key = (conversation.channel, conversation.conversation, message_id)
        row = await self._engine.row(_PLACE, key)
        return None if row is None else int(row["seq"])


def _entry(row: Row) -> LogEntry:
    payload = json.loads(row["payload"])
    is_said = row["direction"] == "in"
    return value_of(
        LogEntry,
        row,
        cursor=row["seq"],
        text=payload["text"],
        display_name=payload["sender"][2] if is_said else "",
        reply_to=payload["reply_to"],
        actions=() if is_said else actions_of(payload),
        attachments=attachments_of(payload) if is_said else (),
    )
