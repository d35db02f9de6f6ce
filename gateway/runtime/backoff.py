"""How long to wait before trying again."""

from __future__ import annotations

import random


def delay_s(attempt: int, *, first_s: float, longest_s: float) -> float:
    """Double the wait with every attempt, and spread it so that many waiters do not come back together.

    Args:
        attempt: attempts made so far, 1 or more.
        first_s: the middle of the first wait.
        longest_s: no wait is longer.

    Returns:
        Seconds, between half and one and a half of the doubled wait ("equal jitter", AWS Architecture Blog, 2015).
    """
    doubled = first_s * 2.0 ** min(attempt - 1, 30)
    return min(longest_s, doubled * random.uniform(0.5, 1.5))  # noqa: S311 (no secret depends on it)
