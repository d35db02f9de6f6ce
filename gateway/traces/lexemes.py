"""The index of words in PostgreSQL: a `tsvector` for each trace, written here and never by the server's parser.

Words of the text have the weight A; who said it and when, the context, has none. A lexeme `@number` says whose it is,
so a search among one person's traces skips all others. The best are ranked as FTS5 ranks them
(https://www.sqlite.org/fts5.html#the_bm25_function), with counts of the owners' own traces. No index lags: a trace is
committed with its words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gateway.store.engine import Connection, Row
from gateway.store.postgres.search import MAX_LEXEME_CHARS, MAX_LEXEMES_BYTES
from gateway.traces.search_words import context_of, said_in
from gateway.traces.stems import stem
from gateway.traces.word_index import PLACED, TAGGED, IndexFilters, Ranked, tag_values

RANKED_AT_MOST = 2_000
"""Of more matches the newest are ranked."""
_COUNTED_AT_MOST = 100_000
_MOST_NAMED = 200  # of more owners the matches are looked up one by one
_K1, _B = 1.2, 0.75
_LEAST_IDF = 1e-6
_BYTES_BESIDE = 8  # of each lexeme, about: the number of its positions, and where it is aligned

_SAID = "SELECT number, owner, speaker, created_at, content FROM traces WHERE number = ?"
_KEEP = """
    INSERT INTO search (number, owner, size, words) VALUES (?, ?, ?, CAST(? AS tsvector))
    ON CONFLICT (number) DO UPDATE SET owner = excluded.owner, size = excluded.size, words = excluded.words
"""
_IS_OWN = "traces.owner IN (SELECT CAST(value AS bigint) FROM json_each(:owners)) AND traces.deleted_at IS NULL"
_OF_TYPE = "AND traces.type = :type"
_OF_TAGS = f"AND {TAGGED.format(tags='traces.tags', wanted=':tags')} = :tag_count"
_MATCHES = f"""
    SELECT {PLACED}, search.size, CAST(search.words AS text) AS words
    FROM search JOIN traces ON traces.number = search.number
    WHERE search.words @@ CAST(:query AS tsquery) AND {_IS_OWN} {{filters}}
    ORDER BY search.number DESC LIMIT :most
"""  # noqa: S608 (constants)
_SIZES = f"""
    SELECT count(*), coalesce(avg(size), 1) FROM (
        SELECT size FROM search WHERE owner IN (SELECT CAST(value AS bigint) FROM json_each(?)) LIMIT {_COUNTED_AT_MOST}
    ) AS own
"""  # noqa: S608 (a constant)
_COUNT = f"""
    SELECT count(*) FROM (
        SELECT 1 FROM search WHERE words @@ CAST(? AS tsquery) LIMIT {_COUNTED_AT_MOST}
    ) AS found
"""  # noqa: S608 (a constant)
_HOLDERS = "SELECT number FROM search WHERE words @@ CAST(? AS tsquery) LIMIT ?"
_HOLDING = """
    SELECT search.number FROM search JOIN traces ON traces.number = search.number
    WHERE traces.id IN (SELECT value FROM json_each(?)) AND search.words @@ CAST(? AS tsquery)
"""
_TOKEN = re.compile(r'"(?P<words>[^"]*)"(?P<star> ?\*)?|(?P<sign>\(|\)|AND|OR|NOT)')
_SIGNS = {"(": "(", ")": ")", "AND": "&", "OR": "|", "NOT": "& !"}


@dataclass(frozen=True, slots=True)
class _Phrase:
    """Stems that stand one after the other; the last may go on."""

    stems: tuple[str, ...]
    is_prefix: bool

    def query(self, label: str = "") -> str:
        """As PostgreSQL writes a `tsquery`."""
        signs = f":{'*' if self.is_prefix else ''}{label}" if self.is_prefix or label else ""
        last = len(self.stems) - 1
        each = [
            f"'{word}'{signs if place == last else f':{label}' if label else ''}"
            for place, word in enumerate(self.stems)
        ]
        return each[0] if len(each) == 1 else f"({' <-> '.join(each)})"


class Lexemes:
    """The index on one connection; remembers what it counted."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sizes: dict[str, tuple[int, float]] = {}
        self._counted: dict[str, int] = {}

    def keep(self, number: int) -> None:
        """Write the words of a trace."""
        row = self._connection.execute(_SAID, (number,)).fetchone()
        if row is not None:
            words, size = vector(row)
            self._connection.execute(_KEEP, (number, row["owner"], size, words))

    def counts(self, owners: Sequence[int]) -> OwnCounts:
        """Of these owners alone."""
        return OwnCounts(self, owners)

    def best(
        self,
        owners: Sequence[int],
        needed: str,
        *,
        more: str = "",
        context_weight: float = 0.3,
        filters: IndexFilters = IndexFilters(),  # noqa: B008 (a frozen value)
        limit: int,
        documents: int | None = None,  # noqa: ARG002 (the index itself is asked for few and for many)
    ) -> Ranked:
        """As `WordIndex.best` says."""
        label = "" if context_weight else "A"
        tags, tag_count = tag_values(filters.tags)
        parts = ((_OF_TYPE, filters.type), (_OF_TAGS, filters.tags))
        values = {
            "query": among(owners, expression(needed, label)),
            "owners": json.dumps([*owners]),
            "most": RANKED_AT_MOST,
            "type": filters.type,
            "tags": tags,
            "tag_count": tag_count,
        }
        sql = _MATCHES.format(filters=" ".join(part for part, is_wanted in parts if is_wanted))
        rows = self._connection.execute(sql, values).fetchall()
        if not rows:
            return Ranked(best=(), among=0)
        weigh = self._weigher(owners, [*phrases(needed), *phrases(more)], context_weight)
        scored = sorted(((row, weigh(row)) for row in rows), key=lambda each: (-each[1], each[0]["number"]))
        return Ranked(best=scored[:limit], among=len(rows))

    def _weigher(self, owners: Sequence[int], asked: Sequence[_Phrase], context_weight: float) -> _Weigher:
        counts = self.counts(owners)
        all_of = counts.texts()
        rarities = {}
        for phrase in dict.fromkeys(asked):
            found = self.count(owners, phrase.query())
            rarities[phrase] = max(_LEAST_IDF, math.log(max((all_of - found + 0.5) / (found + 0.5), 1.0)))
        return _Weigher(asked, rarities, self.sizes(owners)[1], context_weight)

    def holders(self, owner: int, word: str, most: int) -> Sequence[int]:
        """The owner's."""
        query = among((owner,), _Phrase((_lexeme(word),), is_prefix=False).query("A"))
        return [int(row[0]) for row in self._connection.execute(_HOLDERS, (query, most))]

    def holding(self, expression_: str, ids: Collection[str]) -> Collection[int]:
        """By their question and their context."""
        values = (json.dumps([*ids]), expression(expression_))
        return {int(row[0]) for row in self._connection.execute(_HOLDING, values)}

    def merge(self, pages: int) -> bool:  # noqa: ARG002 (as the other index)
        """The server does that."""
        return False

    def sizes(self, owners: Sequence[int]) -> tuple[int, float]:
        """How many traces the owners have, and how many words these have on average."""
        key = json.dumps([*owners])
        if key not in self._sizes:
            amount, average = self._connection.execute(_SIZES, (key,)).fetchone()
            self._sizes[key] = int(amount), float(average)
        return self._sizes[key]

    def count(self, owners: Sequence[int], query: str) -> int:
        """How many traces of the owners match; of more than 200 owners, of all."""
        key = among(owners, query)
        if key not in self._counted:
            self._counted[key] = int(self._connection.execute(_COUNT, (key,)).fetchone()[0])
        return self._counted[key]


class OwnCounts:
    """A `gateway.memory.query.WordCounts` of some owners."""

    def __init__(self, lexemes: Lexemes, owners: Sequence[int]) -> None:
        self._lexemes = lexemes
        self._owners = owners

    def texts(self) -> int:
        """How many traces they have."""
        return self._lexemes.sizes(self._owners)[0]

    def documents_with(self, word: str) -> int:
        """In how many of them a word stands, as FTS5's language has it."""
        return self._lexemes.count(self._owners, expression(word))


class _Weigher:
    """BM25 of a row, as FTS5 counts it: of each phrase how often it stands in the text, and in the context."""

    def __init__(
        self, asked: Sequence[_Phrase], rarities: Mapping[_Phrase, float], average: float, context_weight: float
    ) -> None:
        self._asked = asked
        self._rarities = rarities
        self._average = max(average, 1.0)
        self._context_weight = context_weight
        words = {re.escape(word) for phrase in asked for word in phrase.stems}
        words |= {f"{re.escape(phrase.stems[-1])}[^']*" for phrase in asked if phrase.is_prefix}
        self._asked_for = re.compile(f"'({'|'.join(sorted(words, key=len, reverse=True))})':(\\S+)")

    def __call__(self, row: Row) -> float:
        places = dict(self._asked_for.findall(row["words"]))
        length = _K1 * (1 - _B + _B * row["size"] / self._average)
        score = 0.0
        for phrase in self._asked:
            in_text, in_all = _found(phrase, places)
            often = in_text + self._context_weight * (in_all - in_text)
            score += self._rarities[phrase] * often * (_K1 + 1) / (often + length)
        return score


def _found(phrase: _Phrase, places: Mapping[str, str]) -> tuple[int, int]:
    """How often the phrase stands in the text, and in all; `places` are as the server writes them: `3,17A`."""
    *before, last = phrase.stems
    if not before and not phrase.is_prefix:
        given = places.get(last)
        return (0, 0) if given is None else (given.count("A"), given.count(",") + 1)
    ends = [
        given for lexeme, given in places.items() if lexeme == last or (phrase.is_prefix and lexeme.startswith(last))
    ]
    starts = [{_place(each) for each in places.get(word, "").split(",") if each} for word in before]
    found = [
        each
        for given in ends
        for each in given.split(",")
        if all(_place(each) - len(before) + index in start for index, start in enumerate(starts))
    ]
    return sum(each.endswith("A") for each in found), len(found)


def _place(given: str) -> int:
    return int(given.rstrip("A"))


@lru_cache(maxsize=512)
def phrases(text: str) -> Sequence[_Phrase]:
    """The words and phrases of an expression."""
    found = []
    for token in _TOKEN.finditer(text):
        stems = tuple(_lexeme(word) for word in (token["words"] or "").split())
        if stems:
            found.append(_Phrase(stems, is_prefix=token["star"] is not None))
    return found


@lru_cache(maxsize=512)
def expression(text: str, label: str = "") -> str:
    """An expression of FTS5's as PostgreSQL writes a `tsquery`; `label` A: of the text alone."""
    parts = []
    for token in _TOKEN.finditer(text):
        if token["sign"]:
            parts.append(_SIGNS[token["sign"]])
        else:
            (phrase,) = phrases(token[0])
            parts.append(phrase.query(label))
    return " ".join(parts)


def among(owners: Sequence[int], query: str) -> str:
    """The query among the traces of these owners, as far as they can be named."""
    if not owners or len(owners) > _MOST_NAMED:
        return f"({query})"
    return f"({' | '.join(map(_owner, owners))}) & ({query})"


def vector(row: Row) -> tuple[str, int]:
    """The words of a row of `traces` as PostgreSQL writes a `tsvector`, and how many they are.

    The server keeps 255 places of a word up to the 16 383rd, and takes later ones for that.
    """
    context = context_of(row["speaker"], row["created_at"], row["content"]).split()
    text = said_in(row["content"]).split()
    places: dict[str, list[str]] = {}
    left_bytes = MAX_LEXEMES_BYTES
    begin = len(context) + 2  # so that no phrase reaches from the one into the other
    placed = [(word, f"{at}") for at, word in enumerate(context, 1)]
    placed += [(word, f"{at}A") for at, word in enumerate(text, begin)]
    for word, place in placed:
        lexeme = _lexeme(word)
        if lexeme not in places:
            left_bytes -= len(lexeme.encode()) + _BYTES_BESIDE
            if left_bytes < 0:
                break
        places.setdefault(lexeme, []).append(place)
    lexemes = [f"'{word}':{','.join(at[:255])}" for word, at in places.items()]
    return " ".join([_owner(row["owner"]), *lexemes]), len(placed)


def _owner(number: int) -> str:
    return f"'@{number}'"


def _lexeme(word: str) -> str:
    return stem(word)[:MAX_LEXEME_CHARS]
