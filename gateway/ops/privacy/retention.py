"""Forgets by age, at the start and once a day: what is kept how long stands in `docs/privacy.md`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

import structlog

from gateway.config import RetentionConfig
from gateway.files.home import EXPORTS_NAME, LOG_NAME
from gateway.ops.privacy.files import copies_of_databases
from gateway.sdk.models.system import Forgotten
from gateway.store import retention
from gateway.store.clock import wall_ms
from gateway.store.queue_rows import Place, Queue
from gateway.store.retention import Aging
from gateway.store.stores import Stores

_DAY_MS = 86_400_000
_SESSIONS_AT_ONCE = 100
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
OF_FILES = ("exports", "copies", "log")
"""What lies on this machine; all else is in the database."""
_QUEUES: tuple[Queue, ...] = ("inbox", "outbox")

_log = structlog.get_logger(__name__)


class Retention:
    """Goes through one data directory."""

    def __init__(
        self, home: Path, store: Stores, config: RetentionConfig, *, now_ms: Callable[[], int] = wall_ms
    ) -> None:
        """Nothing is read yet; `now_ms` is the clock that ages are measured with, in milliseconds since 1970."""
        self._home = home
        self._database = store.engine
        self._config = config
        self._now_ms = now_ms

    async def run(self, *, is_dry: bool = False, files: bool | None = None) -> Sequence[Forgotten]:
        """Forget what is old, or only count it.

        Args:
            files: True: only what lies on this machine; False: only what is in the database.

        Raises:
            StoreError: not all of it could be done; the next time does the rest.
            OSError: a file could not be removed.
        """
        config, done = self._config, []
        for kind, what, days, work in (
            ("messages", "texts of messages in the queues", config.messages_days, self._messages),
            ("sessions", "sessions in which nothing was said since", config.sessions_days, self._sessions),
            (
                "memory_history",
                "entries of the memory's history, and proposals that were decided",
                config.memory_history_days,
                partial(self._rows, ("memory_journal", "memory_proposals")),
            ),
            ("usage", "calls of models", config.usage_days, partial(self._rows, ("usage",))),
            (
                "tools",
                "calls of tools, what was decided about them, and what came of schedules",
                config.tools_days,
                partial(self._rows, ("tool_calls", "approvals", "occurrences", "schedules")),
            ),
            ("exports", "files of /export", config.exports_days, self._exports),
            ("copies", "copies of databases from before an upgrade", config.copies_days, self._copies),
            ("log", f"lines of {LOG_NAME}", config.log_days, self._lines),
        ):
            if files is not None and files != (kind in OF_FILES):
                continue
            amount = 0
            if days is not None:
                async for changed in work(self._now_ms() - round(days * _DAY_MS), is_dry):
                    amount += changed
            done.append(Forgotten(kind=kind, what=what, days=days, amount=amount))
        if not is_dry and any(each.amount for each in done):
            _log.info("forgotten", **{each.kind: each.amount for each in done if each.amount})
        return done

    # ---- the database -----------------------------------------------------------------------------------------------

    async def _messages(self, before_ms: int, is_dry: bool) -> AsyncIterator[int]:  # noqa: FBT001 (one signature for all)
        for queue in _QUEUES:
            after: Place | None = Place(0, 0)
            while after is not None:
                find = partial(retention.full_rows, queue=queue, after=after, before_ms=before_ms)
                rows, after = await self._database.read(partial(find, limit=retention.LOOKED_AT) if is_dry else find)
                if rows and not is_dry:
                    await self._database.write(partial(retention.empty_rows, queue=queue, rows=rows), is_durable=False)
                yield len(rows)

    async def _sessions(self, before_ms: int, is_dry: bool) -> AsyncIterator[int]:  # noqa: FBT001
        limit = 1 << 40 if is_dry else _SESSIONS_AT_ONCE
        while found := await self._database.read(partial(retention.old_sessions, before_ms=before_ms, limit=limit)):
            yield len(found)
            if is_dry:
                return
            for session_id in found:
                forget = partial(retention.forget_session, session_id=session_id, before_ms=before_ms)
                while await self._database.write(forget, is_durable=False):
                    pass

    async def _rows(
        self,
        tables: Sequence[Aging],
        before_ms: int,
        is_dry: bool,  # noqa: FBT001
    ) -> AsyncIterator[int]:
        limit = 1 << 40 if is_dry else retention.BATCH
        for table in tables:
            find = partial(retention.old_rows, table=table, before_ms=before_ms, limit=limit)
            while ids := await self._database.read(find):
                yield len(ids)
                if is_dry:
                    break
                forget = partial(retention.forget_rows, table=table, ids=ids, before_ms=before_ms)
                await self._database.write(forget, is_durable=False)

    # ---- files ------------------------------------------------------------------------------------------------------

    async def _exports(self, before_ms: int, is_dry: bool) -> AsyncIterator[int]:  # noqa: FBT001
        found = list((self._home / EXPORTS_NAME).glob("*/*"))
        yield await asyncio.to_thread(_remove_old, found, before_ms, is_dry=is_dry)

    async def _copies(self, before_ms: int, is_dry: bool) -> AsyncIterator[int]:  # noqa: FBT001
        found = await asyncio.to_thread(copies_of_databases, self._home)
        yield await asyncio.to_thread(_remove_old, found, before_ms, is_dry=is_dry)

    async def _lines(self, before_ms: int, is_dry: bool) -> AsyncIterator[int]:  # noqa: FBT001
        yield await asyncio.to_thread(_cut_log, self._home / LOG_NAME, before_ms, is_dry=is_dry)


def _remove_old(paths: Sequence[Path], before_ms: int, *, is_dry: bool) -> int:
    count = 0
    for path in paths:
        if path.is_file() and path.stat().st_mtime_ns < before_ms * 1_000_000:
            count += 1
            if not is_dry:
                path.unlink(missing_ok=True)
    return count


def _cut_log(path: Path, before_ms: int, *, is_dry: bool) -> int:
    """Take old lines from the front of the log, which another process may be appending to; how many."""
    try:
        with path.open("r+b") as file:
            count = end = 0
            moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before_ms / 1000)).encode()
            while line := file.readline():
                stamp = _STAMP.search(line)
                if stamp is not None and stamp[0] >= moment:
                    break
                count, end = count + 1, file.tell()
            if count and not is_dry:
                file.seek(end)
                rest = file.read()
                file.seek(0)
                file.write(rest)
                file.truncate()
    except FileNotFoundError:
        return 0
    return count
