"""Full-text search over messages: the engine finds the newest that match, BM25 ranks them.

FTS5's own bm25() walks through every occurrence of every word, 200 ms for a common one at 300 000 messages. Here the
index hands over the newest matches only, which it finds from the end of its lists, and these are ranked.
Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with one weight for all words:
each must be there anyway. How the newest are found is the engine's: `sqlite/search.py` and `postgres/search.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.domain.sessions import SessionHit, SessionMessage
from gateway.memory.tokenizer import Matcher, Term, parse
from gateway.store.dialect import POSTGRES, SQLITE
from gateway.store.engine import Connection, Row
from gateway.store.persons import ids_of_person
from gateway.store.postgres import search as postgres_search
from gateway.store.rows import value_of
from gateway.store.sqlite import search as sqlite_search

RANKED = 200
_K1 = 1.2
_B = 0.75


class Finder(Protocol):
    """How an engine finds messages by their words; a module of each."""

    COPIED: str

    def kept(self, message: SessionMessage) -> Mapping[str, object]:
        """The columns of a message that are for its search."""

    def newest(
        self,
        connection: Connection,
        terms: Sequence[Term],
        user_ids: Sequence[str] | None,
        *,
        before: int,
        limit: int,
    ) -> Sequence[Any]:
        """The rows of the newest messages with all terms, of these users or of all, with an id below `before`."""


class MessageIndex(Protocol):
    """What is told of new messages, and can be waited for before a search."""

    def added(self, messages: int) -> None:
        """Say that messages were committed."""

    async def catch_up(self) -> None:
        """Index what is not indexed yet."""

    async def missing(self) -> int:
        """How many messages it lost, of those that it had; counts all."""

    async def build(self) -> None:
        """Make it again from the messages, in steps; one that was broken off goes on with the next message."""

    async def close(self) -> None:
        """Let what is on its way come to its end."""


_FINDERS: Mapping[str, Finder] = {SQLITE.name: sqlite_search, POSTGRES.name: postgres_search}


def finder_of(connection: Connection) -> Finder:
    """How the engine of this connection finds messages."""
    return _FINDERS[connection.dialect.name]


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
    rows = finder_of(connection).newest(connection, terms, user_ids, before=before, limit=max(RANKED, limit))
    matcher = Matcher(terms)
    scores = bm25(matcher, [row["text"] for row in rows])
    best = sorted(range(len(rows)), key=lambda i: (scores[i], rows[i]["id"]), reverse=True)[:limit]
    return [_hit(rows[i], scores[i], matcher) for i in best]


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
