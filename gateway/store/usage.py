"""What model calls cost, in SQLite."""

from __future__ import annotations

import sqlite3

from gateway.sessions import TurnUsage
from gateway.store.clock import wall_ms

_SAVE = """
    INSERT INTO usage (turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


def save_usage(connection: sqlite3.Connection, turn_id: str, usage: TurnUsage) -> None:
    """Note the calls of a turn, inside the caller's transaction; an empty `turn_id` where they belong to none."""
    whose = (turn_id, usage.user_id, usage.personality_id)
    for call in usage.calls:
        figures = (call.model, call.input_tokens, call.output_tokens, call.cost_usd)
        connection.execute(_SAVE, (*whose, *figures, wall_ms()))
