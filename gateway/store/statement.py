"""A single SQL statement as work for the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any


def statement(sql: str, values: Sequence[Any] = ()) -> Callable[[sqlite3.Connection], int]:
    """Work that runs one statement and gives the number of rows that it changed.

    The cursor stays in the thread that made it: letting go of one elsewhere would disturb the writer.
    """

    def work(connection: sqlite3.Connection) -> int:
        return connection.execute(sql, values).rowcount

    return work
