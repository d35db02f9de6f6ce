"""How traces are found: FTS5 finds those that hold any of the words, and the traces around them count as well.

Where there is a vector of the question, traces close to it in meaning are found, too. Words and meaning are each taken
as shares of the best of them and added up. The traces around a match are weighed in after that; so is the day of a
trace, where the question is about a day. `recall` keeps what has to do with a message that was no search.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from operator import attrgetter
from typing import TYPE_CHECKING

from gateway.memory.days import Days, days_asked_for
from gateway.memory.matching import QUESTION_MARKS, REACH, Match, lift, prefer_days, prefer_speakers
from gateway.memory.query import Query, is_plain, quoted, read_query, telling_terms
from gateway.store.engine import Connection, Row
from gateway.store.payloads import from_ms, to_ms
from gateway.traces import strength
from gateway.traces.filters import TraceFilter, filtered_owners, with_tags
from gateway.traces.ranking import index_of
from gateway.traces.rows import SELECT, from_row, visible
from gateway.traces.trace import ScopeKind, Trace, TraceType, Viewer
from gateway.traces.word_index import PLACED, IndexFilters, WordIndex

if TYPE_CHECKING:
    from gateway.traces.vectors import QueryVector  # which loads numpy

MOST = 100
_CANDIDATES = 200
_CANDIDATES_FOR_EACH = 4  # of many that are wanted; else a name that is in every other trace takes all places
# The part of the vectors, where there are any; between 0.2 and 0.5 it makes little difference to benchmarks.retrieval.
_MEANING = 0.4
_FADED = 0.95  # what a match without strength is worth

_RANKED_AT_LEAST = 1_000  # more words are looked for until so many traces were ranked
_STRENGTHS = """
    SELECT number, strength, stability_ms, last_accessed_at FROM traces
    WHERE number IN (SELECT CAST(value AS bigint) FROM json_each(?)) AND deleted_at IS NULL
"""
_WHOLE = f"{SELECT} WHERE traces.number IN (SELECT CAST(value AS bigint) FROM json_each(?)) AND deleted_at IS NULL"  # noqa: S608 (constants)
_WITH_NEIGHBOURS = 20
_OF_DAYS_AT_MOST = 100

_ASKS = " OR ".join(f"instr(content, '{mark}') > 0" for mark in QUESTION_MARKS)
# Of constant text, so that they are prepared once. The plus keeps SQLite from the indexes by owner, of whose traces it
# would look at every one.
_PLACES = f"""
    SELECT {PLACED} FROM traces
    WHERE number IN (SELECT CAST(value AS bigint) FROM json_each(?))
        AND +owner IN (SELECT CAST(value AS bigint) FROM json_each(?)) AND deleted_at IS NULL
"""  # noqa: S608 (constants)
_ON_DAYS = f"""
    SELECT {PLACED} FROM json_each(?1) AS given JOIN traces ON traces.owner = CAST(given.value AS bigint)
    WHERE traces.created_at BETWEEN ?2 AND ?3 AND traces.deleted_at IS NULL
        AND (CAST(?4 AS text) IS NULL OR traces.type = ?4)
    ORDER BY traces.number IN (SELECT CAST(value AS bigint) FROM json_each(?5)) DESC, traces.created_at DESC
    LIMIT {_OF_DAYS_AT_MOST}
"""  # noqa: S608 (constants)
_BESIDE_THEM = f"""
    SELECT {PLACED} FROM json_each(?) AS given JOIN traces AS best ON best.number = CAST(given.value AS bigint)
    JOIN traces ON traces.owner = best.owner AND traces.conversation = best.conversation
        AND traces.position BETWEEN best.position - {REACH} AND best.position + {REACH}
    WHERE traces.deleted_at IS NULL AND (CAST(?2 AS text) IS NULL OR traces.type = ?2)
"""  # noqa: S608 (constants)
_ASKING = f"SELECT number FROM traces WHERE number IN (SELECT CAST(value AS bigint) FROM json_each(?)) AND ({_ASKS})"  # noqa: S608 (constants)
SHARE_OF_BEST = 0.15
"""A fact with less of the best one's score is left out; benchmarks.retrieval prints what that costs."""
# What a question is made of must be in one fact, by weight, to that share, or a fact must be of a day that it asks for;
# else nothing is about it. Measured on LongMemEval's questions and small talk: 98 of 100 questions pass; of other
# messages to a small memory 4 of 10 do not.
_HELD = 0.2
_CLOSER = 0.1  # than what a fact is found from by its meaning
_LOOKED_AT = 3
_TERMS = 8  # of a long message only a part is the question
_ELSEWHERE = 1_000  # facts without the word, so that words of a small memory weigh alike


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuery:
    """What is searched for, and among what.

    Attributes:
        least_share: of the best one's score, that each must have.
    """

    query: str
    type: TraceType | None = None
    scope: ScopeKind | None = None
    limit: int = 10
    least_share: float = 0.0
    among: TraceFilter = field(default_factory=TraceFilter)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTrace:
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


def search(
    connection: Connection, viewer: Viewer, wanted: TraceQuery, now: datetime, vector: QueryVector | None = None
) -> Sequence[ScoredTrace]:
    """The best matches that the viewer may see, best first; nothing for a query without words.

    Args:
        vector: of the query; None where the words alone are searched for.
    """
    limit = max(0, min(MOST, wanted.limit))
    owners = filtered_owners(connection, viewer, wanted.among, wanted.scope)
    index = index_of(connection)
    query = read_query(wanted.query, index.counts(owners))
    if not owners or not limit or (not query.expression and vector is None):
        return []
    matches = _matches(index, query, owners, wanted) if query.expression else {}
    close = {} if vector is None else vector.compare(connection, owners, wanted.type, matches.keys())
    _fuse(connection, matches, owners, close)
    days = days_asked_for(wanted.query, now.date()) if is_plain(wanted.query) else None
    of_days = () if days is None else add_matches_of_days(connection, matches, owners, days, wanted.type)
    lift_surroundings(connection, matches, wanted.type)
    prefer_speakers(matches.values(), query)
    if days is not None:
        prefer_days([matches[number] for number in of_days], matches.values(), days)
    tagged_matches = (matches[number] for number in with_tags(connection, matches, wanted.among.tags))
    best = sorted(tagged_matches, key=attrgetter("score"), reverse=True)
    # strength weighs little, so it is looked up for those only that it could bring into the answer
    best = _by_strength(connection, _with_share(best[: 2 * limit + 10], _FADED * wanted.least_share), now)
    best = _with_share(best, wanted.least_share)
    if viewer.other_ids:
        return _each_once(_found(connection, best, now))[:limit]
    return _found(connection, best[:limit], now)


def _each_once(found: Sequence[ScoredTrace]) -> list[ScoredTrace]:
    """What a person has said under two of their ids, once."""
    first: dict[tuple[str, str, str], ScoredTrace] = {}
    for each in found:
        trace = each.trace
        first.setdefault((trace.owner.kind, trace.type, trace.content), each)
    return list(first.values())


def _matches(words: WordIndex, query: Query, owners: Sequence[int], wanted: TraceQuery) -> dict[int, Match]:
    matches: dict[int, Match] = {}
    ranked = 0
    filters = IndexFilters(type=wanted.type, tags=wanted.among.tags)
    candidates = max(_CANDIDATES, _CANDIDATES_FOR_EACH * min(MOST, wanted.limit))
    for index, group in enumerate(query.groups):
        found = words.best(
            owners,
            group,
            more=query.beside(index),
            filters=filters,
            limit=candidates,
            documents=query.documents,
        )
        matches |= {row[0]: match_of(row, score) for row, score in found.best}
        ranked += found.among
        if ranked >= _RANKED_AT_LEAST:
            break
    return dict(sorted(matches.items()))


def _fuse(
    connection: Connection,
    matches: dict[int, Match],
    owners: Sequence[int],
    close: Mapping[int, Closeness],
) -> None:
    """Make words and meaning shares of the best of them, and add what is close in meaning alone.

    Where no vector is there to be compared the words are all there is. A BM25 score means nothing alone: in a memory
    of a few facts it is close to 0 for all of them.
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


def _by_strength(connection: Connection, best: Sequence[Match], now: datetime) -> list[Match]:
    rows = connection.execute(_STRENGTHS, (json.dumps([match.number for match in best]),))
    left = {number: strength.current(kept, stability, from_ms(at), now) for number, kept, stability, at in rows}
    there = [match for match in best if match.number in left]  # others were deleted since they were found
    for match in there:
        match.factors["strength"] = _FADED + (1 - _FADED) * left[match.number]
    return sorted(there, key=attrgetter("score"), reverse=True)


def _found(connection: Connection, best: Sequence[Match], now: datetime) -> list[ScoredTrace]:
    rows = connection.execute(_WHOLE, (json.dumps([match.number for match in best]),))
    traces = {row["number"]: from_row(row) for row in rows}
    return [
        ScoredTrace(
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


def matches_of(connection: Connection, numbers: Iterable[int], owners: Sequence[int]) -> dict[int, Match]:
    """The owners' traces of these numbers."""
    rows = connection.execute(_PLACES, (json.dumps([*numbers]), json.dumps([*owners])))
    return {row[0]: match_of(row) for row in rows}


def match_of(row: Row, words: float = 0.0) -> Match:
    """The trace of a row that begins with `PLACED`, with what it has of the words."""
    place = None if row[2] is None or row[3] is None else (row[1], row[2])
    return Match(row[0], place, row[3] or 0, row[4], words)


def add_matches_of_days(
    connection: Connection,
    matches: dict[int, Match],
    owners: Sequence[int],
    days: Days,
    type_: TraceType | None,
) -> Collection[int]:
    """Add the owners' newest traces of some days to the matches that are of them; the numbers of both together."""
    first, last = to_ms(datetime.combine(days.first, time.min, UTC)), to_ms(datetime.combine(days.last, time.max, UTC))
    values = (json.dumps([*owners]), first, last, type_, json.dumps([*matches]))
    rows = connection.execute(_ON_DAYS, values).fetchall()
    for row in rows:
        matches.setdefault(row[0], match_of(row))
    return [row[0] for row in rows]


def lift_surroundings(connection: Connection, matches: dict[int, Match], type_: TraceType | None) -> None:
    """Add the neighbours of the best matches, and weigh the matches of each conversation by each other."""
    placed = sorted((each for each in matches.values() if each.place is not None), key=attrgetter("own"), reverse=True)
    best = json.dumps([each.number for each in placed[:_WITH_NEIGHBOURS]])
    for row in connection.execute(_BESIDE_THEM, (best, type_)) if placed else ():
        if row[0] not in matches:
            matches[row[0]] = match_of(row)

    def asking(numbers: Sequence[int]) -> Collection[int]:
        return {row[0] for row in connection.execute(_ASKING, (json.dumps(numbers),))}

    lift(matches.values(), asking)


def recall(
    connection: Connection, viewer: Viewer, question: str, now: datetime, vector: QueryVector | None = None
) -> Sequence[ScoredTrace]:
    """What has to do with the question, best first, at most 100; with its vector as in `search`."""
    found = search(connection, viewer, TraceQuery(query=question, limit=MOST, least_share=SHARE_OF_BEST), now, vector)
    best = found[:_LOOKED_AT]
    cosines = [each.cosine for each in best if each.cosine is not None]
    is_close = vector is not None and max(cosines, default=0.0) >= vector.least + _CLOSER
    is_for_day = any(mark in question for mark in QUESTION_MARKS) and any("day" in each.parts for each in best)
    if (
        is_close
        or is_for_day
        or (best and _held(connection, viewer, question, [each.trace.id for each in best]) >= _HELD)
    ):
        return found
    return ()


def _held(connection: Connection, viewer: Viewer, question: str, ids: Sequence[str]) -> float:
    """How much of the question's words, by weight, stands in that of the traces that has most of it."""
    index = index_of(connection)
    counts = index.counts(visible(connection, viewer))
    traces = counts.texts()
    weight = 0.0
    held: dict[int, float] = defaultdict(float)
    terms = [*map(quoted, telling_terms(question))]
    for term in terms:
        rarity = math.log(1 + (traces + _ELSEWHERE) / (counts.documents_with(term) + 0.5))
        weight += rarity
        for number in index.holding(term, ids):
            held[number] += rarity
    return max(held.values(), default=0.0) / (weight * min(1.0, _TERMS / max(1, len(terms))) or 1.0)
