"""Makes the vectors of traces in the background: in batches, with back-off, never in the way of a reply.

The job is what the trace store lacks: a trace without a vector of the present model, because it is new, was edited, or
the model was changed. So nothing can be lost by a crash, and nothing is done twice but the batch that was under way.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from gateway.agent.model import Spender
from gateway.agent.providers.embeddings import MeteredEmbedder
from gateway.errors import BudgetExhausted, ConfigError, ModelRefused, ModelUnavailable, StoreError
from gateway.runtime.backoff import delay_s
from gateway.store.engine import Connection
from gateway.store.leases import SqlLeases
from gateway.traces.lacking import count_lacking, next_lacking
from gateway.traces.trace_store import TraceStore
from gateway.traces.vectors import as_blob

FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 600.0
LOOK_AGAIN_S = 60.0
"""Others write into the trace store, too: an import, a tool on the command line."""
LONGEST_TEXT_CHARS = 16_000
"""Of a longer trace the beginning is embedded: 8 192 tokens is what the usual models read."""
BATCH_CHARS = 400_000
"""Of all texts of a call; OpenAI takes 300 000 tokens."""
_SHORTEST_TRY_CHARS = 200
_LEASE = "traces:vectors"
_CAREFUL_FROM = 3  # failures in a row: then each text is tried alone, lest one of them keep all others waiting

# What was edited or deleted meanwhile is left as it is: it has another hash, and its turn comes.
_KEEP = """
    UPDATE traces SET embedding = ?, embedding_model = ? WHERE number = ? AND content_hash = ? AND deleted_at IS NULL
"""
_REFUSED = """
    INSERT INTO unembeddable (number, model, content_hash, reason)
    SELECT number, ?, content_hash, ? FROM traces WHERE number = ? AND content_hash = ?
    ON CONFLICT (number) DO UPDATE
    SET model = excluded.model, content_hash = excluded.content_hash, reason = excluded.reason
"""
_OTHER_LENGTH = """
    UPDATE traces SET embedding = NULL, embedding_model = NULL
    WHERE embedding_model = ? AND length(embedding) <> ? AND deleted_at IS NULL
"""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Text:
    number: int
    text: str
    content_hash: str


class Vectorizing:
    """Gives every trace a vector of the present model."""

    def __init__(
        self,
        trace_store: TraceStore,
        embedder: MeteredEmbedder,
        *,
        batch: int = 64,
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        """Only the gateway's budget limits the embedder, no person's; a call has `batch` texts at most."""
        self._trace_store = trace_store
        self._embedder = embedder
        self._batch = batch
        self._first_retry_s = first_retry_s
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._failures = 0
        self._length_bytes = 0
        self._worker = uuid.uuid4().hex
        self._epoch: int | None = None

    def wake(self) -> None:
        """Say that there are new traces."""
        self._idle.clear()
        self._wanted.set()

    async def idle(self) -> None:
        """Wait until all traces have vectors, or are put off."""
        await self._idle.wait()

    async def lacking(self) -> int:
        """How many traces wait for a vector of the present model.

        Raises:
            ConfigError: the settings are wrong.
            StoreError: the trace store cannot be read.
        """
        model = self._embedder.identity
        return await self._trace_store.database.read(lambda connection: count_lacking(connection, model))

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._wanted.clear()
            wait_s = await self._until_done()
            if not self._wanted.is_set() or self._failures:
                self._idle.set()
            if self._failures:
                await asyncio.sleep(wait_s)  # a new trace does not bring an endpoint back
                self._idle.clear()
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _until_done(self) -> float:
        """Do all there is to do; how long to wait then."""
        try:
            while await self._one_batch():
                if self._failures:
                    _log.info("vectors_again", model=self._embedder.identity)
                self._failures = 0
            await self._give_back()
        except (ModelUnavailable, StoreError, ConfigError) as error:
            again_s = error.retry_after_s if isinstance(error, ModelUnavailable) else None
            return self._put_off(error, again_s or 0.0)
        except Exception as error:  # noqa: BLE001 (a fault here must not end the gateway)
            _log.exception("vectors_fault")
            return self._put_off(error, 0.0)
        self._failures = 0
        return LOOK_AGAIN_S

    def _put_off(self, error: Exception, again_s: float) -> float:
        self._failures += 1
        if self._failures == 1:
            _log.warning("vectors_put_off", error=str(error))
        if isinstance(error, BudgetExhausted):
            return again_s
        return max(again_s, delay_s(self._failures, first_s=self._first_retry_s, longest_s=LONGEST_RETRY_S))

    async def _one_batch(self) -> bool:
        """Embed the newest traces without a vector; whether there were any."""
        model = self._embedder.identity
        texts = await self._next(model)
        if texts and self._trace_store.database.dialect.is_shared:  # another worker may have embedded them meanwhile
            texts = await self._next(model) if await self._is_ours() else ()
        if not texts:
            return False
        try:
            if self._failures >= _CAREFUL_FROM and len(texts) > 1:
                await self._each_alone(texts, model)
            else:
                await self._together(texts, model)
        except ModelRefused as error:
            if len(texts) > 1:
                await self._halves(texts, model)
            else:
                await self._shorter(texts[0], model, error)
        return True

    async def _is_ours(self) -> bool:
        """One of many workers makes vectors at a time, so that no text is paid for twice."""
        leases = SqlLeases(self._trace_store.database)
        self._epoch = await leases.take(_LEASE, worker=self._worker, lease_s=LOOK_AGAIN_S)
        return self._epoch is not None

    async def _give_back(self) -> None:
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            await SqlLeases(self._trace_store.database).give_back(_LEASE, epoch, worker=self._worker)

    async def _next(self, model: str) -> Sequence[_Text]:
        rows = await self._trace_store.database.read(
            lambda connection: next_lacking(connection, model, limit=self._batch, longest_chars=LONGEST_TEXT_CHARS)
        )
        texts: list[_Text] = []
        room = BATCH_CHARS
        for row in rows:
            room -= len(row["text"])
            if texts and room < 0:
                break
            texts.append(_Text(row["number"], row["text"], row["content_hash"]))
        return texts

    async def _together(self, texts: Sequence[_Text], model: str) -> None:
        embedded = await self._embedder.embed([each.text for each in texts], Spender())
        blobs = [as_blob(vector) for vector in embedded.vectors]
        rows = [(blob, model, each.number, each.content_hash) for blob, each in zip(blobs, texts, strict=True)]

        def work(connection: Connection) -> None:
            if len(blobs[0]) != self._length_bytes:  # the first ones; or another model answers to the same name now
                connection.execute(_OTHER_LENGTH, (model, len(blobs[0])))
            connection.executemany(_KEEP, rows)

        await self._trace_store.database.write(work, is_durable=False)  # what a power cut takes away is made again
        self._length_bytes = len(blobs[0])

    async def _halves(self, texts: Sequence[_Text], model: str) -> None:
        """Find the text that is refused, so that the others get their vectors."""
        middle = len(texts) // 2
        for part in (texts[:middle], texts[middle:]):
            try:
                await self._together(part, model)
            except ModelRefused as error:
                if len(part) == 1:
                    await self._shorter(part[0], model, error)
                else:
                    await self._halves(part, model)

    async def _shorter(self, one: _Text, model: str, error: Exception) -> None:
        """Try shorter beginnings of a text, which is probably too long; give the text up if none is accepted."""
        chars = len(one.text) // 2
        while chars >= _SHORTEST_TRY_CHARS:
            try:
                await self._together([_Text(one.number, one.text[:chars], one.content_hash)], model)
            except (ModelRefused, ModelUnavailable) as error_now:
                if isinstance(error_now, ModelUnavailable) and not isinstance(error, ModelUnavailable):
                    raise
                chars //= 2
            else:
                return
        _log.warning("vector_refused", number=one.number, error=str(error))
        values = (model, str(error), one.number, one.content_hash)
        await self._trace_store.database.write(lambda connection: connection.execute(_REFUSED, values))

    async def _each_alone(self, texts: Sequence[_Text], model: str) -> None:
        """Embed each text alone. Some servers report a text that they cannot take as an error of the server.

        Raises:
            ModelUnavailable: none of them was taken: it is not the texts.
        """
        failed: list[tuple[_Text, ModelUnavailable]] = []
        is_up = False
        for each in random.sample(texts, len(texts)):  # so that no few of them are always the first
            try:
                await self._together([each], model)
                is_up = True
            except BudgetExhausted:
                raise
            except ModelUnavailable as error:
                failed.append((each, error))
                if not is_up and len(failed) == _CAREFUL_FROM:
                    raise
            except ModelRefused as error:
                is_up = True
                await self._shorter(each, model, error)
        if failed and not is_up:
            raise failed[-1][1]
        for each, why in failed:
            await self._shorter(each, model, why)
