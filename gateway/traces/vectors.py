"""Vectors of traces: float16, stored with their content; vectors of questions, and the search for what is close to one.

The only module that needs numpy, which comes with the extra `embeddings`; imported when embeddings are configured.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import structlog
from numpy.typing import NDArray

from gateway.agent.model import Spender
from gateway.agent.providers.embeddings import MeteredEmbedder
from gateway.errors import ConfigError, ModelError, StoreError
from gateway.memory.query import is_plain
from gateway.store.engine import Connection
from gateway.traces.rows import places
from gateway.traces.search import Closeness
from gateway.traces.search_words import signature_of
from gateway.traces.trace import TraceType, Viewer

CLOSEST = 100
SHORTLIST = 300
"""Up to so many vectors all are compared; of more, those whose signatures are the most like the question's."""
SHORTLIST_OF_SERVER = 1_000
"""The same where the server chooses them."""
_AT_ONCE = 4_096  # rows
# So many vectors of cosine 0 are added to the mean, which says little where there are few.
_ASSUMED = 20

# An array, of which the server knows how many facts it leaves: after a list out of JSON it reads those of everybody.
_NEAREST = """
    WITH compared AS MATERIALIZED (
        SELECT number, bit_count(signature # CAST(:question AS bit varying)) AS differing FROM signatures
        WHERE owner = ANY(CAST(:owners AS bigint[])) AND model = :model AND length(signature) = :bits {filters}
    )
    SELECT number, (SELECT count(*) FROM compared) AS among,
        (SELECT sum(cos(pi() * differing / :bits)) FROM compared) AS estimated
    FROM compared ORDER BY differing, number LIMIT :most
"""
_SIGNATURES = """
    SELECT number, signature FROM signatures
    WHERE owner IN ({owners}) AND model = ? AND length(signature) = ? {filters}
"""
_OF_TYPE = "AND (SELECT type FROM traces WHERE traces.number = signatures.number) = {}"
# The plus, and what is added to the model, keep SQLite from other indexes than that of the numbers.
_VECTORS = """
    SELECT number, embedding FROM traces
    WHERE number IN (SELECT CAST(value AS bigint) FROM json_each(?)) AND +owner IN ({owners})
        AND embedding_model || '' = ?
        AND length(embedding) = ? AND deleted_at IS NULL
"""

QUERY_CHARS = 2_000
PAUSE_S = 30.0
"""After a failure the words alone are searched for so long, so that not every turn waits in vain."""
_KEPT = 256

_log = structlog.get_logger(__name__)


def as_blob(vector: Sequence[float]) -> bytes:
    """Of length 1, as little-endian float16: half the room of float32, and the same order of results."""
    floats = np.asarray(vector, dtype=np.float64)
    return bytes((floats / np.linalg.norm(floats)).astype("<f2").tobytes())


@dataclass(frozen=True, slots=True)
class QueryVector:
    """What a question means, and how it is compared.

    Attributes:
        model: only vectors that it made are compared.
        least: a trace that shares no word with the question must have this cosine at least.
    """

    model: str
    blob: bytes
    least: float

    def compare(
        self, connection: Connection, owners: Sequence[int], type_: TraceType | None, words: Collection[int]
    ) -> Mapping[int, Closeness]:
        """How close to the question the closest traces of the owners are, and those in `words`, by their numbers.

        All signatures of the owners are looked at, in pieces, and the vectors of the most like; so time and memory
        stay small. Measured with MiniLM's vectors, see `benchmarks.retrieval`.
        """
        near = self._nearest_at_server if connection.dialect.is_shared else self._nearest
        numbers, among, estimated = near(connection, owners, type_, words)
        compared, cosines = self._compared(connection, owners, numbers)
        if not compared.size:
            return {}
        total = float(cosines.sum()) if estimated is None else estimated
        usual = total / ((compared.size if estimated is None else among) + _ASSUMED)
        span = max(float(cosines.max()) - usual, 1e-6)
        order = np.argsort(-cosines)[:CLOSEST]
        close = np.union1d(order[cosines[order] >= self.least], np.flatnonzero(np.isin(compared, list(words))))
        return {
            int(compared[index]): Closeness(
                cosine=float(cosines[index]), share=max(0.0, (float(cosines[index]) - usual) / span)
            )
            for index in close
        }

    def _nearest(
        self, connection: Connection, owners: Sequence[int], type_: TraceType | None, words: Collection[int]
    ) -> tuple[Sequence[int], int, float | None]:
        """Which are compared, by number, among how many, and the sum of all cosines, about; None: all are compared."""
        numbers, estimates = self._estimated(connection, owners, type_)
        if numbers.size <= SHORTLIST:
            return numbers.tolist(), numbers.size, None
        in_words = np.flatnonzero(np.isin(numbers, list(words)))
        chosen = np.union1d(np.argpartition(estimates, -SHORTLIST)[-SHORTLIST:], in_words)
        return numbers[chosen].tolist(), numbers.size, float(estimates.sum())

    def _nearest_at_server(
        self, connection: Connection, owners: Sequence[int], type_: TraceType | None, words: Collection[int]
    ) -> tuple[Sequence[int], int, float | None]:
        """The same, where the server counts the signs that differ."""
        bits = len(self.blob) // 2
        values = {
            "question": f"{int.from_bytes(signature_of(self.blob), 'big'):0{bits}b}",
            "owners": [*owners],
            "model": self.model,
            "bits": bits,
            "type": type_,
            "most": SHORTLIST_OF_SERVER,
        }
        sql = _NEAREST.format(filters=_OF_TYPE.format(":type") if type_ else "")
        rows = connection.execute(sql, values).fetchall()
        if not rows:
            return (), 0, None
        among = int(rows[0]["among"])
        numbers = [*{*(int(row["number"]) for row in rows), *words}]
        return numbers, among, None if among == len(rows) else float(rows[0]["estimated"])

    def _estimated(
        self, connection: Connection, owners: Sequence[int], type_: TraceType | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """All numbers, and about what their cosines are: the share of equal signs is the angle (Charikar, 2002)."""
        question = np.frombuffer(signature_of(self.blob), np.uint8)
        types = () if type_ is None else (type_,)
        sql = _SIGNATURES.format(owners=places(owners), filters=_OF_TYPE.format("?") if types else "")
        cursor = connection.execute(sql, (*owners, self.model, question.size, *types))
        numbers, differing = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        while rows := cursor.fetchmany(_AT_ONCE):
            signatures = np.frombuffer(b"".join(row[1] for row in rows), np.uint8).reshape(len(rows), question.size)
            numbers.append(np.fromiter((row[0] for row in rows), np.int64, len(rows)))
            differing.append(np.bitwise_count(signatures ^ question).sum(axis=1, dtype=np.float32))
        angles = np.concatenate(differing) * np.float32(np.pi / (len(self.blob) // 2))
        return np.concatenate(numbers), np.cos(angles)

    def _compared(
        self, connection: Connection, owners: Sequence[int], numbers: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Those that have a vector of the question's length, and their cosines."""
        question = np.frombuffer(self.blob, "<f2").astype(np.float32)
        sql = _VECTORS.format(owners=places(owners))
        rows = connection.execute(sql, (json.dumps(numbers), *owners, self.model, len(self.blob))).fetchall()
        matrix = np.frombuffer(b"".join(row[1] for row in rows), "<f2").reshape(len(rows), question.size)
        return np.fromiter((row[0] for row in rows), np.int64, len(rows)), matrix.astype(np.float32) @ question


class QueryVectors:
    """Asks for the vectors of questions, and remembers the last ones."""

    def __init__(
        self,
        embedder: MeteredEmbedder,
        *,
        timeout_s: float,
        least: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is asked yet; see `QueryVector` for `least`."""
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._least = least
        self._now_s = now_s
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._silent_until_s = float("-inf")
        self.problem: str | None = None

    async def embed(self, viewer: Viewer, question: str) -> QueryVector | None:
        """The question's vector; None where the words alone count: it is an expression, or there is no answer in time.

        `problem` says why there was none, for people.
        """
        text = question.strip()[:QUERY_CHARS]
        if not text or not is_plain(text):
            return None
        try:
            model = self._embedder.identity
        except ConfigError as error:
            self._fell_silent(error)
            return None
        blob = self._known.get((model, text))
        if blob is None:
            if self._now_s() < self._silent_until_s:
                return None
            blob = await self._asked(viewer, text)
            if blob is None:
                return None
            self._known[model, text] = blob
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end((model, text))
        return QueryVector(model, blob, self._least)

    async def _asked(self, viewer: Viewer, text: str) -> bytes | None:
        spender = Spender(user_id=viewer.user_id or "", personality_id=viewer.personality_id)
        try:
            async with asyncio.timeout(self._timeout_s):
                embedded = await self._embedder.embed([text], spender)
        except TimeoutError:
            self._fell_silent(TimeoutError(f"no vector of the question within {self._timeout_s:g} s"))
            return None
        except (ModelError, StoreError) as error:
            self._fell_silent(error)
            return None
        if self.problem is not None:
            _log.info("search_by_meaning_again")
        self.problem = None
        return as_blob(embedded.vectors[0])

    def _fell_silent(self, error: Exception) -> None:
        if self.problem is None:
            _log.warning("search_by_words_alone", error=str(error))
        self.problem = str(error)
        self._silent_until_s = self._now_s() + PAUSE_S
