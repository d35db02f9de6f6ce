"""How alike two traces are: by their embeddings where both have one of the same model, else by their words."""

from __future__ import annotations

import math
import sqlite3
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from gateway.memory.traces.ranking import best_of, documents_with
from gateway.memory.traces.rows import SELECT, Kept, kept
from gateway.memory.traces.trace import Trace
from gateway.store.words import words_of

CANDIDATES = 20
_TELLING_WORDS = 8
_LOOKED_AT = 500


@dataclass(frozen=True, slots=True)
class Similar:
    """A trace like another, and how much: 1 is the same."""

    kept: Kept
    similarity: float


def similar_to(connection: sqlite3.Connection, owner: int, trace: Trace, *, above: float) -> list[Similar]:
    """The owner's traces that are alike, the most similar first; the trace itself is not among them."""
    found = [
        Similar(other, how_alike)
        for other in _near(connection, owner, trace, above)
        if other.trace.id != trace.id and (how_alike := similarity(trace, other.trace)) > above
    ]
    return sorted(found, key=lambda each: each.similarity, reverse=True)


def similarity(one: Trace, other: Trace) -> float:
    """From 0 to 1: the cosine of the embeddings, or the share of words that both have of those that either has."""
    if one.embedding and other.embedding and one.embedding_model == other.embedding_model:
        return max(0.0, cosine(one.embedding, other.embedding))
    return shared_words(words_of(one.content).split(), words_of(other.content).split())


def shared_words(one: Collection[str], other: Collection[str]) -> float:
    """Jaccard's index of the two sets of words; 1 for two texts without words."""
    first, second = set(one), set(other)
    either = first | second
    return len(first & second) / len(either) if either else 1.0


def cosine(one: bytes, other: bytes) -> float:
    """Of two float16 vectors; 0 where their lengths differ or one is nothing."""
    first, second = _floats(one), _floats(other)
    if len(first) != len(second):
        return 0.0
    product = math.fsum(x * y for x, y in zip(first, second, strict=True))
    size = math.sqrt(math.fsum(x * x for x in first) * math.fsum(y * y for y in second))
    return product / size if size else 0.0


def _floats(embedding: bytes) -> Sequence[float]:
    return struct.unpack(f"<{len(embedding) // 2}e", embedding[: len(embedding) // 2 * 2])


def _near(connection: sqlite3.Connection, owner: int, trace: Trace, above: float) -> Iterator[Kept]:
    """Those that share the words which are in the fewest traces."""
    words = list(dict.fromkeys(words_of(trace.content).split()))
    if not words:
        return
    wanted = _rarest(connection, words, _enough(len(words), 0.0 if trace.embedding else above))
    expression = " OR ".join(wanted)
    found = best_of(connection, (owner,), expression, context_weight=0.0, limit=CANDIDATES)
    for number, _ in found.best:
        row = connection.execute(f"{SELECT} WHERE traces.number = ? AND deleted_at IS NULL", (number,)).fetchone()
        if row is not None:
            yield kept(row)


def _enough(words: int, above: float) -> int:
    """Of how many words, whichever they are, two texts share one if they share more than that part of all.

    Whoever leaves out as many as this has too few left to be so alike: Chaudhuri, Ganti and Kaushik, A Primitive
    Operator for Similarity Joins in Data Cleaning (2006). The rarest find the fewest others.
    """
    return min(_TELLING_WORDS, words - math.floor(above * words))


def _rarest(connection: sqlite3.Connection, words: Sequence[str], count: int) -> list[str]:
    """So many of the words, quoted: those in the fewest traces."""
    if len(words) <= count:
        return [f'"{word}"' for word in words]
    quoted = [f'"{word}"' for word in words]
    documents = {word: documents_with(connection, word, looked_at=_LOOKED_AT) for word in quoted}
    return sorted(quoted, key=lambda word: documents[word])[:count]
