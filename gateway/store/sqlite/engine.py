"""SQLite behind one writer thread with group commit, and a few reader threads.

The event loop never waits for the disk. Writes that arrive while a commit is on its way share the next one, each in a
savepoint of its own, so one that fails takes back only itself.
Measured on 2 cores with a disk whose fsync takes 4 ms: 254 commits/s alone, 4 544/s with 16 callers, 34 848/s with 256.

Its checkpoints are asked for and not left to SQLite, which keeps their errors to itself: one that could not sync the
log would leave a hole in it that is not known of. After any I/O error nothing is acknowledged before the log is certain
again; see `write_ahead_log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import structlog

from gateway.errors import StoreUnavailable
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import happened
from gateway.store.arrivals import resolve
from gateway.store.clock import steady_ms
from gateway.store.dialect import SQLITE, Dialect
from gateway.store.engine import Asking, Connection, Values, Work
from gateway.store.sqlite.compacting import compact
from gateway.store.sqlite.readers import Readers
from gateway.store.sqlite.write_ahead_log import LogCut, log_of, make_certain

T = TypeVar("T")
SqliteWork = Callable[["SqliteConnection"], T]

MAX_GROUP = 256
# So many jobs of a crowd share a commit: other jobs wait for no more of them.
MAX_OF_CROWD = 32
READERS = 3
# So long a job that is not urgent waits for another whose commit it can share.
PATIENCE_S = 0.02
BUSY_TIMEOUT_MS = 10_000
# The log is carried over into the file after so many jobs, or when it has grown by 4 MB: each time costs two
# fsyncs, so not too often. What it had to grow beyond that is given back to the disk.
CHECKPOINT_JOBS = 1_000
CHECKPOINT_BYTES = 4 * 1024 * 1024
# Of each connection, in place of SQLite's 2 MB: what a turn reads was written just now, and the system has the rest.
CACHE_KIB = 512
# How often the files are checked for existence while nothing is committed.
LOOK_S = 5.0
# EX_IOERR of sysexits.h: the process cannot go on with its database.
EXIT_IO_ERROR = 74
# A commit that takes longer is a fault of the disk's, and no wait for another process: that ends with an error before.
HANGING_S = BUSY_TIMEOUT_MS / 1_000 + 5.0
# SQLite's word for a disk that is full, broken, read-only or busy beyond the timeout; the rest are faults of ours.
_UNAVAILABLE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[Any], Any]
    is_durable: bool
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]
    is_alone: bool = False
    is_repeatable: bool = True


class SqliteConnection(sqlite3.Connection):
    """One that knows how this engine words things."""

    dialect: Dialect = SQLITE
    may_be_done = False
    is_at_once = False


def connect(
    path: Path,
    *,
    prepare: Callable[[sqlite3.Connection], None] | None = None,
    now_ms: Callable[[], int] = steady_ms,
) -> SqliteConnection:
    """Open a connection with the gateway's settings; usable from one thread at a time.

    Args:
        prepare: registers SQL functions.
        now_ms: what the SQL function of this name gives.

    Raises:
        StoreUnavailable: the file cannot be opened, or is not a database.
    """
    try:
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256, factory=SqliteConnection
        )
    except sqlite3.Error as error:
        raise _translated(error, path) from error
    try:
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.create_function("now_ms", 0, now_ms, deterministic=True)  # one time for each statement
        if prepare is not None:
            prepare(connection)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise _translated(error, path) from error
        raise
    return connection


def _translated(error: sqlite3.Error, path: Path) -> Exception:
    """StoreUnavailable for what an operator can mend; anything else is a fault of ours and stays what it is."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF == sqlite3.SQLITE_READONLY:
        return StoreUnavailable(
            f"this user may not write into {path.parent}, or into {path.name} there. Nothing was committed. "
            f"Run ethos as the owner of the directory, and check that its disk can be written."
        )
    if code is not None and code & 0xFF in _UNAVAILABLE:
        return StoreUnavailable(f"{path}: {error} ({error.sqlite_errorname}). Nothing was committed.")
    return error


class SqliteEngine:
    """One SQLite file: `write` commits, `read` sees what is committed; see `gateway.store.engine.Engine`."""

    dialect = SQLITE

    def __init__(
        self,
        path: Path,
        *,
        prepare: Callable[[sqlite3.Connection], None] | None = None,
        now_ms: Callable[[], int] = steady_ms,
        end: Callable[[str], NoReturn] | None = None,
    ) -> None:
        """Open the file and start the threads.

        Args:
            path: the database file; its directory must exist.
            prepare: run on every new connection, to register SQL functions.
            now_ms: the clock for leases and waits, in milliseconds.
            end: ends the process at once, saying why: for a database that must not be written to any more, not even
                by closing it. By default with exit code `EXIT_IO_ERROR`.

        Raises:
            StoreUnavailable: the file cannot be opened, is not a database, or was marked for a check and is damaged.
        """
        self.path = path
        self._connect = partial(connect, path, prepare=prepare, now_ms=now_ms)
        self._writer = self._connect()
        self._writer.execute("PRAGMA wal_autocheckpoint = 0")
        _check_if_marked(self._writer, path)
        self._end_process = end or _end_process
        self._names = (os.fspath(path), os.fspath(log_of(path)))
        self._files, self._log_bytes = _found(self._names)
        self._is_in_doubt = False
        self._jobs_in_log = 0
        self._carried_bytes = 0
        self._level = "FULL"
        self._problem: str | None = None
        self._committing_since_s: float | None = None
        self._seen_version = _data_version(self._writer)
        self._foreign_commits = 0
        self._asked_alone = 0
        self._jobs: queue.SimpleQueue[Sequence[_Job] | None] = queue.SimpleQueue()
        self._patient: list[_Job] = []
        self._crowd: deque[_Job] = deque()
        self._readers = Readers(self._connect, most=READERS)
        self._thread = threading.Thread(target=self._write_until_closed, name="store-writer", daemon=True)
        self._thread.start()
        self._is_closed = False

    @property
    def foreign_commits(self) -> int:
        """Grows when another connection was seen to have committed; looked at with each commit of our own."""
        return self._foreign_commits

    @property
    def is_held(self) -> bool:
        """Work is done alone, or is about to be: a write waits for as long as that takes, such as to copy the file."""
        return self._asked_alone > 0

    def of(self, store: str) -> SqliteEngine:  # noqa: ARG002 (there is one writer)
        """Itself: no two works ever write at the same time."""
        return self

    async def write(
        self,
        work: Work[T],
        *,
        is_durable: bool = True,
        is_urgent: bool = True,
        is_of_crowd: bool = False,
        is_repeatable: bool = True,
        alone: Sequence[str] | None = None,  # noqa: ARG002 (it always is)
    ) -> T:
        """Run `work` in the writer thread.

        Jobs are committed in the order in which they are asked for, but those of a crowd in an order of their own.
        Where another job of its commit fails, all is rolled back, and what is repeatable runs a second time.
        """
        if self._is_closed:
            raise StoreUnavailable(f"{self.path} is closed")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        job = _Job(work, is_durable, loop, done, is_repeatable=is_repeatable)
        if is_of_crowd:
            self._hand_over()
            self._crowd.append(job)
            self._jobs.put([])  # wakes the writer
            return await done
        self._patient.append(job)
        if is_urgent:
            self._hand_over()
        elif len(self._patient) == 1:
            loop.call_later(PATIENCE_S, self._hand_over)
        return await done

    async def write_at_once(
        self,
        work: Asking[T],
        *,
        is_durable: bool = True,
        is_of_crowd: bool = False,
        alone: Sequence[str] = (),  # noqa: ARG002 (it always is)
    ) -> T:
        """As `write`: nothing is far away here."""
        return await self.write(lambda connection: work(connection)(), is_durable=is_durable, is_of_crowd=is_of_crowd)

    async def outside(self, work: SqliteWork[T]) -> T:
        """Run `work` in the writer thread outside of any transaction, for what SQLite does not do inside of one.

        Other writers wait meanwhile. A transaction that `work` leaves open is rolled back.

        Raises:
            StoreUnavailable: the disk is full or broken.
        """
        if self._is_closed:
            raise StoreUnavailable(f"{self.path} is closed")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._hand_over()
        self._jobs.put([_Job(work, True, loop, done, is_alone=True)])  # noqa: FBT003 (a field, not a flag)
        self._asked_alone += 1
        try:
            return await done
        finally:
            self._asked_alone -= 1

    async def write_long(self, work: Work[T], *, alone: Sequence[str] | None = None) -> T:  # noqa: ARG002 (one writer)
        """Run `work` in a transaction, alone; `is_held` meanwhile."""
        return await self.outside(partial(_in_transaction, work))

    async def compact(self) -> None:
        """Rewrite the file without what was deleted. Needs twice its size."""
        await self.outside(compact)

    async def faults(self) -> Sequence[str]:
        """What is wrong with the structure of the file; reads all of it."""
        return await self.read(quick_check)

    def _hand_over(self) -> None:
        jobs, self._patient = self._patient, []
        if jobs:
            self._jobs.put(jobs)

    async def read(self, work: Work[T]) -> T:
        """Run `work` in a reader thread on a connection of its own."""
        if self._is_closed:
            raise StoreUnavailable(f"{self.path} is closed")
        try:
            return await self._readers.read(work)
        except sqlite3.Error as error:
            raise _translated(error, self.path) from error

    async def ask(self, asking: Asking[T]) -> T:
        """Run both of its steps in a reader thread."""
        return await self.read(lambda connection: asking(connection)())

    async def write_along(self, asking: Asking[T]) -> T:
        """As `write`."""
        return await self.write_at_once(asking)

    async def rows(self, sql: str, values: Values = ()) -> list[sqlite3.Row]:
        """All rows of one query."""
        return await self.read(lambda connection: connection.execute(sql, values).fetchall())

    async def row(self, sql: str, values: Values = ()) -> sqlite3.Row | None:
        """The first row of one query, None for none."""
        return await self.read(lambda connection: connection.execute(sql, values).fetchone())

    async def problem(self) -> str | None:
        """Why nothing can be written now, for people; None where all is well. After a failure that is tried out."""
        since_s = self._committing_since_s
        if since_s is not None and (waited_s := time.monotonic() - since_s) > HANGING_S:
            return f"{self.path}: a commit has not come back for {waited_s:.0f} s; is the disk sound?"
        if self._problem is not None:
            with contextlib.suppress(StoreUnavailable):
                await self.write(_write_nothing_new)
        return self._problem

    async def close(self) -> None:
        """Finish what was asked, then close. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._hand_over()
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        await self._readers.close()
        self._writer.close()

    # ---- the writer thread -----------------------------------------------------------------------------------------

    def _write_until_closed(self) -> None:
        is_open = True
        while is_open or self._crowd:
            group: list[_Job] = []
            jobs = self._next_jobs() if is_open else []
            while jobs is not None and not (jobs and jobs[0].is_alone):
                group += jobs
                if len(group) >= MAX_GROUP or self._jobs.empty():
                    break
                jobs = self._jobs.get()
            is_open = is_open and jobs is not None
            group += [self._crowd.popleft() for _ in range(min(MAX_OF_CROWD, len(self._crowd)))]
            if group:
                self._committing_since_s = time.monotonic()
                results = self._commit(group)
                self._look_for_files()
                self._committing_since_s = None
                _deliver(results)
                self._carry_over(len(group))
            if jobs and jobs[0].is_alone:
                _deliver([self._outside(jobs[0])])
        with contextlib.suppress(sqlite3.Error, StoreUnavailable):  # then the next start finds it as a power cut would
            self._roll_back()
            self._make_certain()

    def _next_jobs(self) -> Sequence[_Job] | None:
        """What to do next; nothing where only the crowd waits, or none."""
        try:
            return self._jobs.get(block=not self._crowd, timeout=LOOK_S)
        except queue.Empty:
            if not self._crowd:
                self._look_for_files()
            return ()

    def _commit(self, group: Sequence[_Job]) -> list[tuple[_Job, Any, BaseException | None]]:
        """Run the jobs in one transaction. A commit that fails fails them all: nothing is half done."""
        try:
            self._roll_back()  # where that failed before
            self._make_certain()
            self._set_level("FULL" if any(job.is_durable for job in group) else "NORMAL")
            self._begin()
            results = self._together(group)
            reach("database.committing")
            began_s = time.monotonic()
            self._writer.execute("COMMIT")
            happened(
                "store.commit", jobs=len(group), is_durable=self._level == "FULL", duration_s=time.monotonic() - began_s
            )
        except BaseException as error:  # noqa: BLE001 (the callers get it; the thread must live on)
            cause = self._translated(error)
            self._doubt(error)
            with contextlib.suppress(sqlite3.Error):  # then the next group begins with it
                self._roll_back()
            if isinstance(cause, StoreUnavailable):
                self._fail(str(cause))
            return [(job, None, cause) for job in group]
        reach("database.committed")
        if self._problem is not None:
            self._problem = None
            _log.info("store_back", file=self.path.name)
        return results

    def _fail(self, problem: str) -> None:
        """Take down why; the log hears of it once, and once when it is over."""
        happened("store.failure")
        if self._problem is None:
            _log.error("store_down", error=problem)
        self._problem = problem

    def _outside(self, job: _Job) -> tuple[_Job, Any, BaseException | None]:
        try:
            self._roll_back()
            self._make_certain()
            self._set_level("FULL")
            return job, job.work(self._writer), None
        except BaseException as error:  # noqa: BLE001 (the caller gets it; the thread must live on)
            self._doubt(error)
            return job, None, self._translated(error)
        finally:
            with contextlib.suppress(sqlite3.Error):  # then the next group begins with it
                self._roll_back()

    def _doubt(self, error: BaseException) -> None:
        """After an I/O error it is not known what of the log is on the disk."""
        code = getattr(error, "sqlite_errorcode", None)
        if isinstance(error, OSError) or (code is not None and code & 0xFF == sqlite3.SQLITE_IOERR):
            self._is_in_doubt = True

    def _make_certain(self) -> None:
        if not self._is_in_doubt:
            return
        try:
            make_certain(self._writer, self.path)
        except OSError as error:
            raise StoreUnavailable(f"{log_of(self.path)}: {error.strerror}. Nothing was committed.") from error
        except LogCut as error:
            with contextlib.suppress(OSError):
                check_mark(self.path).touch()
            self._end_process(
                f"{error}: the disk has lost what it was given. Look at the disk. The next start takes up what is "
                f"whole, and checks the database first."
            )
        self._is_in_doubt = False
        _log.warning("store_log_rewritten", file=self.path.name)

    def _carry_over(self, jobs: int) -> None:
        """A checkpoint, where there is enough for one."""
        self._jobs_in_log += jobs
        self._carried_bytes = min(self._carried_bytes, self._log_bytes)  # it was cut when it began again
        if self._jobs_in_log < CHECKPOINT_JOBS and self._log_bytes - self._carried_bytes < CHECKPOINT_BYTES:
            return
        self._jobs_in_log, self._carried_bytes = 0, self._log_bytes
        try:
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            self._doubt(error)
            self._fail(str(self._translated(error)))

    def _look_for_files(self) -> None:
        """Whether the names still lead to the files that are open: else what is committed is gone with the process."""
        try:
            found, self._log_bytes = _found(self._names)
        except OSError:  # it cannot be asked now; the next commit hears of it
            return
        self._files = {name: self._files[name] or identity for name, identity in found.items()}  # the log comes later
        if found == self._files:
            return
        with contextlib.suppress(sqlite3.Error):
            self._roll_back()
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database = self._names[0]
        names = " and ".join(Path(name).name for name in self._names if found[name] != self._files[name])
        if found[database] == self._files[database]:
            done = "All that was committed is in the database. Start again."
        else:
            done = "Put the file back and start again."
        self._end_process(f"{names} in {self.path.parent} was deleted or replaced while it was in use. {done}")

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def _look_for_others(self) -> None:
        """Only other connections move this number, https://www.sqlite.org/pragma.html#pragma_data_version."""
        version = _data_version(self._writer)
        if version != self._seen_version:
            self._seen_version = version
            self._foreign_commits += 1

    def _set_level(self, level: str) -> None:
        """FULL makes a commit wait for the disk; NORMAL leaves that to the next one that does."""
        if level != self._level:
            self._writer.execute(f"PRAGMA synchronous = {level}")
            self._level = level

    def _begin(self) -> None:
        self._writer.execute("BEGIN IMMEDIATE")
        self._look_for_others()

    def _together(self, group: Sequence[_Job]) -> list[tuple[_Job, Any, BaseException | None]]:
        """Run the jobs one after the other; where one fails, roll all back and run each again in its own savepoint."""
        if all(job.is_repeatable for job in group) or len(group) == 1:
            try:
                return [(job, job.work(self._writer), None) for job in group]
            except BaseException:
                if len(group) == 1 or not self._writer.in_transaction:  # a full disk has rolled back the whole group
                    raise
                self._roll_back()
                self._begin()
        return [self._beside_others(job) for job in group]

    def _beside_others(self, job: _Job) -> tuple[_Job, Any, BaseException | None]:
        """Run a job in a savepoint, so that its failure is its own."""
        self._writer.execute("SAVEPOINT job")
        try:
            result = job.work(self._writer)
        except BaseException as error:
            if not self._writer.in_transaction:  # a full disk or an I/O error has rolled back the whole group
                raise
            self._writer.execute("ROLLBACK TO job")
            self._writer.execute("RELEASE job")
            return job, None, self._translated(error)
        self._writer.execute("RELEASE job")
        return job, result, None

    def _translated(self, error: BaseException) -> BaseException:
        return _translated(error, self.path) if isinstance(error, sqlite3.Error) else error


def _in_transaction(work: Work[T], connection: SqliteConnection) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def check_mark(path: Path) -> Path:
    """The file that says: look whether the database is sound before it is used."""
    return path.with_name(path.name + ".check")


def quick_check(connection: Connection) -> list[str]:
    """What is wrong with the structure of a database, nothing when it is sound; reads the whole file."""
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check")]
    except sqlite3.DatabaseError as error:  # so damaged that the check itself stops
        return [str(error)]
    return [] if found == ["ok"] else found


def _check_if_marked(connection: SqliteConnection, path: Path) -> None:
    mark = check_mark(path)
    if not mark.exists():
        return
    found = quick_check(connection)
    if found:
        connection.close()
        raise StoreUnavailable(
            f"{path} is damaged since a failure of the disk ({found[0]}). Put a backup in its place; without one, "
            f"`sqlite3 {path.name} .recover` saves what can be saved. Then delete {mark.name}."
        )
    mark.unlink()
    _log.warning("store_checked", file=path.name)


def _found(names: Sequence[str]) -> tuple[dict[str, tuple[int, int] | None], int]:
    """Device and inode of each file, None for one that is not there; and how many bytes the last one has."""
    found: dict[str, tuple[int, int] | None] = {}
    size_bytes = 0
    for name in names:
        try:
            status = os.stat(name)  # noqa: PTH116 (half the cost of Path.stat, twice per commit)
        except FileNotFoundError:
            found[name], size_bytes = None, 0
        else:
            found[name], size_bytes = (status.st_dev, status.st_ino), status.st_size
    return found, size_bytes


def _end_process(why: str) -> NoReturn:
    """As a kill would: closing the database would write to it."""
    try:
        _log.critical("store_given_up", error=why)
        sys.stderr.write(f"ethos: {why}\n")
        sys.stderr.flush()
    finally:  # on a full disk nothing can be said
        os._exit(EXIT_IO_ERROR)


def _data_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _write_nothing_new(connection: Connection) -> None:
    """The smallest real write: the file's header, as it is."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version}")


def _deliver(results: Sequence[tuple[_Job, Any, BaseException | None]]) -> None:
    """Wake the callers, with one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, Any, BaseException | None]]] = {}
    for result in results:
        by_loop.setdefault(result[0].loop, []).append(result)
    for loop, mine in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, mine)


def _resolve(results: Sequence[tuple[_Job, Any, BaseException | None]]) -> None:
    for job, value, error in results:
        resolve(job.done, value, error)
