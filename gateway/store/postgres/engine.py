"""PostgreSQL behind a few threads: each write is one transaction in one pipeline, each read stands for itself.

Work is run again where the server takes it back (a deadlock, a serialization failure) and where the connection breaks,
for about five seconds in all. A connection that breaks in COMMIT leaves open whether it was done, so all work can be
done twice; see `Connection.may_be_done`.
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict

from gateway.errors import StoreUnavailable
from gateway.runtime.failpoints import reach
from gateway.runtime.logs import hiding, secrets_of
from gateway.runtime.observe import happened
from gateway.runtime.postgres_reasons import is_lasting, reason_of
from gateway.store.dialect import POSTGRES
from gateway.store.engine import Asking, Connection, Values, Work
from gateway.store.postgres.connection import PostgresConnection, connect
from gateway.store.postgres.threads import Slot, Threads
from gateway.store.postgres.together import Answer, Asked, Start, Together, answers, taken

T = TypeVar("T")

# So long a call waits for a free connection, for the server, or for another transaction that took it back.
PATIENCE_S = 5.0
CONNECTIONS = 8
# So long `problem` waits for a try; one that goes on longer is asked for again by the next call.
_TRY_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
# Classes of https://www.postgresql.org/docs/current/errcodes-appendix.html that an operator can mend, or time does.
_UNAVAILABLE = (
    "08", "25006", "25P03", "26000", "28", "3D000", "40", "42501", "42P05", "53", "55P03", "57", "58", "XX",
)  # fmt: skip
# Those that may be gone with a new connection: to a server that starts, to the next primary, with plans made anew.
_PASSING = ("08", "0A000", "25006", "25P03", "26000", "53300", "57P")
_OUR_TABLES = """
    SELECT quote_ident(relname) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY relname
"""
_BROKEN = """
    SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE NOT indisvalid AND relnamespace = current_schema()::regnamespace
"""
_CHECKSUMS = "SELECT coalesce(checksum_failures, 0) FROM pg_stat_database WHERE datname = current_database()"
TRY_A_WRITE = "CREATE TEMP TABLE room ON COMMIT DROP AS SELECT TRUE AS is_left"
"""The smallest that needs room on the disk: a row in its place finds some also where nothing new can be kept."""
# Of the SQL function `refuse`, by which work that asks everything at once takes it back.
_REFUSED = "ET001"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Write(Generic[T]):
    work: Work[Any]
    is_durable: bool
    is_long: bool
    alone: Sequence[str]
    is_at_once: bool = False


class Server:
    """One database by its address, and what is known of it."""

    def __init__(self, url: str, *, statement_timeout_s: float = 30.0, prepared_statements: bool = True) -> None:
        known = conninfo_to_dict(url)
        password = known.get("password")
        host, port = known.get("host") or "this machine", known.get("port")
        self.shown = (
            f"PostgreSQL at {host}{f':{port}' if port else ''}, database {known.get('dbname') or 'of its user'}"
        )
        self._hide = hiding({*secrets_of(url), *([str(password)] if password else [])})
        self.connect: Callable[..., PostgresConnection] = partial(
            connect, url, statement_timeout_s=statement_timeout_s, is_preparing=prepared_statements
        )

    def unavailable(self, reason: str, *, is_known: bool = True) -> StoreUnavailable:
        """The error for callers, with a sentence about what was committed."""
        outcome = "Nothing was committed" if is_known else "It is not known whether it was committed"
        return StoreUnavailable(f"{self.shown} cannot be used now: {reason}. {outcome}.")

    def translated(self, error: BaseException, *, is_known: bool = True) -> BaseException:
        """StoreUnavailable for what an operator can mend; anything else is a fault of ours and stays what it is."""
        if not isinstance(error, psycopg.Error):
            return error
        is_of_server = error.sqlstate is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if not is_of_server and not (error.sqlstate or "").startswith(_UNAVAILABLE):
            return error
        return self.unavailable(self._hide(reason_of(error)), is_known=is_known)


class PostgresEngine:
    """One database: `write` commits, `read` sees what is committed; see `gateway.store.engine.Engine`."""

    dialect = POSTGRES
    is_held = False  # nothing that is done here makes the others wait

    def __init__(
        self,
        url: str,
        *,
        connections: int = CONNECTIONS,
        statement_timeout_s: float = 30.0,
        prepared_statements: bool = True,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            url: as libpq takes it.
            connections: at once, at most.
            statement_timeout_s: for each statement.
            prepared_statements: False behind a pooler that does not follow them.
            clock_ms: what `now_ms()` is in place of the server's clock, for tests; asked before each work.
        """
        self._server = Server(url, statement_timeout_s=statement_timeout_s, prepared_statements=prepared_statements)
        self._clock_ms = clock_ms
        self._alone: Sequence[str] = ("store",)
        self._state = _State(connections, self._server, self._ask)

    @property
    def foreign_commits(self) -> int:
        """Grows each second: others commit at any time, and no look at the server is cheaper than a short read.

        What is kept by it is a second old at most; news of a change may make it read at once.
        """
        return int(time.monotonic())

    def of(self, store: str) -> PostgresEngine:
        """The same for one store, whose writes do not run at the same time as one another."""
        other = copy.copy(self)
        other._alone = (store,)  # noqa: SLF001 (of its own class)
        return other

    async def write(
        self,
        work: Work[T],
        *,
        is_durable: bool = True,
        is_urgent: bool = True,  # noqa: ARG002 (a commit is never put off here)
        is_of_crowd: bool = False,  # noqa: ARG002 (the rows' locks decide who waits for whom)
        is_repeatable: bool = True,
        alone: Sequence[str] | None = None,
    ) -> T:
        """Run `work` in a transaction of its own, in a thread."""
        names = self._alone if alone is None else alone
        return await self._write(work, names, is_durable=is_durable, is_repeatable=is_repeatable)

    async def write_at_once(
        self,
        work: Asking[T],
        *,
        is_durable: bool = True,
        is_of_crowd: bool = False,  # noqa: ARG002 (as above)
        alone: Sequence[str] = (),
    ) -> T:
        """Run `work` in a transaction that is sent whole, and then read what it found."""
        return await self._run(_Write(work, is_durable, is_long=False, alone=alone, is_at_once=True))

    async def write_long(self, work: Work[T], *, alone: Sequence[str] | None = None) -> T:
        """The same without a limit of time; others go on meanwhile, and see nothing of it."""
        return await self._write(work, self._alone if alone is None else alone, is_long=True)

    async def read(self, work: Work[T]) -> T:
        """Run `work` in a thread; each statement sees what is committed when it begins."""
        return await self._do(partial(self._repeating, work, time.monotonic() + PATIENCE_S))

    async def ask(self, asking: Asking[T]) -> T:
        """Run it in a thread with all else that is asked at this moment, in one pipeline."""
        return await self._state.together.add(asking)

    async def write_along(self, asking: Asking[T]) -> T:
        """The same in a transaction."""
        return await self._state.together.add(asking, is_written=True)

    async def rows(self, sql: str, values: Values = ()) -> list[Any]:
        """All rows of one query."""
        return await self.read(lambda connection: connection.execute(sql, values).fetchall())

    async def row(self, sql: str, values: Values = ()) -> Any:
        """The first row of one query, None for none."""
        return await self.read(lambda connection: connection.execute(sql, values).fetchone())

    async def compact(self) -> None:
        """Take dead rows out of the tables, so that no query can come to them and their room is used again.

        A plain VACUUM: VACUUM FULL would write the files again, and every worker would wait for as long as that takes.
        What it frees is overwritten by what comes next. Copies in the server's log of changes, and in its backups, last
        as long as the server keeps those. The rows are counted for the server's plans.
        """
        tables = [row[0] for row in await self.rows(_OUR_TABLES)]
        statements = [f"VACUUM (ANALYZE) {table}" for table in tables]
        await self.read(lambda connection: cast("PostgresConnection", connection).outside(*statements))

    async def faults(self) -> Sequence[str]:
        """What the server knows to be broken: indexes that are not valid, pages whose checksum was wrong."""
        found = [f"the index {row[0]} is not valid; run REINDEX INDEX {row[0]}" for row in await self.rows(_BROKEN)]
        [(failures,)] = await self.rows(_CHECKSUMS)
        if failures:
            found.append(f"{failures} pages had a wrong checksum; look at the server's disk, and restore a backup")
        return found

    async def problem(self) -> str | None:
        """Why nothing can be written now, for people; None where all is well. After a failure that is tried out."""
        if self._state.problem is not None:
            if self._state.trying is None or self._state.trying.done():
                self._state.trying = asyncio.ensure_future(self._try_out())
            await asyncio.wait([self._state.trying], timeout=_TRY_S)
        return self._state.problem

    async def close(self) -> None:
        """Finish what was asked, then close. Idempotent."""
        if self._state.is_closed:
            return
        self._state.together.send()
        self._state.is_closed = True
        if self._state.trying is not None:
            await asyncio.wait([self._state.trying])
        await self._state.threads.close()

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _write(
        self,
        work: Work[T],
        alone: Sequence[str],
        *,
        is_durable: bool = True,
        is_repeatable: bool = True,
        is_long: bool = False,
    ) -> T:
        return await self._run(_Write(work, is_durable, is_long, alone), is_repeatable=is_repeatable)

    async def _run(self, job: _Write[T], *, is_repeatable: bool = True) -> T:
        until_s = time.monotonic() + PATIENCE_S
        return await self._do(
            partial(self._repeating, partial(self._writing, job), until_s, is_repeatable=is_repeatable)
        )

    async def _do(self, run: Callable[[Slot], T]) -> T:
        self._check_open()
        return await self._state.threads.do(run)

    def _ask(self, asked: Sequence[Asked]) -> asyncio.Future[Sequence[Answer]]:
        self._check_open()
        run = partial(self._written_along if any(each.is_written for each in asked) else answers, asked)
        return self._state.threads.begin(partial(self._repeating, run, time.monotonic() + PATIENCE_S))

    def _check_open(self) -> None:
        if self._state.is_closed:
            raise StoreUnavailable(f"{self._server.shown} is closed")

    async def _try_out(self) -> None:
        try:
            await self.write(lambda connection: connection.execute(TRY_A_WRITE).rowcount, alone=())
        except Exception as error:  # noqa: BLE001 (whatever it is, it stays the problem)
            self._state.fail(str(error))

    def _opened(self, slot: Slot, until_s: float) -> PostgresConnection:
        if slot.connection is not None and slot.connection.is_broken:
            slot.drop()
        if slot.connection is None:
            slot.connection = self._server.connect(timeout_s=until_s - time.monotonic())
        connection: PostgresConnection = slot.connection
        if self._clock_ms is not None:
            connection.set_clock(self._clock_ms())
        return connection

    def _writing(self, job: _Write[Any], connection: PostgresConnection) -> Any:
        if not job.is_at_once:
            return self._written(job, connection)
        if not connection.may_be_done:
            connection.is_at_once = True
            try:
                return self._written(job, connection)()
            except psycopg.Error as error:
                if error.sqlstate != _REFUSED:
                    raise
                connection.clear()
            finally:
                connection.is_at_once = False
        return self._written(replace(job, work=lambda connection: job.work(connection)()), connection)

    def _written_along(self, asked: Sequence[Asked], connection: PostgresConnection) -> Sequence[Answer]:
        def work(connection: Connection) -> list[Callable[[], Any]]:
            return [each.asking(connection) for each in asked]

        job: _Write[list[Callable[[], Any]]] = _Write(work, is_durable=True, is_long=False, alone=())
        return [taken(take) for take in self._written(job, connection)]

    def _written(self, job: _Write[Any], connection: PostgresConnection) -> Any:
        connection.begin(is_durable=job.is_durable, alone=job.alone, is_long=job.is_long)
        result = job.work(connection)
        reach("database.committing")
        began_s = time.monotonic()
        connection.commit()
        reach("database.committed")
        happened("store.commit", jobs=1, is_durable=job.is_durable, duration_s=time.monotonic() - began_s)
        self._state.succeed()
        return result

    def _repeating(
        self, once: Callable[[PostgresConnection], T], until_s: float, slot: Slot, *, is_repeatable: bool = True
    ) -> T:
        """Run it until it is done, or its time is over, or time would not mend what is wrong."""
        pause_s, is_known = _FIRST_PAUSE_S, True
        while True:
            try:
                connection = self._opened(slot, until_s)
                connection.may_be_done = not is_known
                return once(connection)
            except BaseException as error:
                is_begun = slot.connection is not None
                is_known = is_known and not (is_begun and slot.connection.is_committing and slot.connection.is_broken)
                self._clear(slot, error)
                is_over = time.monotonic() > until_s or (is_begun and not is_repeatable)
                if is_over or not (_is_taken_back(error) or _may_pass(error)):
                    failure = self._failed(error, is_known=is_known)
                    if failure is error:
                        raise
                    raise failure from error
            pause_s = _paused(pause_s)

    def _clear(self, slot: Slot, error: BaseException) -> None:
        """Leave a connection that the next job can use, or none."""
        if slot.connection is None:
            return
        try:
            slot.connection.clear()
        except psycopg.Error:  # what broke it is raised already
            slot.drop()
        if _may_pass(error):
            slot.drop()

    def _failed(self, error: BaseException, *, is_known: bool = True) -> BaseException:
        translated = self._server.translated(error, is_known=is_known)
        if translated is not error:
            self._state.fail(str(translated))
        return translated


class _State:
    """What the views of one engine share."""

    def __init__(self, connections: int, server: Server, ask: Start) -> None:
        self.together = Together(ask)
        self.threads = Threads(connections, patience_s=PATIENCE_S, busy=self._busy)
        self._connections = connections
        self.problem: str | None = None
        self.trying: asyncio.Future[None] | None = None
        self.is_closed = False
        self._server = server

    def _busy(self) -> StoreUnavailable:
        """The error of what found no free connection: either there is too much to do, or the server hangs."""
        error = self._server.unavailable(
            f"all {self._connections} connections are busy; raise `connections`, or look for slow statements"
        )
        self.fail(str(error))
        return error

    def fail(self, problem: str) -> None:
        """Take down why; the log hears of it once, and once when it is over."""
        happened("store.failure")
        if self.problem is None:
            _log.error("store_down", error=problem)
        self.problem = problem

    def succeed(self) -> None:
        """Take down that a write was committed."""
        if self.problem is not None:
            self.problem = None
            _log.info("store_back", server=self._server.shown)


def _is_taken_back(error: BaseException) -> bool:
    """Whether the server ended the transaction for another one's sake: a deadlock, a serialization failure."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("40001", "40P01")


def _may_pass(error: BaseException) -> bool:
    """Whether a new connection may be all that is needed."""
    if not isinstance(error, psycopg.Error) or isinstance(error, psycopg.errors.PipelineAborted):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_PASSING)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not is_lasting(error)


def _paused(pause_s: float) -> float:
    """Wait a while that differs from one thread to the next, and give the next one."""
    time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)
    return min(2 * pause_s, _LONGEST_PAUSE_S)
