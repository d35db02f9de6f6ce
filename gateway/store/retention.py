"""Forgets what is old in the gateway's database, a few rows at a time, so that no turn waits for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from gateway.store.payloads import EMPTIED, emptied

BATCH = 200
"""Rows that one commit changes: under 10 ms on the slowest of our disks."""
LOOKED_AT = 5_000
"""Rows that one reading looks at."""
Queue = Literal["inbox", "outbox"]

_FULL = """
    SELECT seq, payload, state FROM {queue}
    WHERE seq > ? AND seq <= ? AND ended_at < ? AND substr(payload, 1, {length}) <> '{mark}' LIMIT {limit}
"""
_DROPPED = {"inbox": "done", "outbox": "dropped"}
_SESSIONS = "SELECT id FROM sessions WHERE updated_at < ? ORDER BY updated_at LIMIT ?"
_MESSAGES = "SELECT id FROM messages WHERE session_id = ? LIMIT ?"
# What is older than a whole copy that is itself too old: from that copy on, the history is complete.
_HISTORY = """
    SELECT id FROM memory_journal AS old WHERE outcome IS NOT NULL AND coalesce(written_at, at) < ?1 AND (
        position IS NULL OR position < (
            SELECT max(position) FROM memory_journal AS copy WHERE copy.document = old.document
            AND copy.outcome = 'applied' AND copy.checkpoint IS NOT NULL AND copy.written_at < ?1
        )
    ) LIMIT ?2
"""


def last_seq(connection: sqlite3.Connection, queue: Queue) -> int:
    """The newest row of a queue."""
    return int(connection.execute(f"SELECT ifnull(max(seq), 0) FROM {queue}").fetchone()[0])  # noqa: S608 (two names)


def full_rows(
    connection: sqlite3.Connection, queue: Queue, *, after: int, before_ms: int, limit: int = BATCH
) -> Sequence[tuple[int, str]]:
    """Finished rows whose text is still there: number and payload, among the next that are looked at."""
    sql = _FULL.format(queue=queue, mark=EMPTIED, length=len(EMPTIED), limit=limit)
    rows = connection.execute(sql, (after, after + LOOKED_AT, before_ms))
    return [(row["seq"], row["payload"]) for row in rows]


def empty_rows(connection: sqlite3.Connection, queue: Queue, rows: Sequence[tuple[int, str]]) -> None:
    """Take the texts out, and what failed out of the dead letters: it cannot be tried again without its text.

    The rows stay, so that no event comes in a second time.
    """
    connection.executemany(
        f"UPDATE {queue} SET payload = ?, error = NULL, state = iif(state = 'dead', ?, state)"  # noqa: S608 (two names)
        " WHERE seq = ? AND ended_at IS NOT NULL",
        [(emptied(payload), _DROPPED[queue], seq) for seq, payload in rows],
    )


def old_sessions(connection: sqlite3.Connection, *, before_ms: int, limit: int) -> Sequence[str]:
    """Sessions in which nothing was said since."""
    return [row[0] for row in connection.execute(_SESSIONS, (before_ms, limit))]


def forget_session(connection: sqlite3.Connection, session_id: str, *, before_ms: int) -> bool:
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


def old_history(connection: sqlite3.Connection, *, before_ms: int, limit: int = BATCH) -> Sequence[int]:
    """Entries of the memory's history."""
    moment = datetime.fromtimestamp(before_ms / 1000, UTC).isoformat(timespec="microseconds")
    return [row[0] for row in connection.execute(_HISTORY, (moment, limit))]


def forget_history(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Delete entries of the memory's history."""
    connection.executemany("DELETE FROM memory_journal WHERE id = ?", [(each,) for each in ids])


def old_proposals(connection: sqlite3.Connection, *, before_ms: int, limit: int = BATCH) -> Sequence[int]:
    """Changes of the memory that waited for a yes, and were decided."""
    sql = "SELECT id FROM memory_proposals WHERE decided_at < ? LIMIT ?"
    return [row[0] for row in connection.execute(sql, (before_ms, limit))]


def forget_proposals(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Delete decided proposals."""
    connection.executemany("DELETE FROM memory_proposals WHERE id = ?", [(each,) for each in ids])


def old_usage(connection: sqlite3.Connection, *, before_ms: int, limit: int = BATCH) -> Sequence[int]:
    """Single calls of models."""
    return [row[0] for row in connection.execute("SELECT id FROM usage WHERE at < ? LIMIT ?", (before_ms, limit))]


def forget_usage(connection: sqlite3.Connection, ids: Sequence[int], *, before_ms: int) -> None:
    """Delete single calls, and the sums of their days."""
    connection.executemany("DELETE FROM usage WHERE id = ?", [(each,) for each in ids])
    day = datetime.fromtimestamp(before_ms / 1000, UTC).date().isoformat()
    connection.execute("DELETE FROM usage_days WHERE day < ?", (day,))
