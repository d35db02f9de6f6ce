"""The trace memory as a turn meets it: what is recalled before it, and what is made of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import structlog

from gateway.domain.roles import Role
from gateway.errors import StoreError
from gateway.memory.ingest import IngestJob, IngestWorker
from gateway.memory.recall import Recollection, fit_recollections
from gateway.memory.tokenizer import words_of
from gateway.protocols import MemoryHit, MemoryScope
from gateway.runtime.observe import note, span
from gateway.traces import strength
from gateway.traces.schedule import ConsolidationSchedule
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace, Viewer, source_of
from gateway.traces.trace_store import TraceStore
from gateway.traces.turn_facts import OfferedTraces, RulesOf, viewer_of

if TYPE_CHECKING:
    from gateway.traces.vectorizing import Vectorizing  # which loads numpy

RECALLED_CHARS = 600
"""Of one fact in a prompt; `memory_search` gives the whole."""

_log = structlog.get_logger(__name__)


class TurnCounts(Protocol):
    """How many turns each person had since a consolidation; durable."""

    async def count_turn(self, user_id: str) -> int: ...  # noqa: D102
    async def forget_turns(self, user_id: str) -> None: ...  # noqa: D102


class TraceMemory:
    """A `Recall` and a `SearchableMemory` over one trace store."""

    def __init__(
        self,
        trace_store: TraceStore,
        *,
        rules: RulesOf,
        counts: TurnCounts,
        ingest: IngestWorker | None,
        schedule: ConsolidationSchedule | None,
        vectorizing: Vectorizing | None = None,
        offers: OfferedTraces | None = None,
    ) -> None:
        """`ingest`, `schedule` and `vectorizing` are None where they are off; the ingest looks into `offers`, too."""
        self.trace_store = trace_store
        self._rules = rules
        self._counts = counts
        self._ingest = ingest
        self._schedule = schedule
        self._vectorizing = vectorizing
        self._offers = offers or OfferedTraces()
        self._work: asyncio.Task[None] | None = None
        self._may_work = asyncio.Event()
        self._may_work.set()
        self._ended: asyncio.Queue[tuple[MemoryScope, Viewer, Sequence[Trace], str]] = asyncio.Queue()

    # ---- what a turn asks ------------------------------------------------------------------------------------------

    async def before_turn(self, scope: MemoryScope, question: str, role: Role) -> Sequence[Recollection]:
        """What may bear on the question, best first, as far as there is room; nothing of an unreadable trace store."""
        with span("memory.recall"):
            try:
                found = await self.trace_store.recall(viewer_of(scope, role), question)
            except StoreError as error:
                _log.error("traces_unreadable", turn_id=scope.turn_id, error=str(error))
                return ()
            traces = {each.trace.id: each.trace for each in found}
            recollections = fit_recollections(
                map(_recollection, traces.values()), self._rules(scope.personality_id).recall_chars
            )
            note(recalled=len(recollections))
        self._offers.keep(scope.turn_id, [traces[each.id] for each in recollections])
        return recollections

    def job(self, scope: MemoryScope, speaker: str, sources: tuple[str, ...] | None = None) -> IngestJob | None:
        """The job to commit with the turn; None for an unknown user, or where nothing is ingested."""
        if self._ingest is None or scope.user_id is None:
            return None
        return IngestJob(scope=scope, speaker=speaker, sources=sources)

    def after_turn(self, scope: MemoryScope, answer: str, role: Role) -> None:
        """Say that the turn is committed. Returns at once."""
        viewer = viewer_of(scope, role)
        self._ended.put_nowait((scope, viewer, self._offers.get(scope.turn_id), answer))
        if self._ingest is not None:
            self._ingest.wake()

    async def search(self, scope: MemoryScope, query: str, limit: int = 10) -> Sequence[MemoryHit]:
        """Traces that the scope may see, best first."""
        found = await self.trace_store.search(viewer_of(scope), TraceQuery(query=query, limit=limit))
        return [
            MemoryHit(text=each.trace.content, score=each.score, store="traces", source=each.trace.id) for each in found
        ]

    # ---- in the background -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do what turns left to do, until cancelled."""
        while True:
            await self._may_work.wait()
            self._work = asyncio.create_task(self._do_all(), name="traces at work")
            try:
                await asyncio.wait([self._work])
            finally:
                await self._stop()
            if not self._work.cancelled():
                self._work.result()  # a fault

    @asynccontextmanager
    async def resting(self, user_ids: Collection[str]) -> AsyncGenerator[None]:
        """Do nothing in the background, and drop what turns of these people left to do: they are being erased.

        What others' turns left is done afterwards; it is durable, or is a little strength.
        """
        self._may_work.clear()
        try:
            await self._stop()
            for _ in range(self._ended.qsize()):
                ended = self._ended.get_nowait()
                if ended[0].user_id not in user_ids:
                    self._ended.put_nowait(ended)
                self._ended.task_done()
            if self._schedule is not None:
                self._schedule.forget(user_ids)
            yield
        finally:
            self._may_work.set()

    async def _stop(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.cancel()
            await asyncio.wait([self._work])

    async def _do_all(self) -> None:
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._learn(), name="trace feedback")
            if self._ingest is not None:
                parts.create_task(self._ingest.run(), name="trace ingest")
            if self._schedule is not None:
                parts.create_task(self._schedule.run(), name="trace consolidation")
            if self._vectorizing is not None:
                parts.create_task(self._vectorizing.run(), name="trace vectors")

    async def idle(self) -> None:
        """Wait until all that ended turns left to do is done, or put off."""
        await self._ended.join()
        if self._ingest is not None:
            await self._ingest.idle()
        if self._schedule is not None:
            await self._schedule.idle()
        if self._vectorizing is not None:
            self._vectorizing.wake()
            await self._vectorizing.idle()

    async def _learn(self) -> None:
        while True:
            scope, viewer, offered, answer = await self._ended.get()
            try:
                await self._ended_turn(scope, viewer, offered, answer)
            except StoreError as error:  # one turn's feedback is lost, which is a little strength
                _log.warning("trace_feedback_lost", turn_id=scope.turn_id, error=str(error))
            except Exception:  # noqa: BLE001 (a fault here must not end the gateway)
                _log.exception("trace_feedback_fault", turn_id=scope.turn_id)
            finally:
                self._ended.task_done()

    async def _ended_turn(self, scope: MemoryScope, viewer: Viewer, offered: Sequence[Trace], answer: str) -> None:
        if self._vectorizing is not None:
            self._vectorizing.wake()
        if offered:
            used = await asyncio.to_thread(_quoted, offered, answer)
            if used:
                await self.trace_store.offered(viewer, scope.turn_id, used=used)
        if self._schedule is None or scope.user_id is None:
            return
        turns = await self._counts.count_turn(scope.user_id)
        if turns >= self._rules(scope.personality_id).consolidate_every_turns:
            await self._counts.forget_turns(scope.user_id)
            self._schedule.want(viewer, f"{turns} turns")


def _quoted(offered: Sequence[Trace], answer: str) -> Sequence[str]:
    """The ids of those that the answer uses; some milliseconds for a hundred long ones."""
    words = words_of(answer).split()
    return [each.id for each in offered if strength.is_quoted(words_of(each.content).split(), words)]


def _recollection(trace: Trace) -> Recollection:
    text = trace.content if len(trace.content) <= RECALLED_CHARS else trace.content[:RECALLED_CHARS].rstrip() + "…"
    return Recollection(id=trace.id, text=text, at=trace.created_at, source=source_of(trace, agent="you"))
