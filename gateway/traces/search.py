"""How traces are found: FTS5 finds those that hold any of the words, and what stands around them is weighed in.

Where there is a vector of the question, traces close to it in meaning are found, too. Words and meaning are each taken
as shares of the best of them and added up. What stands around a trace is weighed in after that, see `matches`; so is
the day that it is of, where the question is about a day.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Protocol

from gateway.memory.days import days_asked_for
from gateway.memory.matching import Match, prefer_days, prefer_speakers
from gateway.memory.query import Query, is_plain, read_query
from gateway.store.payloads import from_ms
from gateway.traces import strength
from gateway.traces.filters import Among, IndexFilters, owners_among, tagged
from gateway.traces.matches import add_matches_of_days, lift_surroundings, match_of, matches_of
from gateway.traces.ranking import best_of
from gateway.traces.rows import SELECT, from_row
from gateway.traces.trace import ScopeKind, Trace, TraceType, Viewer

MOST = 100
_CANDIDATES = 200
_CANDIDATES_FOR_EACH = 4  # of many that are wanted; else a name that is in every other trace takes all places
# The part of the vectors, where there are any; between 0.2 and 0.5 it makes little difference to benchmarks.retrieval.
_MEANING = 0.4
_FADED = 0.95  # what a match without strength is worth

_RANKED_AT_LEAST = 1_000  # more words are looked for until so many traces were ranked
_STRENGTHS = """
    SELECT number, strength, stability_ms, last_accessed_at FROM traces
    WHERE number IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL
"""
_WHOLE = f"{SELECT} WHERE traces.number IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL"  # noqa: S608 (constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is searched for, and among what.

    Attributes:
        least_share: of the best one's score, that each must have.
    """

    query: str
    type: TraceType | None = None
    scope: ScopeKind | None = None
    limit: int = 10
    least_share: float = 0.0
    among: Among = field(default_factory=Among)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A trace that was found.

    Attributes:
        strength: what is left of it now.
        parts: what the score is the sum of, for `--explain`: the words, the meaning, what stands beside, the
            conversation, the day.
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
    close = {} if compare is None else compare(connection, owners, wanted.type, matches.keys())
    _fuse(connection, matches, owners, close)
    days = days_asked_for(wanted.query, now.date()) if is_plain(wanted.query) else None
    of_days = () if days is None else add_matches_of_days(connection, matches, owners, days, wanted.type)
    lift_surroundings(connection, matches, wanted.type)
    prefer_speakers(matches.values(), query)
    if days is not None:
        prefer_days([matches[number] for number in of_days], matches.values(), days)
    tagged_matches = (matches[number] for number in tagged(connection, matches, wanted.among.tags))
    best = sorted(tagged_matches, key=attrgetter("score"), reverse=True)
    # strength weighs little, so it is looked up for those only that it could bring into the answer
    best = _by_strength(connection, _with_share(best[: 2 * limit + 10], _FADED * wanted.least_share), now)
    best = _with_share(best, wanted.least_share)
    if viewer.other_ids:
        return _each_once(_found(connection, best, now))[:limit]
    return _found(connection, best[:limit], now)


def _each_once(found: Sequence[Found]) -> list[Found]:
    """What a person has said under two of their ids, once."""
    first: dict[tuple[str, str, str], Found] = {}
    for each in found:
        trace = each.trace
        first.setdefault((trace.owner.kind, trace.type, trace.content), each)
    return list(first.values())


def _matches(connection: sqlite3.Connection, query: Query, owners: Sequence[int], wanted: Wanted) -> dict[int, Match]:
    matches: dict[int, Match] = {}
    ranked = 0
    filters = IndexFilters(type=wanted.type, tags=wanted.among.tags)
    candidates = max(_CANDIDATES, _CANDIDATES_FOR_EACH * min(MOST, wanted.limit))
    for index, group in enumerate(query.groups):
        found = best_of(
            connection,
            owners,
            group,
            more=query.beside(index),
            filters=filters,
            limit=candidates,
            documents=query.documents,
        )
        matches |= {row[0]: match_of(row, row["score"]) for row in found.best}
        ranked += found.among
        if ranked >= _RANKED_AT_LEAST:
            break
    return dict(sorted(matches.items()))


def _fuse(
    connection: sqlite3.Connection,
    matches: dict[int, Match],
    owners: Sequence[int],
    close: Mapping[int, Closeness],
) -> None:
    """Make words and meaning shares of the best of them, and add what is close in meaning alone.

    Where no vector is there to be compared the words are all there is. What BM25 gives says nothing by itself: in a
    memory of a few facts it is next to nothing for all of them.
    """
    if close:
        matches |= matches_of(connection, close.keys() - matches.keys(), owners)
    most = max((match.words for match in matches.values()), default=0.0) or 1.0
    share = (1 - _MEANING if close else 1.0) / most
    for match in matches.values():
        match.words *= share
        if match.number in close:
            match.meaning, match.cosine = _MEANING * close[match.number].share, close[match.number].cosine


def _with_share(best_first: list[Match], share: float) -> list[Match]:
    """Those that have such a share of the best one's score."""
    return [match for match in best_first if match.score >= share * best_first[0].score] if share else best_first


def _by_strength(connection: sqlite3.Connection, best: Sequence[Match], now: datetime) -> list[Match]:
    rows = connection.execute(_STRENGTHS, (json.dumps([match.number for match in best]),))
    left = {number: strength.current(kept, stability, from_ms(at), now) for number, kept, stability, at in rows}
    there = [match for match in best if match.number in left]  # others were deleted since they were found
    for match in there:
        match.factors["strength"] = _FADED + (1 - _FADED) * left[match.number]
    return sorted(there, key=attrgetter("score"), reverse=True)


def _found(connection: sqlite3.Connection, best: Sequence[Match], now: datetime) -> list[Found]:
    rows = connection.execute(_WHOLE, (json.dumps([match.number for match in best]),))
    traces = {row["number"]: from_row(row) for row in rows}
    return [
        Found(
            trace=trace,
            score=match.score,
            strength=strength.current(trace.strength, trace.stability_ms, trace.last_accessed_at, now),
            parts=match.parts,
            factors=match.factors,
            cosine=match.cosine,
        )
        for match in best
        if (trace := traces.get(match.number)) is not None
    ]
