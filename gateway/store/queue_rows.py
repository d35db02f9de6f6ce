"""What inbox and outbox have in common: one sequence for both, and how long the heads of conversations wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from gateway.messages import ConversationRef
from gateway.store.clock import LONGEST_WAIT_MS
from gateway.store.engine import Connection, Row, statement
from gateway.store.payloads import conversation_of
from gateway.store.rows import key_of, marks_for

Queue = Literal["inbox", "outbox"]


def add_row(connection: Connection, queue: Queue, columns: Mapping[str, object], once: str) -> int | None:
    """Append a row that is due now, inside a transaction; its number, None where `once` finds that one is there."""
    (seq,) = connection.execute("SELECT last + 1 FROM sequence").fetchone()
    names = ", ".join(columns)
    sql = f"""
        INSERT INTO {queue} (seq, due_at, waiting_since, {names}) VALUES (?, now_ms(), now_ms(), {marks_for(columns)})
        {once}
    """  # noqa: S608 (names of ours)
    if not connection.execute(sql, (seq, *columns.values())).rowcount:
        return None
    connection.execute("UPDATE sequence SET last = ?", (seq,))
    return int(seq)


def make_due(queue: Queue, conversation: ConversationRef) -> Callable[[Connection], int]:
    """Work that lets what waits in a conversation be claimed now."""
    sql = f"""
        UPDATE {queue} SET due_at = now_ms(), waiting_since = now_ms()
        WHERE channel = ? AND conversation = ? AND thread IS NOT DISTINCT FROM ? AND ended_at IS NULL
        AND due_at > now_ms()
    """  # noqa: S608 (one of two names of our own)
    return statement(sql, key_of(conversation))


def waits_of(rows: Sequence[Row]) -> list[tuple[ConversationRef, float]]:
    """Each row's conversation, and the seconds until it is due: its column `due_in_ms`."""
    return [(conversation_of(row), max(0, row["due_in_ms"]) / 1000) for row in rows]


def correct_waits(connection: Connection, queue: Queue) -> None:
    """For a start: let no row wait longer than it was meant to because the clock was set back since."""
    connection.execute(
        f"UPDATE {queue} SET due_at = due_at - (waiting_since - now_ms()), waiting_since = now_ms() "  # noqa: S608 (two names of ours)
        "WHERE ended_at IS NULL AND waiting_since > now_ms()",
    )
    sql = f"UPDATE {queue} SET due_at = now_ms() + ?1 WHERE ended_at IS NULL AND due_at > now_ms() + ?1"  # noqa: S608 (two names of ours)
    connection.execute(sql, (LONGEST_WAIT_MS,))
