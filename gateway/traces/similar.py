"""How alike two traces are: by their embeddings where both have one of the same model, else by their words."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gateway.memory.tokenizer import words_of
from gateway.store.engine import Connection, Row
from gateway.traces.ranking import index_of
from gateway.traces.rows import SELECT, StoredTrace, places, stored_trace
from gateway.traces.search_words import said_in
from gateway.traces.trace import Trace
from gateway.traces.word_index import WordIndex

CANDIDATES = 20
_TELLING_WORDS = 8
_COMPARED_AT_MOST = 60
_FEW = 8


@dataclass(frozen=True, slots=True)
class Similar:
    """A trace like another, and how much: 1 is the same."""

    stored: StoredTrace
    similarity: float


def similar_to(connection: Connection, owner: int, trace: Trace, *, above: float) -> list[Similar]:
    """The owner's traces that are alike, the most similar first; the trace itself is not among them."""
    words = words_of(trace.content).split()
    found = []
    for row in _near(connection, owner, said_in(trace.content).split(), 0.0 if trace.embedding else above):
        how_alike = _similarity(trace, words, row)
        if row["id"] != trace.id and how_alike > above:
            found.append(Similar(stored_trace(row), how_alike))
    return sorted(found, key=lambda each: each.similarity, reverse=True)


def _similarity(trace: Trace, words: Collection[str], row: Row) -> float:
    """From 0 to 1: the cosine of the embeddings, or the share of words that both have of those that either has."""
    if trace.embedding and row["embedding"] and trace.embedding_model == row["embedding_model"]:
        return max(0.0, cosine(trace.embedding, row["embedding"]))
    return shared_words(words, words_of(row["content"]).split())


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


def _near(connection: Connection, owner: int, words: Sequence[str], above: float) -> Sequence[Row]:
    """The rows of those that share the words which are in the fewest traces."""
    words = list(dict.fromkeys(words))
    index = index_of(connection)
    holders = _rarest(index, owner, words, _enough(len(words), above))
    numbers = {number for each in holders.values() for number in each}
    if len(numbers) > _COMPARED_AT_MOST:  # only then they must be ranked, which costs many times as much
        found = index.best((owner,), " OR ".join(holders), context_weight=0.0, limit=CANDIDATES)
        numbers = {int(row["number"]) for row, _ in found.best}
    sql = f"""
        {SELECT} WHERE traces.number IN ({places([*numbers])}) AND +owner = ? AND deleted_at IS NULL
        ORDER BY traces.number
    """
    return connection.execute(sql, (*numbers, owner)).fetchall()


def _enough(words: int, above: float) -> int:
    """Of how many words, whichever they are, two texts share one if they share more than that part of all.

    A text without any of these words has too few words left to be so alike: Chaudhuri, Ganti and Kaushik, A Primitive
    Operator for Similarity Joins in Data Cleaning (2006). The rarest find the fewest others.
    """
    return min(_TELLING_WORDS, words - math.floor(above * words))


def _rarest(index: WordIndex, owner: int, words: Sequence[str], count: int) -> Mapping[str, Sequence[int]]:
    """So many of the words, quoted, with the traces that hold them: those in the fewest traces, more or less.

    Long words are rare as a rule, so they are looked up first, and the others only until enough are found. Of a word
    in many traces only some are given: more than are compared.
    """
    few: dict[str, Sequence[int]] = {}
    many: dict[str, Sequence[int]] = {}
    for word in sorted(words, key=len, reverse=True):
        if len(few) == count:
            break
        holders = index.holders(owner, word, _COMPARED_AT_MOST + 1)
        (few if len(holders) <= _FEW else many)[f'"{word}"'] = holders
    rest = sorted(many.items(), key=lambda each: len(each[1]))[: count - len(few)]
    return {**few, **dict(rest)}
