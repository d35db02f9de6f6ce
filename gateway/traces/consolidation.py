"""One consolidation: prune, merge, link, derive, compact, re-index. One at a time, over all processes.

Each step of each owner is some transactions of its own, so small that others can write in between: what is to be
changed is looked for by a reader, and written in lots. A process that is killed leaves the trace store as it was before
the last of them, and the file lock falls with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.errors import DataDirectoryLocked, EthosError, ModelError
from gateway.files.locks import HeldLock, hold
from gateway.runtime.observe import happened
from gateway.store.engine import Connection
from gateway.store.leases import SqlLeases
from gateway.store.payloads import from_ms, to_ms
from gateway.traces import changes
from gateway.traces.insights import Insight, clusters, keep_insight
from gateway.traces.rows import SELECT, StoredTrace, changeable, merge_index, stored_trace
from gateway.traces.similar import similar_to
from gateway.traces.strength import LEFT, PRUNED_BELOW
from gateway.traces.trace import DAY_MS, KEEP, Viewer, hash_of
from gateway.traces.trace_store import TraceStore

T = TypeVar("T")
LOCK_NAME = "traces.consolidating"
_LEASE, _LEASE_S = "traces:consolidating", 600.0  # one owner's part, with answers of a model in it
_INDEX_PAGES = 500  # of the full-text index that are merged at a time

_OWNERS = "SELECT number FROM owners WHERE kind <> 'document' ORDER BY number"  # whose lines stay as people wrote them
_LOG = """
    INSERT INTO consolidation_log (started_at, duration_ms, reason, pruned, merged, derived, compacted)
    VALUES (:started_at, :duration_ms, :reason, :pruned, :merged, :derived, :compacted)
"""
_READ_LOG = "SELECT * FROM consolidation_log WHERE CAST(? AS bigint) IS NULL OR id < ? ORDER BY id DESC LIMIT ?"
PROTECTED_FROM = 0.3
"""A feeling of this intensity keeps a trace from being pruned."""
NEAR_IDENTICAL = 0.95
LINK_GAIN = 0.1
CO_ACTIVATED = "co_activated"
COMPACTED_AFTER_MS = 7 * DAY_MS
COMPACTED_FROM_USES = 3
USES_KEPT_MS = 90 * DAY_MS
_COMPARED_AT_ONCE = 500
_MERGED_AT_ONCE = 25
_LOOKED_AT = 5_000
CHANGED_AT_ONCE = 100

_IS_FADED = f"""
    deleted_at IS NULL AND {LEFT} < :least
        AND CAST(coalesce(json_extract(emotions, '$.intensity'), '0') AS double precision) < :protected
        AND NOT EXISTS (SELECT 1 FROM json_each(tags) AS own WHERE value = :keep)
"""  # noqa: S608 (constants)
_IS_OFTEN_USED = "type = 'episodic' AND created_at < :before AND retrieval_count >= :uses AND deleted_at IS NULL"
# The index by owner and time is walked: the next so many, and which of them are wanted.
_LOOK = """
    SELECT number, created_at, {is_wanted} AS is_wanted FROM traces
    WHERE owner = :owner AND deleted_at IS NULL AND (created_at, number) > (:created_at, :number)
    ORDER BY created_at, number LIMIT :looked_at
"""
_HIDE = f"UPDATE traces SET deleted_at = :now WHERE number = :number AND {_IS_FADED}"  # noqa: S608 (constants)
# Those only that may have a twin: of the same hash, or by their vectors.
_UNCOMPARED = """
    SELECT uncompared.number, traces.number IS NOT NULL AS is_candidate FROM uncompared LEFT JOIN traces
        ON traces.number = uncompared.number AND deleted_at IS NULL AND (embedding IS NOT NULL OR EXISTS (
            SELECT 1 FROM traces AS other WHERE other.owner = traces.owner AND other.type = traces.type
                AND other.content_hash = traces.content_hash AND other.deleted_at IS NULL
                AND other.number <> traces.number))
    WHERE uncompared.owner = ? ORDER BY uncompared.number LIMIT ?
"""
_COMPARED = "DELETE FROM uncompared WHERE owner = ? AND number <= ?"
_OWN = f"{SELECT} WHERE traces.number = ? AND deleted_at IS NULL"
_SAME = f"""
    {SELECT} WHERE owner = ? AND content_hash = ? AND type = ? AND deleted_at IS NULL AND traces.number <> ?
"""
_NEW_USES = """
    SELECT query_id, trace FROM uses {by_uncounted} JOIN traces ON traces.id = uses.trace
    WHERE NOT is_counted AND traces.owner = ? ORDER BY query_id, trace
"""
_COUNT = "UPDATE uses SET is_counted = TRUE WHERE query_id = ? AND trace = ?"
_COUNTED_USES = """
    SELECT trace FROM uses JOIN traces ON traces.id = uses.trace
    WHERE query_id = ? AND traces.owner = ? AND is_counted
"""
_FORGET_USES = """
    DELETE FROM uses WHERE is_counted AND used_at < ? AND (SELECT owner FROM traces WHERE id = uses.trace) = ?
"""
_LINK = """
    INSERT INTO edges (source, target, kind, weight, created_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (source, target, kind) DO UPDATE
    SET weight = CASE WHEN edges.weight + excluded.weight < 1.0 THEN edges.weight + excluded.weight ELSE 1.0 END
"""
_COMPACT = f"UPDATE traces SET type = 'semantic' WHERE number = :number AND {_IS_OFTEN_USED}"  # noqa: S608 (constants)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationReport:
    """How many traces were pruned, went into others, were derived and compacted; none where another one is running."""

    pruned: int = 0
    merged: int = 0
    derived: int = 0
    compacted: int = 0
    duration_ms: int = 0
    is_running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationEntry(ConsolidationReport):
    """A consolidation that came to its end."""

    id: int
    started_at: datetime
    reason: str


class Consolidation:
    """Consolidates one trace store."""

    def __init__(self, trace_store: TraceStore, *, insight: Insight | None = None) -> None:
        """`insight` asks a model for what a cluster shows; without it nothing is derived."""
        self._trace_store = trace_store
        self._insight = insight

    async def run(
        self, viewer: Viewer | None = None, *, reason: str = "schedule", derives: bool = True
    ) -> ConsolidationReport:
        """Consolidate what the viewer may change; without a viewer, everything. All zeros: one is running already.

        Args:
            reason: for the log: `nightly`, `50 turns`, or `tool` with what the agent gave.
            derives: a model is asked for insights, where there is one.

        Raises:
            StoreUnavailable: the disk is full or broken; the steps before are kept.
        """
        turn = _OneAtATime(self._trace_store)
        if not await turn.take():
            return ConsolidationReport(is_running=True)
        try:
            return await self._run(viewer, reason, turn, derives=derives)
        finally:
            await turn.give_back()

    async def log(self, *, limit: int = 50, before: int | None = None) -> list[ConsolidationEntry]:
        """What was done, newest first; with `before` the entries that are older than the one with that id."""
        rows = await self._trace_store.database.rows(_READ_LOG, (before, before, limit))
        return [ConsolidationEntry(**{**dict(row), "started_at": from_ms(row["started_at"])}) for row in rows]

    async def _run(
        self, viewer: Viewer | None, reason: str, turn: _OneAtATime, *, derives: bool
    ) -> ConsolidationReport:
        started_at, clock = self._trace_store.now(), time.monotonic()
        pruned = merged = derived = compacted = 0
        for owner in await self._owners(viewer):
            if not await turn.go_on():
                break
            pruned += await self._swept(PRUNE, owner)
            merged += await self._merged(owner)
            await self._step(link_used_together, owner)
            derived += await self._derived(owner) if derives else 0
            compacted += await self._swept(COMPACT, owner)
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
        return [int(row[0]) for row in await self._trace_store.database.rows(_OWNERS)]

    async def _step(self, step: Callable[..., T], owner: int) -> T:
        # What a power cut takes back is done the next time; the entry in the log makes all of it durable.
        work = partial(step, owner=owner, now=self._trace_store.now())
        return await self._trace_store.database.write(work, is_durable=False)

    async def _swept(self, sweep: Sweep, owner: int) -> int:
        changed, now = 0, self._trace_store.now()
        after: tuple[int, int] | None = FIRST
        while after is not None:
            look = partial(sweep.look, owner=owner, now=now, after=after)
            wanted, after = await self._trace_store.database.read(look)
            for begin in range(0, len(wanted), CHANGED_AT_ONCE):
                lot = wanted[begin : begin + CHANGED_AT_ONCE]
                make = partial(sweep.make, numbers=lot, now=now)
                changed += await self._trace_store.database.write(make, is_durable=False)
        return changed

    async def _merged(self, owner: int) -> int:
        merged, is_more = 0, True
        while is_more:
            some, is_more = await self._step(merge_near_identical, owner)
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


class _OneAtATime:
    """Keeps others from consolidating: by a lock beside the file, or by a lease where workers share the database."""

    def __init__(self, trace_store: TraceStore) -> None:
        self._place = trace_store.place
        self._leases = SqlLeases(trace_store.database)
        self._worker = uuid.uuid4().hex
        self._epoch: int | None = None
        self._lock: HeldLock | None = None

    async def take(self) -> bool:
        """Whether it is this one's turn now."""
        if not isinstance(self._place, Path):
            self._epoch = await self._leases.take(_LEASE, worker=self._worker, lease_s=_LEASE_S)
            return self._epoch is not None
        taking = asyncio.ensure_future(asyncio.to_thread(hold, self._place.with_name(LOCK_NAME)))
        try:
            self._lock = await asyncio.shield(taking)
        except DataDirectoryLocked:
            return False
        except asyncio.CancelledError:  # the thread still takes the lock, so release it here
            with contextlib.suppress(EthosError):
                (await taking).release()
            raise
        return True

    async def go_on(self) -> bool:
        """Before each part: whether it still is."""
        if self._epoch is None:
            return True
        held = {_LEASE: self._epoch}
        return _LEASE in await self._leases.renew(held, worker=self._worker, lease_s=_LEASE_S)

    async def give_back(self) -> None:
        """It is another's turn."""
        if self._epoch is not None:
            await self._leases.give_back(_LEASE, self._epoch, worker=self._worker)
        if self._lock is not None:
            await asyncio.to_thread(self._lock.release)


def _close(connection: Connection, started_at: datetime, reason: str, report: ConsolidationReport) -> None:
    merge_index(connection, pages=_INDEX_PAGES)
    connection.execute(_LOG, {**asdict(report), "started_at": to_ms(started_at), "reason": reason})


@dataclass(frozen=True, slots=True)
class Sweep:
    """A change that is made to all of an owner's traces that want it, however many there are.

    Attributes:
        is_wanted, change: SQL. What was looked for before is checked once more by the change itself.
        values: of both, by name, at a moment.
    """

    is_wanted: str
    change: str
    values: Callable[[datetime], Mapping[str, object]]

    def look(
        self, connection: Connection, owner: int, now: datetime, after: tuple[int, int]
    ) -> tuple[Sequence[int], tuple[int, int] | None]:
        """Which of the next traces want it, by number, and after which the next ones come; None: they were the last."""
        place = {"owner": owner, "created_at": after[0], "number": after[1], "looked_at": _LOOKED_AT}
        sql = _LOOK.format(is_wanted=self.is_wanted)
        rows = connection.execute(sql, {**self.values(now), **place}).fetchall()
        wanted = [int(row["number"]) for row in rows if row["is_wanted"]]
        return wanted, (rows[-1]["created_at"], rows[-1]["number"]) if len(rows) == _LOOKED_AT else None

    def make(self, connection: Connection, numbers: Sequence[int], now: datetime) -> int:
        """Change these; how many still wanted it."""
        values = self.values(now)
        return sum(connection.execute(self.change, {**values, "number": number}).rowcount for number in numbers)


FIRST = (-(2**63), 0)
PRUNE = Sweep(
    _IS_FADED,
    _HIDE,
    lambda now: {"now": to_ms(now), "least": PRUNED_BELOW, "protected": PROTECTED_FROM, "keep": KEEP},
)
"""Hides what has faded."""
COMPACT = Sweep(
    _IS_OFTEN_USED,
    _COMPACT,
    lambda now: {"before": to_ms(now) - COMPACTED_AFTER_MS, "uses": COMPACTED_FROM_USES},
)
"""Makes knowledge of what happened a week ago and was used often."""


def merge_near_identical(connection: Connection, owner: int, now: datetime) -> tuple[int, bool]:
    """Merge some of the traces that were written since the last time with those that say the same.

    Each is compared with the few that share its rarest words, not with all others, so the time grows with what is new.

    Returns:
        How many traces went into others, and whether there may be more to compare.
    """
    rows = connection.execute(_UNCOMPARED, (owner, _COMPARED_AT_ONCE)).fetchall()
    if not rows:
        return 0, False
    candidates = [int(row["number"]) for row in rows if row["is_candidate"]]
    some = candidates[:_MERGED_AT_ONCE]
    last = int(rows[-1]["number"]) if some == candidates else some[-1]
    groups = _Groups()
    for number in some:
        row = connection.execute(_OWN, (number,)).fetchone()
        if row is not None:
            one = stored_trace(row)
            groups.join([one, *_near_identical(connection, owner, one)])
    merged = 0
    for sources in groups.found():
        merged += changes.merge(connection, sources, now).sources_deleted - 1
    connection.execute(_COMPARED, (owner, last))
    return merged, some != candidates or len(rows) == _COMPARED_AT_ONCE


def _near_identical(connection: Connection, owner: int, one: StoredTrace) -> Iterator[StoredTrace]:
    for row in connection.execute(_SAME, (owner, hash_of(one.trace.content), one.trace.type, one.number)):
        yield stored_trace(row)
    if one.trace.embedding is not None:
        for each in similar_to(connection, owner, one.trace, above=NEAR_IDENTICAL):
            if each.stored.trace.type == one.trace.type and each.stored.trace.embedding is not None:
                yield each.stored


class _Groups:
    """Traces that say the same as one another, whole chains together."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[int, StoredTrace]] = {}

    def join(self, alike: Iterable[StoredTrace]) -> None:
        """Say that these are alike."""
        together: dict[int, StoredTrace] = {}
        for each in alike:
            together |= self._groups.get(each.number, {each.number: each})
        for number in together:
            self._groups[number] = together

    def found(self) -> Iterator[Sequence[StoredTrace]]:
        """Each group of two or more, once."""
        seen = set()
        for group in self._groups.values():
            if len(group) > 1 and id(group) not in seen:
                seen.add(id(group))
                yield [group[number] for number in sorted(group)]


def link_used_together(connection: Connection, owner: int, now: datetime) -> int:
    """Turn uses that were not counted yet into edges between the traces that one query brought together; how many."""
    queries: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(_NEW_USES.format(by_uncounted=connection.dialect.by_uncounted), (owner,)).fetchall():
        queries[row["query_id"]].append(row["trace"])
    links = 0
    for query_id, traces in queries.items():
        earlier = [row[0] for row in connection.execute(_COUNTED_USES, (query_id, owner))]
        pairs = [*combinations(traces, 2), *product(traces, earlier)]
        for pair in pairs:
            connection.execute(_LINK, (*sorted(pair), CO_ACTIVATED, LINK_GAIN, to_ms(now)))
        links += len(pairs)
        connection.executemany(_COUNT, [(query_id, trace) for trace in traces])
    connection.execute(_FORGET_USES, (to_ms(now) - USES_KEPT_MS, owner))
    return links
