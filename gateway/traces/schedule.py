"""When a trace store is consolidated: after a number of turns of a person, and once a night."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime, time, timedelta

import structlog

from gateway.cluster.jobs import Jobs, OwnJobs
from gateway.errors import StoreError
from gateway.store.payloads import from_ms
from gateway.traces.consolidation import Consolidation
from gateway.traces.trace import Viewer
from gateway.traces.trace_store import TraceStore

NIGHTLY = "nightly"
RETRY = timedelta(hours=1)
_LAST = "SELECT max(started_at) FROM consolidation_log WHERE reason = ?"
# A clock that was set is noticed within this.
_LONGEST_SLEEP_S = 3600.0

_log = structlog.get_logger(__name__)


class ConsolidationSchedule:
    """Runs consolidations when they are due, one after the other."""

    def __init__(
        self,
        trace_store: TraceStore,
        consolidation: Consolidation,
        *,
        at: time,
        gists: Callable[[], Awaitable[int]] | None = None,
        jobs: Jobs | None = None,
    ) -> None:
        """The whole store has its turn at the time of day `at`, in UTC; `gists` shortens old traces after it.

        `jobs` keeps that to one worker; None: there is only one.
        """
        self._jobs = jobs or OwnJobs()
        self._trace_store = trace_store
        self._consolidation = consolidation
        self._at = at
        self._gists = gists
        self._wanted: dict[Viewer, str] = {}
        self._is_wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def want(self, viewer: Viewer, reason: str) -> None:
        """Consolidate what the viewer sees, soon."""
        self._wanted[viewer] = reason
        self._idle.clear()
        self._is_wanted.set()

    def forget(self, user_ids: Collection[str]) -> None:
        """Drop what was wanted on behalf of these people."""
        self._wanted = {viewer: why for viewer, why in self._wanted.items() if viewer.user_id not in user_ids}

    async def idle(self) -> None:
        """Wait until all that was wanted is done."""
        await self._idle.wait()

    async def run(self) -> None:
        """Until cancelled. A night that was missed is made up for at the start."""
        night_at = await self._next_night()
        while True:
            while self._wanted:
                viewer, reason = self._wanted.popitem()
                try:
                    await self._run(viewer, reason)
                except asyncio.CancelledError:  # the next run does it
                    self._wanted.setdefault(viewer, reason)
                    raise
            if self._trace_store.now() >= night_at:
                night_at = await self._do_night()
            self._is_wanted.clear()
            self._idle.set()
            left_s = (night_at - self._trace_store.now()).total_seconds()
            try:
                async with asyncio.timeout(min(max(left_s, 0.0), _LONGEST_SLEEP_S)):
                    await self._is_wanted.wait()
            except TimeoutError:
                continue

    async def _do_night(self) -> datetime:
        """Do what is due each night, unless another worker does it or has done it; when to look again."""
        is_done = False

        async def work() -> None:
            nonlocal is_done
            last = await self._last_night()
            is_done = last is not None and next_at(self._at, last) > self._trace_store.now()
            is_done = is_done or await self._run(None, NIGHTLY)

        try:
            await self._jobs.once("night", work)
        except StoreError as error:
            _log.error("consolidation_late", reason=NIGHTLY, error=str(error))
        return next_at(self._at, self._trace_store.now()) if is_done else self._trace_store.now() + RETRY

    async def _next_night(self) -> datetime:
        return next_at(self._at, await self._last_night() or self._trace_store.now())

    async def _last_night(self) -> datetime | None:
        try:
            [[last_ms]] = await self._trace_store.database.rows(_LAST, (NIGHTLY,))
        except StoreError as error:
            _log.error("consolidation_late", error=str(error))
            return None
        return None if last_ms is None else from_ms(last_ms)

    async def _run(self, viewer: Viewer | None, reason: str) -> bool:
        try:
            await self._consolidation.run(viewer, reason=reason)
            if viewer is None and self._gists is not None:
                shortened = await self._gists()
                _log.info("gists_made", shortened=shortened)
        except StoreError as error:
            _log.error("consolidation_late", reason=reason, error=str(error))
            return False
        except Exception:  # noqa: BLE001 (a fault here must not end the gateway; the next night tries again)
            _log.exception("consolidation_fault", reason=reason)
            return False
        return True


def next_at(at: time, after: datetime) -> datetime:
    """The next moment after the given one that has this time of day."""
    night = datetime.combine(after.date(), at, tzinfo=after.tzinfo)
    return night if night > after else night + timedelta(days=1)
