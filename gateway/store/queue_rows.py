"""What inbox and outbox have in common: one sequence for both, and how long the heads of conversations wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from gateway.messages import ConversationRef
from gateway.store.clock import LONGEST_WAIT_MS
from gateway.store.engine import Connection, Row, statement
from gateway.store.payloads import conversation_of
from gateway.store.rows import insert_new, key_of

Queue = Literal["inbox", "outbox"]


def add_row(connection: Connection, queue: Queue, columns: Mapping[str, object], once: str) -> int | None:
    """Append a row, inside a transaction; its number, None where one is there already, as `once` has it."""
    (seq,) = connection.execute("SELECT last + 1 FROM sequence").fetchone()
    if not insert_new(connection, queue, {"seq": seq, **columns}, once):
        return None
    connection.execute("UPDATE sequence SET last = ?", (seq,))
    return int(seq)


def make_due(queue: Queue, conversation: ConversationRef, now_ms: int) -> Callable[[Connection], int]:
    """Work that lets what waits in a conversation be claimed now."""
    sql = f"""
        UPDATE {queue} SET due_at = min(due_at, ?1), waiting_since = min(waiting_since, ?1)
        WHERE channel = ? AND conversation = ? AND thread IS ? AND ended_at IS NULL
    """  # noqa: S608 (one of two names of our own)
    return statement(sql, (now_ms, *key_of(conversation)))


def waits_of(rows: Sequence[Row], now_ms: int) -> list[tuple[ConversationRef, float]]:
    """Each row's conversation, and the seconds until it is due."""
    return [(conversation_of(row), max(0, row["due_at"] - now_ms) / 1000) for row in rows]


def correct_waits(connection: Connection, queue: Queue, now_ms: int) -> None:
    """For a start: let no row wait longer than it was meant to because the clock was set back since."""
    connection.execute(
        f"UPDATE {queue} SET due_at = due_at - (waiting_since - ?1), waiting_since = ?1 "  # noqa: S608 (two names of ours)
        "WHERE ended_at IS NULL AND waiting_since > ?1",
        (now_ms,),
    )
    latest = (now_ms + LONGEST_WAIT_MS,)
    sql = f"UPDATE {queue} SET due_at = ?1 WHERE ended_at IS NULL AND due_at > ?1"  # noqa: S608 (two names of ours)
    connection.execute(sql, latest)
