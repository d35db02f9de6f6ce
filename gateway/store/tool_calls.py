"""The calls of tools: see `gateway.tools.journal`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine
from gateway.store.payloads import storable
from gateway.store.rows import columns_of, insert, insert_new, marks_for, value_of
from gateway.tools.contract import Outcome
from gateway.tools.journal import CallKey, CallRow, KeptCall

_END = """
    UPDATE tool_calls SET state = ?, result = ?, sources = ?, ended_at = ?
    WHERE turn_id = ? AND call_id = ? AND result IS NULL
"""
_BEGIN_APPROVAL = "UPDATE approvals SET state = 'begun' WHERE id = ? AND state = 'granted'"
_END_APPROVAL = """
    UPDATE approvals SET state = ? WHERE state = 'begun'
    AND id IN (SELECT approval_id FROM tool_calls WHERE turn_id = ? AND call_id = ?)
"""
_LEAVE_APPROVALS = """
    UPDATE approvals SET state = 'uncertain' WHERE state = 'begun'
    AND id IN (SELECT approval_id FROM tool_calls WHERE turn_id = ? AND state = 'begun')
"""
_KEPT = "SELECT state, result, sources FROM tool_calls WHERE turn_id = ? AND call_id = ?"
# What was not ended is not known; the model's results are among the messages of the session.
_LEAVE = """
    UPDATE tool_calls SET result = NULL, sources = NULL,
    state = CASE WHEN state = 'begun' THEN 'uncertain' ELSE state END
    WHERE turn_id = ? AND (result IS NOT NULL OR state = 'begun')
"""
_OF_ALL = "SELECT * FROM tool_calls WHERE id < ? ORDER BY id DESC LIMIT ?"
_OF_USERS = "SELECT * FROM tool_calls WHERE user_id IN ({}) AND id < ? ORDER BY id DESC LIMIT ?"
_NEWEST = 1 << 62


def keep_calls(connection: Connection, rows: Sequence[CallRow]) -> None:
    """Note calls, those that are noted already left as they are."""
    for row in rows:
        insert(connection, "tool_calls", columns_of(row), "ON CONFLICT DO NOTHING")


def begin_call(connection: Connection, row: CallRow) -> bool:
    """Note that a tool is about to act; False where its approval is not granted (any more), or it was begun already."""
    if row.approval_id is not None and connection.execute(_BEGIN_APPROVAL, (row.approval_id,)).rowcount != 1:
        return False
    return insert_new(connection, "tool_calls", columns_of(row))


def end_call(connection: Connection, key: CallKey, outcome: Outcome, result: str, sources: Sequence[str] = ()) -> None:
    """Note what a call came to, once."""
    where = (key.turn_id, key.call_id)
    connection.execute(_END_APPROVAL, ("done" if outcome == "waiting" else outcome, *where))  # the yes is used
    kept = storable(json.dumps(sources, ensure_ascii=False)) if sources else None
    connection.execute(_END, (outcome, storable(result), kept, wall_ms(), *where))


def kept_call(connection: Connection, key: CallKey) -> KeptCall | None:
    """What is known of a call."""
    row = connection.execute(_KEPT, (key.turn_id, key.call_id)).fetchone()
    if row is None:
        return None
    outcome = None if row["state"] == "begun" else row["state"]
    return KeptCall(outcome=outcome, result=row["result"], sources=tuple(json.loads(row["sources"] or "[]")))


def leave_calls(connection: Connection, turn_id: str) -> None:
    """The turn has ended: its calls are for people only, and results are kept no longer."""
    connection.execute(_LEAVE_APPROVALS, (turn_id,))
    connection.execute(_LEAVE, (turn_id,))


class SqlToolLog:
    """The `ToolLog` of `gateway/tools/journal.py`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def calls(
        self, *, user_ids: Collection[str] | None = None, before: int | None = None, limit: int = 50
    ) -> Sequence[tuple[int, CallRow]]:
        until = _NEWEST if before is None else before
        if user_ids is None:
            rows = await self._engine.rows(_OF_ALL, (until, limit))
        else:
            rows = await self._engine.rows(_OF_USERS.format(marks_for(user_ids)), (*user_ids, until, limit))
        return [(row["id"], value_of(CallRow, row, key=value_of(CallKey, row))) for row in rows]
