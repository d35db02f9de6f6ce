"""Full-text search over messages: FTS5 finds the newest that match, BM25 ranks them.

FTS5's own bm25() walks through every occurrence of every word, 200 ms for a common one at 300 000 messages. Here the
index hands over the newest matches only, which it finds from the end of its lists, and these are ranked.
Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with one weight for all words:
each must be there anyway. The index is kept up to date some messages at a time and outside of every turn.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence

import structlog

from gateway.domain.sessions import SessionHit
from gateway.errors import StoreError
from gateway.memory.tokenizer import Matcher, Term, parse, words_of
from gateway.store.engine import Connection, Engine, Row
from gateway.store.persons import ids_of_person
from gateway.store.rows import value_of

RANKED = 200
_K1 = 1.2
_B = 0.75

_CANDIDATES = """
    SELECT messages.id, session_id, role, personality_id, text, created_at, is_tainted
    FROM (SELECT rowid AS id FROM search WHERE search MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?)
    JOIN messages USING (id)
"""

# Measured at 100 000 messages, per message: 165 µs one turn at a time, 30 µs by 64, 26 µs by 256; a batch of 64 holds
# the writer up for 0.8 ms, and for 13 ms when SQLite merges parts of the index.
BATCH = 64

_BEHIND = "SELECT 1 FROM search_progress WHERE until < ifnull((SELECT max(id) FROM messages), 0)"
_END = "SELECT max(id) FROM (SELECT id FROM messages WHERE id > ? ORDER BY id LIMIT ?)"
_INDEX = """
    INSERT INTO search (rowid, scope, text) SELECT id, scope, text FROM searchable WHERE id > ? AND id <= ? ORDER BY id
"""

_log = structlog.get_logger(__name__)


def search_messages(
    connection: Connection, query: str, user_id: str | None, limit: int, before: int = 1 << 62
) -> Sequence[SessionHit]:
    """The best of the newest 200 messages that have all terms of the query; nothing for a query without words.

    Args:
        before: only messages with a lower id.
    """
    terms = parse(query)
    if not terms or limit <= 0:
        return []
    user_ids = None if user_id is None else ids_of_person(connection, user_id)
    rows = connection.execute(_CANDIDATES, (expression(terms, user_ids), before, max(RANKED, limit))).fetchall()
    matcher = Matcher(terms)
    scores = bm25(matcher, [row["text"] for row in rows])
    best = sorted(range(len(rows)), key=lambda i: (scores[i], rows[i]["id"]), reverse=True)[:limit]
    return [_hit(rows[i], scores[i], matcher) for i in best]


def expression(terms: Sequence[Term], user_ids: Sequence[str] | None) -> str:
    """The query in FTS5's language, https://www.sqlite.org/fts5.html#full_text_query_syntax; every word is quoted."""
    wanted = " AND ".join(f'"{term.text}" *' if term.is_prefix else f'"{term.text}"' for term in terms)
    if user_ids is None:
        return f"text : ({wanted})"
    among = " OR ".join(f'"{user_id.encode().hex()}"' for user_id in user_ids)
    return f"scope : ({among}) AND text : ({wanted})"


def bm25(matcher: Matcher, texts: Sequence[str]) -> list[float]:
    """A score for each text, higher is better."""
    mean_chars = sum(map(len, texts)) / max(1, len(texts)) or 1.0
    scores = []
    for text in texts:
        norm = _K1 * (1 - _B + _B * len(text) / mean_chars)
        # the index is the judge of what matches: a term that it found counts once at least
        scores.append(sum(count * (_K1 + 1) / (count + norm) for count in (max(1, n) for n in matcher.counts(text))))
    return scores


def _hit(row: Row, score: float, matcher: Matcher) -> SessionHit:
    snippet = matcher.snippet(row["text"])
    return value_of(SessionHit, row, message_id=row["id"], snippet=snippet, score=score)


def register_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the SQL function that the index is built with."""
    connection.create_function("words_of", 1, words_of, deterministic=True)


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

    async def close(self) -> None:
        """Let a batch that is on its way come to its end."""
        if self._task is not None:
            await self._task

    def _caught_up(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("search_index_fault", error=repr(task.exception()))


def _index_batch(connection: Connection) -> bool:
    """Index the oldest messages that are missing; whether there may be more."""
    (until,) = connection.execute("SELECT until FROM search_progress").fetchone()
    (end,) = connection.execute(_END, (until, BATCH)).fetchone()
    if end is None:
        return False
    connection.execute(_INDEX, (until, end))
    connection.execute("UPDATE search_progress SET until = ?", (end,))
    return True
