"""Finds messages by their words in SQLite: an index of FTS5, kept up to date some messages at a time.

It is written outside of every turn, which neither waits nor fails for it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from gateway.domain.sessions import SessionMessage
from gateway.errors import StoreError
from gateway.memory.tokenizer import Term, words_of
from gateway.store.engine import Connection, Engine

# Measured at 100 000 messages, per message: 165 µs one turn at a time, 30 µs by 64, 26 µs by 256; a batch of 64 holds
# the writer up for 0.8 ms, and for 13 ms when SQLite merges parts of the index.
BATCH = 64
COPIED = ""
"""What a copy of a message copies for its search: nothing, a copy is indexed like a new message."""

_NEWEST = """
    SELECT messages.id, session_id, role, personality_id, text, created_at, is_tainted
    FROM (SELECT rowid AS id FROM search WHERE search MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?)
    JOIN messages USING (id)
"""
_BEHIND = "SELECT 1 FROM search_progress WHERE until < ifnull((SELECT max(id) FROM messages), 0)"
_END = "SELECT max(id) FROM (SELECT id FROM messages WHERE id > ? ORDER BY id LIMIT ?)"
_INDEX = """
    INSERT INTO search (rowid, scope, text) SELECT id, scope, text FROM searchable WHERE id > ? AND id <= ? ORDER BY id
"""

_MISSING = """
    SELECT (SELECT count(*) FROM searchable WHERE id <= (SELECT until FROM search_progress))
        - (SELECT count(*) FROM search_docsize)
"""

_log = structlog.get_logger(__name__)


def register_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the SQL function that the index is built with."""
    connection.create_function("words_of", 1, words_of, deterministic=True)


def kept(message: SessionMessage) -> Mapping[str, object]:  # noqa: ARG001 (the index is written later)
    """No column of a message is for its search."""
    return {}


def newest(
    connection: Connection, terms: Sequence[Term], user_ids: Sequence[str] | None, *, before: int, limit: int
) -> Sequence[Any]:
    """The rows of the newest messages with all terms, of these users or of all, with an id below `before`."""
    return connection.execute(_NEWEST, (expression(terms, user_ids), before, limit)).fetchall()


def expression(terms: Sequence[Term], user_ids: Sequence[str] | None) -> str:
    """The query in FTS5's language, https://www.sqlite.org/fts5.html#full_text_query_syntax; every word is quoted."""
    wanted = " AND ".join(f'"{term.text}" *' if term.is_prefix else f'"{term.text}"' for term in terms)
    if user_ids is None:
        return f"text : ({wanted})"
    among = " OR ".join(f'"{user_id.encode().hex()}"' for user_id in user_ids)
    return f"scope : ({among}) AND text : ({wanted})"


class SearchIndex:
    """Indexes messages when enough are waiting, or before a search."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
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
            is_behind = await self._engine.read(lambda connection: connection.execute(_BEHIND).fetchone() is not None)
            while is_behind:
                is_behind = await self._engine.write(_index_batch, is_durable=False)
        except StoreError as error:
            _log.warning("search_index_behind", error=str(error))

    async def missing(self) -> int:
        """How many messages it lost, of those that it had; counts all."""

        def work(connection: Connection) -> int:
            return int(connection.execute(_MISSING).fetchone()[0])

        return max(0, await self._engine.read(work))

    async def build(self) -> None:
        """Empty it, and index all messages as new ones are: a batch is one commit, and others may write in between."""
        await self._engine.write(_empty, is_durable=False)
        await self.catch_up()

    async def close(self) -> None:
        """Let a batch that is on its way come to its end."""
        if self._task is not None:
            await self._task

    def _caught_up(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("search_index_fault", error=repr(task.exception()))


def _empty(connection: Connection) -> None:
    """Also an index that is broken: this reads nothing of it, https://www.sqlite.org/fts5.html#the_delete_all_command."""
    connection.execute("INSERT INTO search (search) VALUES ('delete-all')")
    connection.execute("UPDATE search_progress SET until = 0")


def _index_batch(connection: Connection) -> bool:
    """Index the oldest messages that are missing; whether there may be more."""
    (until,) = connection.execute("SELECT until FROM search_progress").fetchone()
    (end,) = connection.execute(_END, (until, BATCH)).fetchone()
    if end is None:
        return False
    connection.execute(_INDEX, (until, end))
    connection.execute("UPDATE search_progress SET until = ?", (end,))
    return True
