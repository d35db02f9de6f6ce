"""From an answered turn to the facts that are kept of it: durable jobs, each done once and never in a reply's way.

A job is committed with its turn. The model names the facts, they are written down with the job, and only then they are
stored; storing them again stores nothing new. So wherever the process dies, nothing is lost and nothing is doubled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from gateway.errors import ModelRefused, ModelUnavailable, StoreError, TraceError
from gateway.protocols import MemoryScope
from gateway.runtime.backoff import delay_s
from gateway.runtime.observe import note, span

FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 900.0
# For what is no silence of the model: a fault of a program comes back however often it is tried.
MOST_FAULTS = 8
JOBS_AT_ONCE = 4

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """One turn whose facts are to be taken.

    Attributes:
        scope: of the turn; its user is known.
        speaker: the person's name, as the platform shows it.
        sources: what the turn had read that is not the person's own, in words; then the facts wait for a yes, as they
            do where it is empty, because everything is reviewed. None: they need none.
        facts: JSON, once the model has named them.
        attempts: that failed.
    """

    scope: MemoryScope
    speaker: str
    sources: tuple[str, ...] | None = None
    facts: str | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was said in a turn, and when it was asked."""

    asked: str
    answered: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestBacklog:
    """What is not done; `due_in_s` is None where nothing waits."""

    waiting: int
    given_up: int
    due_in_s: float | None


class IngestStore(Protocol):
    """Where the jobs are kept. `TurnCommit.ingest` puts them there."""

    async def claim(self, limit: int) -> Sequence[IngestJob]:
        """Take jobs whose time has come, oldest first, and of each person the oldest only: they stay in their order.

        Those that this process took before, and neither ended nor put off, are among them.
        """

    async def said(self, turn_id: str) -> Said | None:
        """What was said in the turn; None where it is gone, or another answer took its place."""

    async def keep_facts(self, turn_id: str, facts: str) -> str | None:
        """Write down, durably, what the model named.

        Gives the facts that count: those of another process, if it was first. None: the job has ended.
        """

    async def end(self, turn_id: str) -> None:
        """The job is done, by whoever did it."""

    async def put_off(self, turn_id: str, *, after_s: float, error: str, is_given_up: bool) -> None:
        """Count a failure; the job is due again later, or never. Nothing where another process has taken it."""

    async def backlog(self) -> IngestBacklog:
        """What waits, and when the next one is due."""


class FactExtractor(Protocol):
    """The two steps of a job; see `traces.turn_facts`."""

    async def extract(self, job: IngestJob, said: Said) -> str:
        """Ask the model what is worth keeping; as JSON for `keep`.

        Raises:
            ModelUnavailable: no answer now.
            ModelRefused: never an answer.
        """

    async def keep(self, job: IngestJob, said: Said, facts: str) -> Mapping[str, int]:
        """Store or propose them, once however often it is called; how many were `extracted`, `stored` and so on.

        Raises:
            StoreError: nothing was stored now.
            TraceError: they never can be stored.
        """


class IngestWorker:
    """Does the jobs."""

    def __init__(self, store: IngestStore, facts: FactExtractor) -> None:
        self._store = store
        self._facts = facts
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()

    def wake(self) -> None:
        """Say that a job was committed."""
        self._idle.clear()
        self._wanted.set()

    async def idle(self) -> None:
        """Wait until no job is due."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._wanted.clear()
            try:
                while jobs := await self._store.claim(JOBS_AT_ONCE):
                    ends = await asyncio.gather(*(self._do(job) for job in jobs), return_exceptions=True)
                    for error in ends:
                        if error is not None:
                            raise error
                due_in_s = (await self._store.backlog()).due_in_s
            except StoreError as error:
                _log.error("ingest_late", error=str(error))
                due_in_s = LONGEST_RETRY_S / 10
            if not self._wanted.is_set():
                self._idle.set()
            try:
                async with asyncio.timeout(due_in_s):
                    await self._wanted.wait()
            except TimeoutError:
                self._idle.clear()

    async def _do(self, job: IngestJob) -> None:
        turn_id = job.scope.turn_id
        with span("memory.ingest", turn_id=turn_id, outcome="failed"):
            try:
                await self._take(job)
                await self._store.end(turn_id)
            except ModelUnavailable as error:
                await self._put_off(job, error, again_s=error.retry_after_s or 0.0)
            except (ModelRefused, TraceError) as error:
                _log.warning("ingest_refused", turn_id=turn_id, error=str(error))
                note(outcome="refused")
                await self._store.end(turn_id)
            except StoreError as error:
                await self._put_off(job, error, again_s=0.0)
            except Exception as error:  # noqa: BLE001 (whatever fault it is, the other turns' facts do not wait for it)
                _log.exception("ingest_fault", turn_id=turn_id)
                await self._put_off(job, error, again_s=0.0, is_given_up=job.attempts + 1 >= MOST_FAULTS)

    async def _take(self, job: IngestJob) -> None:
        turn_id = job.scope.turn_id
        said = await self._store.said(turn_id)
        if said is None:
            note(outcome="gone")
            return
        facts = job.facts
        if facts is None:
            facts = await self._store.keep_facts(turn_id, await self._facts.extract(job, said))
        if facts is None:
            note(outcome="gone")
            return
        report = await self._facts.keep(job, said, facts)
        note(outcome="done", **report)
        _log.info("turn_ingested", turn_id=turn_id, **report)

    async def _put_off(self, job: IngestJob, error: Exception, *, again_s: float, is_given_up: bool = False) -> None:
        after_s = max(again_s, delay_s(job.attempts + 1, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S))
        reason = f"{type(error).__name__}: {error}"
        note(outcome="given_up" if is_given_up else "later")
        log = _log.error if is_given_up else _log.warning
        log("ingest_given_up" if is_given_up else "ingest_put_off", turn_id=job.scope.turn_id, error=reason)
        await self._store.put_off(job.scope.turn_id, after_s=after_s, error=reason, is_given_up=is_given_up)
