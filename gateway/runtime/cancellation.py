"""Whose cancellation it is: ours, which must go on, or one that leaked out of a library that cancels its own work."""

from __future__ import annotations

import asyncio


def is_cancelled_from_outside() -> bool:
    """Whether somebody asked the running task to end; for an `except CancelledError` around foreign code."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
