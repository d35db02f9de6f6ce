"""What of a memory goes before a model unasked: what has to do with the question, and nothing where nothing has."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from gateway.memory.matching import QUESTION_MARKS
from gateway.memory.query import documents_with, quoted, telling_terms
from gateway.traces.search import MOST, Compare, Found, Wanted, search
from gateway.traces.trace import Viewer

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

_HOLDING = """
    SELECT rowid FROM search
    WHERE search MATCH ? AND rowid IN (SELECT number FROM traces WHERE id IN (SELECT value FROM json_each(?)))
"""
_LAST = "SELECT ifnull(max(number), 0) FROM traces"


def recalled(
    connection: sqlite3.Connection,
    viewer: Viewer,
    question: str,
    now: datetime,
    compare: Compare | None = None,
    *,
    least_cosine: float = 1.0,
) -> Sequence[Found]:
    """What has to do with the question, best first, at most 100.

    Args:
        compare: see `search.search`.
        least_cosine: from which a trace is found by its meaning alone.
    """
    found = search(connection, viewer, Wanted(query=question, limit=MOST, least_share=SHARE_OF_BEST), now, compare)
    best = found[:_LOOKED_AT]
    is_close = any(each.cosine is not None and each.cosine >= least_cosine + _CLOSER for each in best)
    is_for_day = any(mark in question for mark in QUESTION_MARKS) and any("day" in each.parts for each in best)
    if is_close or is_for_day or (best and _held(connection, question, [each.trace.id for each in best]) >= _HELD):
        return found
    return ()


def _held(connection: sqlite3.Connection, question: str, ids: Sequence[str]) -> float:
    """How much of the question's words, by weight, stands in that of the traces that has most of it."""
    (traces,) = connection.execute(_LAST).fetchone()
    weight = 0.0
    held: dict[int, float] = defaultdict(float)
    terms = [f"{{context text}} : ({quoted(term)})" for term in telling_terms(question)]
    for term in terms:
        rarity = math.log(1 + (traces + _ELSEWHERE) / (documents_with(connection, term) + 0.5))
        weight += rarity
        for (number,) in connection.execute(_HOLDING, (term, json.dumps(ids))):
            held[number] += rarity
    return max(held.values(), default=0.0) / (weight * min(1.0, _TERMS / max(1, len(terms))) or 1.0)
