"""Two clocks: one that people read, and one that waits are measured with."""

from __future__ import annotations

import time

# Goes on while the machine sleeps, where there is such a clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WALL_LEAD_MS = time.time_ns() // 1_000_000 - time.clock_gettime_ns(_CLOCK) // 1_000_000

# At a start, whatever waits longer than this is made due within it: the clock that set the time may have been wrong.
LONGEST_WAIT_MS = 3_600_000


def wall_ms() -> int:
    """Milliseconds since 1970: for times that people read."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """The wall clock as it stood when the process began, going on without its jumps: for leases and retries."""
    return _WALL_LEAD_MS + time.clock_gettime_ns(_CLOCK) // 1_000_000
