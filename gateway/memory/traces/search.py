"""How traces are found: FTS5 finds those that hold any of the words, and what stands around them is weighed in.

What is asked about in a conversation is often answered beside the words of the question: in the next message, by the
one who is named, on the day that has most to do with it. So a trace gains by the matches next to it, by the best
matches of its conversation, and by being said by somebody whom the question names.

Where there is a vector of the question, traces close to it in meaning are found, too. Words and meaning are each taken
as shares of the best of them and added up. What stands around a trace is weighed in after that.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from gateway.memory.traces import strength
from gateway.memory.traces.filters import Among, IndexFilters, owners_among, tagged
from gateway.memory.traces.ranking import best_of
from gateway.memory.traces.rows import SELECT, from_row, places
from gateway.memory.traces.search_words import Query, read_query
from gateway.memory.traces.trace import ScopeKind, Trace, TraceType, Viewer
from gateway.store.words import words_of

MOST = 100
CANDIDATES = 200
_WITH_NEIGHBOURS = 20
# The weight of a match beside, by how far away it is.
_BESIDE = {1: 0.25, 2: 0.1}
_CONVERSATION = 0.1
_CONVERSATION_BEST = 3
_NAMED = 1.25
# The part of the vectors, where there are any; between 0.2 and 0.5 it makes little difference to benchmarks.retrieval.
_MEANING = 0.4
_FADED = 0.95  # what a match without strength is worth

_RANKED_AT_LEAST = 1_000  # more words are looked for until so many traces were ranked
# The plus keeps SQLite from the indexes by owner, of whose traces it would look at every one.
_PLACES = """
    SELECT number, owner, conversation, position, speaker FROM traces
    WHERE number IN ({numbers}) AND +owner IN ({owners}) AND deleted_at IS NULL
"""
_BESIDE_IT = """
    SELECT number, owner, conversation, position, speaker FROM traces
    WHERE owner = ? AND conversation = ? AND position BETWEEN ? AND ? AND deleted_at IS NULL {filters}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is searched for, and among what."""

    query: str
    type: TraceType | None = None
    scope: ScopeKind | None = None
    limit: int = 10
    among: Among = field(default_factory=Among)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A trace that was found.

    Attributes:
        strength: what is left of it now.
        parts: what the score is the sum of, for `--explain`: the words, the meaning, what stands beside, the
            conversation.
        factors: by which the sum is multiplied: whether the speaker was named, and the strength.
        cosine: between the vectors of question and trace; None where one of them has none, or it was not looked at.
    """

    trace: Trace
    score: float
    strength: float
    parts: Mapping[str, float]
    factors: Mapping[str, float]
    cosine: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """How close the meaning of a trace is to that of the question.

    Attributes:
        cosine: of the two vectors.
        share: from 0, no closer than any trace, to 1, the closest of all.
    """

    cosine: float
    share: float


class Compare(Protocol):
    """Finds what is close to a question; see `vectors.QueryVector.compare`."""

    def __call__(
        self, connection: sqlite3.Connection, owners: Sequence[int], type_: TraceType | None, words: Collection[int], /
    ) -> Mapping[int, Closeness]:
        """Of the owners' traces the closest, and those in `words`, by their numbers."""


@dataclass(slots=True)
class _Match:
    number: int
    place: tuple[int, str] | None
    position: int
    speaker: str | None
    words: float
    meaning: float = 0.0
    cosine: float | None = None
    beside: float = 0.0
    conversation: float = 0.0
    factors: dict[str, float] = field(default_factory=dict)

    @property
    def own(self) -> float:
        return self.words + self.meaning

    @property
    def score(self) -> float:
        score = self.own + self.beside + self.conversation
        for factor in self.factors.values():
            score *= factor
        return score

    @property
    def parts(self) -> dict[str, float]:
        parts = {
            "words": self.words,
            "meaning": self.meaning,
            "beside": self.beside,
            "conversation": self.conversation,
        }
        return {name: value for name, value in parts.items() if value}


def search(
    connection: sqlite3.Connection, viewer: Viewer, wanted: Wanted, now: datetime, compare: Compare | None = None
) -> Sequence[Found]:
    """The best matches that the viewer may see, best first; nothing for a query without words.

    Args:
        compare: finds what is close in meaning; None where the words alone are searched for.
    """
    limit = max(0, min(MOST, wanted.limit))
    query = read_query(wanted.query, connection)
    owners = owners_among(connection, viewer, wanted.among, wanted.scope)
    if not owners or not limit or (not query.expression and compare is None):
        return []
    matches = _matches(connection, query, owners, wanted) if query.expression else {}
    if compare is not None:
        _fuse(connection, matches, owners, compare(connection, owners, wanted.type, matches.keys()))
    _lift_beside(connection, matches, wanted)
    _lift_conversations(matches)
    _prefer_named(matches, query)
    matches = {number: matches[number] for number in tagged(connection, matches, wanted.among.tags)}
    best = sorted(matches.values(), key=lambda match: match.score, reverse=True)
    # strength weighs little, so it is looked up for those only that it could bring into the answer
    found = _weighed(connection, best[: 2 * limit + 10], now)
    return (_each_once(found) if viewer.other_ids else found)[:limit]


def _each_once(found: Sequence[Found]) -> list[Found]:
    """What a person has said under two of their ids, once."""
    first: dict[tuple[str, str, str], Found] = {}
    for each in found:
        trace = each.trace
        first.setdefault((trace.owner.kind, trace.type, trace.content), each)
    return list(first.values())


def _matches(connection: sqlite3.Connection, query: Query, owners: Sequence[int], wanted: Wanted) -> dict[int, _Match]:
    scores: dict[int, float] = {}
    ranked = 0
    filters = IndexFilters(type=wanted.type, tags=wanted.among.tags)
    for index, group in enumerate(query.groups):
        found = best_of(connection, owners, group, more=query.beside(index), filters=filters, limit=CANDIDATES)
        scores |= found.best
        ranked += found.among
        if ranked >= _RANKED_AT_LEAST:
            break
    sql = _PLACES.format(numbers=places([*scores]), owners=places(owners))
    rows = connection.execute(sql, (*scores, *owners))
    return {row["number"]: _match(row, scores[row["number"]]) for row in rows}


def _match(row: sqlite3.Row, score: float) -> _Match:
    is_placed = row["conversation"] is not None and row["position"] is not None
    place = (row["owner"], row["conversation"]) if is_placed else None
    return _Match(row["number"], place, row["position"] or 0, row["speaker"], score)


def _fuse(
    connection: sqlite3.Connection,
    matches: dict[int, _Match],
    owners: Sequence[int],
    close: Mapping[int, Closeness],
) -> None:
    """Add what is close in meaning; words and meaning become shares of their best.

    Where no vector is there to be compared the words stay as they are.
    """
    if not close:
        return
    missing = [number for number in close if number not in matches]
    sql = _PLACES.format(numbers=places(missing), owners=places(owners))
    matches |= {row["number"]: _match(row, 0.0) for row in connection.execute(sql, (*missing, *owners))}
    most = max(match.words for match in matches.values()) or 1.0
    for number, match in matches.items():
        match.words *= (1 - _MEANING) / most
        if number in close:
            match.meaning, match.cosine = _MEANING * close[number].share, close[number].cosine


def _lift_beside(connection: sqlite3.Connection, matches: dict[int, _Match], wanted: Wanted) -> None:
    """Add what stands beside the best matches, and give each its neighbours' weight."""
    best = sorted(matches.values(), key=lambda match: match.own, reverse=True)
    placed = [match for match in best if match.place is not None]
    types = () if wanted.type is None else (wanted.type,)
    sql = _BESIDE_IT.format(filters="AND type = ?" if types else "")
    reach = max(_BESIDE)
    for match in placed[:_WITH_NEIGHBOURS]:
        ends = (match.position - reach, match.position + reach)
        for row in connection.execute(sql, (*(match.place or ()), *ends, *types)):
            matches.setdefault(row["number"], _match(row, 0.0))
    own = {(match.place, match.position): match.own for match in placed}
    for match in matches.values():
        if match.place is not None:
            match.beside = sum(
                weight * (own.get((match.place, match.position + way * far), 0.0))
                for far, weight in _BESIDE.items()
                for way in (-1, 1)
            )


def _lift_conversations(matches: Mapping[int, _Match]) -> None:
    """Give each trace a share of the best matches of its conversation."""
    scores: dict[tuple[int, str], list[float]] = defaultdict(list)
    for match in matches.values():
        if match.place is not None:
            scores[match.place].append(match.own)
    sums = {place: sum(sorted(each, reverse=True)[:_CONVERSATION_BEST]) for place, each in scores.items()}
    for match in matches.values():
        if match.place is not None:
            match.conversation = _CONVERSATION * sums[match.place]


def _prefer_named(matches: Mapping[int, _Match], query: Query) -> None:
    asked = set(query.words)
    names = {match.speaker for match in matches.values() if match.speaker}
    named = {name for name in names if asked.intersection(words_of(name).split())}
    if named and named != names:  # where all are named, nobody is preferred
        for match in matches.values():
            if match.speaker in named:
                match.factors["named"] = _NAMED


def _weighed(connection: sqlite3.Connection, best: Sequence[_Match], now: datetime) -> list[Found]:
    sql = f"{SELECT} WHERE traces.number IN ({places(best)})"
    rows = {row["number"]: row for row in connection.execute(sql, [match.number for match in best])}
    found = []
    for match in best:
        trace = from_row(rows[match.number])
        left = strength.current(trace.strength, trace.stability_ms, trace.last_accessed_at, now)
        match.factors["strength"] = _FADED + (1 - _FADED) * left
        found.append(
            Found(
                trace=trace,
                score=match.score,
                strength=left,
                parts=match.parts,
                factors=match.factors,
                cosine=match.cosine,
            )
        )
    return sorted(found, key=lambda each: each.score, reverse=True)
