"""One consolidation: prune, merge, link, derive, compact, re-index. One at a time, over all processes.

Each step of each owner is some transactions of its own, so small that others can write in between. A process that is
killed leaves the trace store as it was before the last of them, and the file lock falls with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.errors import DataDirectoryLocked, EthosError, ModelError
from gateway.files.locks import hold
from gateway.runtime.observe import happened
from gateway.store.payloads import from_ms, to_ms
from gateway.traces import consolidation_steps as steps
from gateway.traces.insights import Insight, clusters, keep_insight
from gateway.traces.rows import changeable, merge_index
from gateway.traces.trace import Viewer
from gateway.traces.trace_store import TraceStore

T = TypeVar("T")
LOCK_NAME = "traces.consolidating"
_INDEX_PAGES = 500  # of the full-text index that are merged at a time

_OWNERS = "SELECT number FROM owners ORDER BY number"
_LOG = """
    INSERT INTO consolidation_log (started_at, duration_ms, reason, pruned, merged, derived, compacted)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_READ_LOG = "SELECT * FROM consolidation_log WHERE ? IS NULL OR id < ? ORDER BY id DESC LIMIT ?"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationReport:
    """How many traces were pruned, went into others, were derived and compacted. All zeros: one was running already."""

    pruned: int = 0
    merged: int = 0
    derived: int = 0
    compacted: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationEntry:
    """One consolidation that came to its end; `reason` is `nightly`, `50 turns`, or `tool` with what the agent gave."""

    id: int
    started_at: datetime
    reason: str
    report: ConsolidationReport


class Consolidation:
    """Consolidates one trace store."""

    def __init__(self, trace_store: TraceStore, *, insight: Insight | None = None) -> None:
        """`insight` asks a model for what a cluster shows; without it nothing is derived."""
        self._trace_store = trace_store
        self._insight = insight
        self._lock: Path = trace_store.database.path.with_name(LOCK_NAME)

    async def run(self, viewer: Viewer | None = None, *, reason: str = "schedule") -> ConsolidationReport:
        """As `try_run`, with zeros where one is running already."""
        return await self.try_run(viewer, reason=reason) or ConsolidationReport()

    async def try_run(self, viewer: Viewer | None = None, *, reason: str) -> ConsolidationReport | None:
        """Consolidate what the viewer may change; without a viewer, everything. None: one is running already.

        Raises:
            StoreUnavailable: the disk is full or broken; the steps before are kept.
        """
        taking = asyncio.ensure_future(asyncio.to_thread(hold, self._lock))
        try:
            lock = await asyncio.shield(taking)
        except DataDirectoryLocked:
            return None
        except asyncio.CancelledError:  # the thread goes on, and nobody else would let go
            with contextlib.suppress(EthosError):
                (await taking).release()
            raise
        try:
            return await self._run(viewer, reason)
        finally:
            await asyncio.to_thread(lock.release)

    async def log(self, *, limit: int = 50, before: int | None = None) -> Sequence[ConsolidationEntry]:
        """What was done, newest first; with `before` the entries that are older than the one with that id."""

        def work(connection: sqlite3.Connection) -> list[ConsolidationEntry]:
            return [_entry(row) for row in connection.execute(_READ_LOG, (before, before, limit)).fetchall()]

        return await self._trace_store.database.read(work)

    async def _run(self, viewer: Viewer | None, reason: str) -> ConsolidationReport:
        started_at, clock = self._trace_store.now(), time.monotonic()
        pruned = merged = derived = compacted = 0
        for owner in await self._owners(viewer):
            pruned += await self._swept(steps.PRUNE, owner)
            merged += await self._merged(owner)
            await self._step(steps.link_used_together, owner)
            derived += await self._derived(owner)
            compacted += await self._swept(steps.COMPACT, owner)
        report = ConsolidationReport(
            pruned=pruned,
            merged=merged,
            derived=derived,
            compacted=compacted,
            duration_ms=round((time.monotonic() - clock) * 1000),
        )
        await self._trace_store.database.write(lambda connection: _close(connection, started_at, reason, report))
        happened("memory.consolidated")
        _log.info("consolidated", reason=reason, pruned=pruned, merged=merged, derived=derived, compacted=compacted)
        return report

    async def _owners(self, viewer: Viewer | None) -> Sequence[int]:
        if viewer is not None:
            viewer = await self._trace_store.whole(viewer)
            return await self._trace_store.database.read(lambda connection: changeable(connection, viewer))
        return await self._trace_store.database.read(
            lambda connection: [int(row[0]) for row in connection.execute(_OWNERS)]
        )

    async def _step(self, step: Callable[..., T], owner: int) -> T:
        # What a power cut takes back is done the next time; the entry in the log makes all of it durable.
        work = partial(step, owner=owner, now=self._trace_store.now())
        return await self._trace_store.database.write(work, is_durable=False)

    async def _swept(self, sweep: steps.Sweep, owner: int) -> int:
        changed, now = 0, self._trace_store.now()
        after: tuple[int, int] | None = steps.FIRST
        while after is not None:
            look = partial(sweep.look, owner=owner, now=now, after=after)
            wanted, after = await self._trace_store.database.read(look)
            for begin in range(0, len(wanted), steps.CHANGED_AT_ONCE):
                lot = wanted[begin : begin + steps.CHANGED_AT_ONCE]
                make = partial(sweep.make, numbers=lot, now=now)
                changed += await self._trace_store.database.write(make, is_durable=False)
        return changed

    async def _merged(self, owner: int) -> int:
        merged, is_more = 0, True
        while is_more:
            some, is_more = await self._step(steps.merge_near_identical, owner)
            merged += some
        return merged

    async def _derived(self, owner: int) -> int:
        """Ask the model outside of every transaction; a model that does not answer is asked the next time."""
        if self._insight is None:
            return 0
        derived = 0
        for cluster in await self._trace_store.database.read(lambda connection: clusters(connection, owner)):
            try:
                sentence = await self._insight(cluster.traces)
            except ModelError as error:
                _log.warning("insights_put_off", error=str(error))
                break
            if sentence:
                keep = partial(keep_insight, cluster=cluster, sentence=sentence, now=self._trace_store.now())
                derived += await self._trace_store.database.write(keep)
        return derived


def _entry(row: sqlite3.Row) -> ConsolidationEntry:
    return ConsolidationEntry(
        id=row["id"],
        started_at=from_ms(row["started_at"]),
        reason=row["reason"],
        report=ConsolidationReport(
            pruned=row["pruned"],
            merged=row["merged"],
            derived=row["derived"],
            compacted=row["compacted"],
            duration_ms=row["duration_ms"],
        ),
    )


def _close(connection: sqlite3.Connection, started_at: datetime, reason: str, report: ConsolidationReport) -> None:
    merge_index(connection, pages=_INDEX_PAGES)
    connection.execute(
        _LOG,
        (
            to_ms(started_at),
            report.duration_ms,
            reason,
            report.pruned,
            report.merged,
            report.derived,
            report.compacted,
        ),
    )
