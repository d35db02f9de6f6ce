"""Forgets what is old in the gateway's database, a few rows at a time, so that no turn waits for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from gateway.memory.journal import iso
from gateway.store.engine import Connection
from gateway.store.payloads import EMPTIED, emptied, from_ms
from gateway.store.queue_rows import Place, Queue

BATCH = 200
"""Rows that one commit changes: under 10 ms on the slowest of our disks."""
LOOKED_AT = 5_000
"""Rows that one reading looks at."""
Aging = Literal["memory_journal", "memory_proposals", "usage", "tool_calls", "approvals", "occurrences", "schedules"]
"""Tables whose rows are deleted by their age.

Entries of the memory's history, decided proposals, calls of models, calls of tools, questions
about calls that are decided, what came of schedules, and those of which nothing is due any more.
"""

_END_OF_LOOK = "SELECT lane, seq FROM {queue} WHERE (lane, seq) > (?, ?) ORDER BY lane, seq LIMIT 1 OFFSET {looked_at}"
_FULL = """
    SELECT lane, seq, payload FROM {queue}
    WHERE (lane, seq) > (?, ?) AND (lane, seq) <= (?, ?) AND ended_at < ? AND substr(payload, 1, {length}) <> '{mark}'
    ORDER BY lane, seq LIMIT {limit}
"""
_LAST = Place(1 << 62, 0)
_DROPPED = {"inbox": "done", "outbox": "dropped"}
_SESSIONS = "SELECT id FROM sessions WHERE updated_at < ? ORDER BY updated_at LIMIT ?"
_MESSAGES = "SELECT id FROM messages WHERE session_id = ? LIMIT ?"
_OLD: Mapping[Aging, str] = {
    # What is older than a whole copy that is itself too old: from that copy on, the history is complete.
    "memory_journal": """
        SELECT id FROM memory_journal AS old WHERE outcome IS NOT NULL AND coalesce(written_at, at) < ?1 AND (
            position IS NULL OR position < (
                SELECT max(position) FROM memory_journal AS copy WHERE copy.document = old.document
                AND copy.outcome = 'applied' AND copy.checkpoint IS NOT NULL AND copy.written_at < ?1
            )
        ) LIMIT ?2
    """,
    "memory_proposals": "SELECT id FROM memory_proposals WHERE decided_at < ? LIMIT ?",
    "usage": "SELECT id FROM usage WHERE at < ? LIMIT ?",
    "tool_calls": "SELECT id FROM tool_calls WHERE began_at < ? LIMIT ?",
    "approvals": """
        SELECT id FROM approvals
        WHERE coalesce(decided_at, expires_at) < ? AND state NOT IN ('granted', 'begun') LIMIT ?
    """,
    "occurrences": """
        SELECT id FROM occurrences WHERE begun_at < ? AND NOT EXISTS (
            SELECT 1 FROM inbox WHERE inbox.turn_id = occurrences.turn_id AND inbox.ended_at IS NULL
        ) LIMIT ?
    """,
    "schedules": """
        SELECT id FROM schedules WHERE state = 'done' AND tell IS NULL AND coalesce(last_at, created_at) < ?
        AND NOT EXISTS (SELECT 1 FROM occurrences WHERE schedule_id = schedules.id) LIMIT ?
    """,
}


def full_rows(
    connection: Connection, queue: Queue, *, after: Place, before_ms: int, limit: int = BATCH
) -> tuple[Sequence[tuple[Place, str]], Place | None]:
    """Finished rows whose text is still there, place and payload, among the next that are looked at.

    With them the place up to which was looked; None at the end.
    """
    look = _END_OF_LOOK.format(queue=queue, looked_at=LOOKED_AT - 1)
    row = connection.execute(look, after).fetchone()
    until = _LAST if row is None else Place(*row)
    sql = _FULL.format(queue=queue, mark=EMPTIED, length=len(EMPTIED), limit=limit)
    rows = connection.execute(sql, (*after, *until, before_ms)).fetchall()
    found = [(Place(row["lane"], row["seq"]), row["payload"]) for row in rows]
    return found, found[-1][0] if len(found) == limit else None if row is None else until


def empty_rows(connection: Connection, queue: Queue, rows: Sequence[tuple[Place, str]]) -> None:
    """Take the texts out, and what failed out of the dead letters: it cannot be tried again without its text.

    The rows stay, so that no event comes in a second time.
    """
    connection.executemany(
        f"UPDATE {queue} SET payload = ?, error = NULL, state = CASE WHEN state = 'dead' THEN ? ELSE state END"  # noqa: S608 (two names)
        " WHERE lane = ? AND seq = ? AND ended_at IS NOT NULL",
        [(emptied(payload), _DROPPED[queue], *place) for place, payload in rows],
    )


def old_sessions(connection: Connection, *, before_ms: int, limit: int) -> Sequence[str]:
    """Sessions in which nothing was said since."""
    return [row[0] for row in connection.execute(_SESSIONS, (before_ms, limit))]


def forget_session(connection: Connection, session_id: str, *, before_ms: int) -> bool:
    """Delete some messages of a session, and the session after the last; whether there is more to delete.

    Nothing happens to a session that was taken up again since.
    """
    is_old = connection.execute("SELECT updated_at < ? FROM sessions WHERE id = ?", (before_ms, session_id)).fetchone()
    if is_old is None or not is_old[0]:
        return False
    ids = connection.execute(_MESSAGES, (session_id, BATCH)).fetchall()
    connection.executemany("DELETE FROM messages WHERE id = ?", [tuple(row) for row in ids])
    if len(ids) == BATCH:
        return True
    connection.execute("DELETE FROM session_keys WHERE session_id = ?", (session_id,))
    connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
    return False


def old_rows(connection: Connection, table: Aging, *, before_ms: int, limit: int = BATCH) -> Sequence[int]:
    """The numbers of rows that are older."""
    before = iso(from_ms(before_ms)) if table == "memory_journal" else before_ms
    return [row[0] for row in connection.execute(_OLD[table], (before, limit))]


def forget_rows(connection: Connection, table: Aging, ids: Sequence[int], *, before_ms: int) -> None:
    """Delete rows; of models' calls also the sums of the days before, of schedules what was granted to them."""
    connection.executemany(f"DELETE FROM {table} WHERE id = ?", [(each,) for each in ids])  # noqa: S608 (names of ours)
    if table == "schedules":
        connection.executemany("DELETE FROM grants WHERE schedule_id = ?", [(each,) for each in ids])
    if table == "usage":
        connection.execute("DELETE FROM usage_days WHERE day < ?", (from_ms(before_ms).date().isoformat(),))
