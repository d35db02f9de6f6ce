"""Two clocks: one that people read, and one that waits are measured with."""

from __future__ import annotations

import sqlite3
import time
from typing import Literal

# Goes on while the machine sleeps, where there is such a clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WALL_LEAD_MS = time.time_ns() // 1_000_000 - time.clock_gettime_ns(_CLOCK) // 1_000_000

# At a start, whatever waits longer than this is made due within it: the clock that set the time may have been wrong.
LONGEST_WAIT_MS = 3_600_000


def wall_ms() -> int:
    """Milliseconds since 1970: for times that people read."""
    return time.time_ns() // 1_000_000


def correct_waits(connection: sqlite3.Connection, queue: Literal["inbox", "outbox"], now_ms: int) -> None:
    """For a start: let no row wait longer than it was meant to because the clock was set back since."""
    connection.execute(
        f"UPDATE {queue} SET due_at = due_at - (waiting_since - ?1), waiting_since = ?1 "  # noqa: S608 (two names of ours)
        "WHERE ended_at IS NULL AND waiting_since > ?1",
        (now_ms,),
    )
    latest = (now_ms + LONGEST_WAIT_MS,)
    sql = f"UPDATE {queue} SET due_at = ?1 WHERE ended_at IS NULL AND due_at > ?1"  # noqa: S608 (two names of ours)
    connection.execute(sql, latest)


def steady_ms() -> int:
    """The wall clock as it stood when the process began, going on without its jumps: for leases and retries."""
    return _WALL_LEAD_MS + time.clock_gettime_ns(_CLOCK) // 1_000_000
