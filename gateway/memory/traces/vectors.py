"""Vectors of traces: float16 beside the content they were made from, and which of them lie close to a question's.

The only module that needs numpy, which comes with the extra `embeddings`; imported when embeddings are configured.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.memory.traces.rows import places
from gateway.memory.traces.search import Closeness
from gateway.memory.traces.trace import TraceType

CLOSEST = 100
_AT_ONCE = 4_096  # rows: three megabytes of MiniLM's vectors
# So many vectors of cosine 0 are added to the mean, which says little where there are few.
_ASSUMED = 20

_OF_OWNERS = """
    SELECT number, embedding FROM traces INDEXED BY traces_to_compare
    WHERE owner IN ({owners}) AND embedding_model = ? AND length(embedding) = ?
        AND deleted_at IS NULL AND embedding IS NOT NULL {filters}
"""


def as_blob(vector: Sequence[float]) -> bytes:
    """Of length 1, as little-endian float16: half the room of float32, and the same order of results."""
    floats = np.asarray(vector, dtype=np.float64)
    return bytes((floats / np.linalg.norm(floats)).astype("<f2").tobytes())


@dataclass(frozen=True, slots=True)
class QueryVector:
    """What a question means, and how it is compared; see `search.Compare`.

    Attributes:
        model: only vectors that it made are compared.
        least: a trace that shares no word with the question must have this cosine at least.
    """

    model: str
    blob: bytes
    least: float

    def compare(
        self, connection: sqlite3.Connection, owners: Sequence[int], type_: TraceType | None, words: Collection[int]
    ) -> Mapping[int, Closeness]:
        """How close to the question the closest traces of the owners are, and those in `words`, by their numbers.

        Every vector of the owners is looked at, in pieces, so that the memory is bounded and nothing is missed.
        """
        question = np.frombuffer(self.blob, "<f2").astype(np.float32)
        numbers, cosines = self._all_cosines(connection, owners, type_, question)
        if not numbers.size:
            return {}
        closest = np.argpartition(cosines, -CLOSEST)[-CLOSEST:] if cosines.size > CLOSEST else np.arange(cosines.size)
        chosen = np.union1d(closest[cosines[closest] >= self.least], np.flatnonzero(np.isin(numbers, list(words))))
        usual = float(cosines.sum()) / (cosines.size + _ASSUMED)
        span = max(float(cosines.max()) - usual, 1e-6)
        return {
            int(numbers[index]): Closeness(
                cosine=float(cosines[index]), share=max(0.0, (float(cosines[index]) - usual) / span)
            )
            for index in chosen
        }

    def _all_cosines(
        self,
        connection: sqlite3.Connection,
        owners: Sequence[int],
        type_: TraceType | None,
        question: NDArray[np.float32],
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        types = () if type_ is None else (type_,)
        sql = _OF_OWNERS.format(owners=places(owners), filters="AND type = ?" if types else "")
        cursor = connection.execute(sql, (*owners, self.model, len(self.blob), *types))
        cursor.row_factory = None  # plain tuples: a hundred thousand of them
        numbers, cosines = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        while rows := cursor.fetchmany(_AT_ONCE):
            matrix = np.frombuffer(b"".join(row[1] for row in rows), "<f2").reshape(len(rows), question.size)
            numbers.append(np.fromiter((row[0] for row in rows), np.int64, len(rows)))
            cosines.append(matrix.astype(np.float32) @ question)
        return np.concatenate(numbers), np.concatenate(cosines)
