"""What came of occurrences, inside the transactions that end their turns and deliveries."""

from __future__ import annotations

from gateway.messages import OutboundMessage
from gateway.pipeline.outbox import BESIDE
from gateway.schedules.firing import OccurrenceEnd
from gateway.schedules.schedule import MOST_FAILURES
from gateway.store.engine import Connection
from gateway.store.payloads import storable
from gateway.store.rows import key_of

_OF_TURN = "(SELECT schedule_id FROM occurrences WHERE turn_id = ?)"
_DELIVERED_HERE = """
    SELECT 1 FROM occurrences JOIN schedules ON schedules.id = schedule_id
    WHERE occurrences.turn_id = ? AND channel = ? AND conversation = ?
"""
_END = "UPDATE occurrences SET outcome = ?, note = CASE WHEN ? = '' THEN note ELSE ? END WHERE turn_id = ?"
_SUCCEEDED = f"UPDATE schedules SET failures = 0 WHERE id = {_OF_TURN} AND failures > 0"  # noqa: S608 (a constant)
# In a row up to this one, since a person let it go on: what was done and could not be delivered afterwards has failed,
# too.
_FAILED = """
    UPDATE schedules SET failures = (
        SELECT count(*) FROM occurrences AS one JOIN occurrences AS last ON last.schedule_id = one.schedule_id
        WHERE last.turn_id = ?1 AND one.outcome = 'failed' AND one.due_at <= last.due_at
        AND one.due_at > coalesce(schedules.forgiven_at, 0) AND NOT EXISTS (
            SELECT 1 FROM occurrences AS good WHERE good.schedule_id = one.schedule_id
            AND good.outcome IN ('done', 'silent') AND good.due_at > one.due_at AND good.due_at < last.due_at
        )
    ) WHERE id = (SELECT schedule_id FROM occurrences WHERE turn_id = ?1)
"""
_PAUSE = f"""
    UPDATE schedules SET state = CASE WHEN state = 'active' THEN 'failing' ELSE state END,
        next_at = CASE WHEN state = 'active' THEN NULL ELSE next_at END,
        fires_at = CASE WHEN state = 'active' THEN by_hand_at ELSE fires_at END, why = ?, tell = ?
    WHERE id = {_OF_TURN}
"""  # noqa: S608 (a constant)
_TOO_MANY_FAILURES = f"{_PAUSE} AND state = 'active' AND failures >= {MOST_FAILURES}"


def end_occurrence(connection: Connection, turn_id: str, end: OccurrenceEnd) -> None:
    """Note what came of an occurrence, inside the transaction that ends its turn. Nothing is read before the commit."""
    note = storable(end.note)
    connection.execute(_END, (end.outcome, note, note, turn_id))
    if end.outcome in ("done", "silent"):
        connection.execute(_SUCCEEDED, (turn_id,))
    if end.outcome == "failed":
        connection.execute(_FAILED, (turn_id,))
        why = f"it failed {MOST_FAILURES} times in a row; the last time: {note}"
        connection.execute(_TOO_MANY_FAILURES, (why, end.tell or "here", turn_id))
    if end.pauses is not None:
        connection.execute(_PAUSE, (storable(end.pauses), end.tell, turn_id))


def end_delivery(
    connection: Connection, turn_id: str, message: OutboundMessage, error: str, *, is_refused: bool
) -> None:
    """A reply of this turn is given up: where it was what a schedule had due there, that failed.

    A voice note, or a word on a reply that is late, is not what was due.

    Args:
        is_refused: its channel does not take it, and never will: the schedule is paused, and its person told elsewhere.
    """
    if message.id.endswith(BESIDE):
        return
    why = f"what was due could not be delivered: {error}"
    pauses = why if is_refused else None
    end = OccurrenceEnd(outcome="failed", note=why, pauses=pauses, tell="elsewhere")
    if connection.execute(_DELIVERED_HERE, (turn_id, *key_of(message.conversation)[:2])).fetchone() is not None:
        end_occurrence(connection, turn_id, end)
