"""Keeps the full-text index up to date, some messages at a time and outside of every turn."""

from __future__ import annotations

import asyncio
import sqlite3

import structlog

from gateway.errors import StoreError
from gateway.memory.tokenizer import words_of
from gateway.store.database import Database

# Measured at 100 000 messages, per message: 165 µs one turn at a time, 30 µs by 64, 26 µs by 256; a batch of 64 holds
# the writer up for 0.8 ms, and for 13 ms when SQLite merges parts of the index.
BATCH = 64

_BEHIND = "SELECT 1 FROM search_progress WHERE until < ifnull((SELECT max(id) FROM messages), 0)"
_END = "SELECT max(id) FROM (SELECT id FROM messages WHERE id > ? ORDER BY id LIMIT ?)"
_INDEX = """
    INSERT INTO search (rowid, scope, text) SELECT id, scope, text FROM searchable WHERE id > ? AND id <= ? ORDER BY id
"""

_log = structlog.get_logger(__name__)


def register_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the SQL function that the index is built with."""
    connection.create_function("words_of", 1, words_of, deterministic=True)


class SearchIndex:
    """Indexes messages when enough are waiting, or before a search."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting = BATCH  # an earlier process may have left some
        self._task: asyncio.Task[None] | None = None

    def added(self, messages: int) -> None:
        """Say that messages were committed."""
        self._waiting += messages
        if self._waiting >= BATCH and self._task is None:
            self._task = asyncio.create_task(self.catch_up())
            self._task.add_done_callback(self._caught_up)

    async def catch_up(self) -> None:
        """Index what is not indexed yet. A full disk is logged: then the newest messages are not found for a while."""
        self._waiting = 0
        try:
            is_behind = await self._database.read(lambda connection: connection.execute(_BEHIND).fetchone() is not None)
            while is_behind:
                is_behind = await self._database.write(_index_batch, is_durable=False)
        except StoreError as error:
            _log.warning("search_index_behind", error=str(error))

    async def close(self) -> None:
        """Let a batch that is on its way come to its end."""
        if self._task is not None:
            await self._task

    def _caught_up(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("search_index_fault", error=repr(task.exception()))


def _index_batch(connection: sqlite3.Connection) -> bool:
    """Index the oldest messages that are missing; whether there may be more."""
    (until,) = connection.execute("SELECT until FROM search_progress").fetchone()
    (end,) = connection.execute(_END, (until, BATCH)).fetchone()
    if end is None:
        return False
    connection.execute(_INDEX, (until, end))
    connection.execute("UPDATE search_progress SET until = ?", (end,))
    return True
