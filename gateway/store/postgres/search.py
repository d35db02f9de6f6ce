"""Finds messages by their words in PostgreSQL: each is committed with its words, so no index is ever behind.

PostgreSQL's own parser sees no text and no query. What a word is says `gateway.memory.tokenizer`, as for SQLite, and
the `tsvector` and the `tsquery` are written out. The person is one more lexeme, so that a search among one person's
messages skips all others; lexemes of ours begin with a sign, which no word has.

A `tsvector` has limits (https://www.postgresql.org/docs/15/textsearch-limitations.html), and no text may fail a turn. A
word is known by its first 500 characters. Past position 16 383, or past its 256th occurrence, a word has no position:
then the text is marked as cut, phrases find it by their words alone, and are looked for in the text itself. What comes
after a megabyte of different words is not found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.domain.sessions import SessionMessage
from gateway.memory.tokenizer import Matcher, Term, words_of
from gateway.store.engine import Connection, snapshot

COPIED = ", words"
"""What a copy of a message copies for its search."""
MAX_LEXEME_CHARS = 500
LAST_POSITION = 16_382  # PostgreSQL takes 16 383 for whatever lies behind it
MAX_POSITIONS = 255
MAX_LEXEMES_BYTES = 1_000_000
_BYTES_BESIDE = 4  # of each lexeme: the number of its positions, and where it is aligned

_CUT = "'#'"
# For common words the messages are best walked from their end, for rare ones the index is asked first. A plan for any
# query chooses one of them for all: of 20 000 messages 32 ms for a word that is in none, in place of 0.4.
_PLANNING = "SET LOCAL plan_cache_mode = force_custom_plan"
_FIELDS = "id, session_id, role, personality_id, text, created_at, is_tainted, words @@ '''#''' AS is_cut"
_NEWEST = f"""
    SELECT {_FIELDS} FROM messages WHERE words @@ CAST(? AS tsquery) AND id < ? ORDER BY id DESC LIMIT ?
"""  # noqa: S608 (names of ours)
# For one person the index is always asked. The planner takes a phrase of common words for more common than it is, and
# would walk everybody's messages: 100 ms of a million.
_NEWEST_OF_PERSON = _NEWEST.replace("ORDER BY id", "ORDER BY id + 0")
# For a prefix the index reads the lists of all words that begin so, 20 ms of a million for a common one. So a person's
# latest messages are read first: they are all that there are, or enough of them match where it is common. The user is
# given as a range: with `user_id = …` the planner may walk everybody's messages.
_LATEST = f"""
    SELECT * FROM (
        SELECT {_FIELDS}, words @@ CAST(?4 AS tsquery) AS is_found, row_number() OVER () AS number FROM (
            SELECT * FROM messages WHERE (user_id, id) < (?1, ?2) AND user_id >= ?1
            ORDER BY user_id DESC, id DESC LIMIT ?3
        ) AS latest
    ) AS looked_at WHERE is_found OR number = ?3 ORDER BY number LIMIT ?5
"""  # noqa: S608 (names of ours)
_LATEST_READ = 3_000


def kept(message: SessionMessage) -> Mapping[str, object]:
    """The column `words` of a message; only what was said is searched."""
    is_said = message.role in ("user", "assistant")
    return {"words": vector(message.text, message.user_id)} if is_said else {}


def newest(
    connection: Connection, terms: Sequence[Term], user_ids: Sequence[str] | None, *, before: int, limit: int
) -> Sequence[Any]:
    """The rows of the newest messages with all terms, of these users or of all, with an id below `before`.

    Where cut texts are among them, and do not have a phrase, they may be less than the limit.
    """
    with snapshot(connection):
        connection.execute(_PLANNING)
        rows = _latest(connection, terms, user_ids, before=before, limit=limit)
        if rows is None:
            newest_of = _NEWEST if user_ids is None else _NEWEST_OF_PERSON
            rows = connection.execute(newest_of, (expression(terms, user_ids), before, limit)).fetchall()
    matcher = Matcher(terms)
    return [row for row in rows if not row["is_cut"] or matcher.is_in(row["text"])]


def _latest(
    connection: Connection, terms: Sequence[Term], user_ids: Sequence[str] | None, *, before: int, limit: int
) -> Sequence[Any] | None:
    """What a person's latest messages have of a prefix; None where the index must be asked."""
    if user_ids is None or len(user_ids) != 1 or not any(term.is_prefix for term in terms):
        return None
    values = (user_ids[0], before, _LATEST_READ, expression(terms, None), limit)
    rows = connection.execute(_LATEST, values).fetchall()
    found = [row for row in rows if row["is_found"]]
    are_all = not rows or rows[-1]["number"] < _LATEST_READ
    return found if are_all or len(found) == limit else None


def vector(text: str, user_id: str) -> str:
    """The words of a text with their positions, and the person, as PostgreSQL writes a `tsvector`."""
    places: dict[str, list[int]] = {}
    is_cut = False
    left_bytes = MAX_LEXEMES_BYTES
    for position, word in enumerate(words_of(text).split(), 1):
        lexeme = word[:MAX_LEXEME_CHARS]
        at = places.get(lexeme)
        if at is None:
            left_bytes -= len(lexeme.encode()) + _BYTES_BESIDE
            if left_bytes < 0:
                is_cut = True
                break
            at = places[lexeme] = []
        if position <= LAST_POSITION and len(at) < MAX_POSITIONS:
            at.append(position)
        else:
            is_cut = True
    lexemes = [f"'{word}':{','.join(map(str, at))}" if at else f"'{word}'" for word, at in places.items()]
    return " ".join([_person(user_id), *lexemes, *([_CUT] if is_cut else [])])


def expression(terms: Sequence[Term], user_ids: Sequence[str] | None) -> str:
    """The query as PostgreSQL writes a `tsquery`; every word is quoted."""
    wanted = " & ".join(map(_wanted, terms))
    return wanted if user_ids is None else f"({' | '.join(map(_person, user_ids))}) & {wanted}"


def _wanted(term: Term) -> str:
    words = [f"'{word[:MAX_LEXEME_CHARS]}'" for word in term.text.split(" ")]
    if term.is_prefix:
        words[-1] += ":*"
    return words[0] if len(words) == 1 else f"({' <-> '.join(words)} | {_CUT} & {' & '.join(words)})"


def _person(user_id: str) -> str:
    quoted = user_id[:MAX_LEXEME_CHARS].replace("\\", "\\\\").replace("'", "''")
    return f"'@{quoted}'"


class SearchIndex:
    """What stands for an index that is kept up to date: there is nothing to be done."""

    def added(self, messages: int) -> None:
        """Messages were committed, and their words with them."""

    async def catch_up(self) -> None:
        """Nothing is behind."""

    async def missing(self) -> int:
        """None: the words of a message are a column of it."""
        return 0

    async def build(self) -> None:
        """Nothing is to be made."""

    async def close(self) -> None:
        """Nothing is on its way."""
