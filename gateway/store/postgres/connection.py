"""One connection to PostgreSQL with the cursor and the rows that the stores expect.

Inside of `begin` and `commit` everything goes in one pipeline of libpq: a statement is sent when somebody asks for its
result, or for that of a later one. An error may therefore be raised by the statement after the one that it is of.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, cast

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Loader
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import BaseRowFactory, RowMaker, no_result
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import BytesBinaryDumper

from gateway.store.dialect import POSTGRES, Dialect
from gateway.store.engine import Values
from gateway.store.postgres.batching import BatchingConnection
from gateway.store.postgres.statements import numbered

# So many characters, of up to four bytes, may be on their way: a socket takes more than that. A pipeline of psycopg
# waits for answers before all of a long statement is sent, which may be for ever.
MOST_AT_ONCE = 16_384
# A session of ours that holds locks and asks nothing is not at work any more: its worker was paused, or its network is
# silent. Shorter than a lease, so that what others may take by then is not locked.
IDLE_IN_TRANSACTION_MS = 5_000

logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # what it warns of is raised as well, and told by who hears it


class NamedRow(tuple[Any, ...]):
    """A row by place and by name; there is one class for each set of names."""

    __slots__ = ()
    names: tuple[str, ...] = ()
    places: Mapping[str, int] = {}

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self.places[key] if key.__class__ is str else key)

    def keys(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.names


@lru_cache(maxsize=1_024)
def _row_class(names: tuple[str, ...]) -> type[NamedRow]:
    places = {name: place for place, name in reversed([*enumerate(names)])}  # of two that are alike, the first
    return type("NamedRow", (NamedRow,), {"__slots__": (), "names": names, "places": places})


def _named_rows(cursor: Any) -> RowMaker[Any]:
    result = cursor.pgresult
    if result is None or not result.nfields:
        return no_result
    return _row_class(tuple([(result.fname(place) or b"").decode() for place in range(result.nfields)]))


class _NumberLoader(Loader):
    """A sum of bigints is a numeric, https://www.postgresql.org/docs/current/functions-aggregate.html (its types)."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(int, Int8Dumper)  # by default its type depends on the value, and so does the plan
    adapters.register_dumper(bytes, BytesBinaryDumper)
    adapters.register_loader("numeric", _NumberLoader)
    return adapters


class _Context:
    """What psycopg takes adapters from."""

    adapters = _adapters()
    connection = None


class PostgresCursor:
    """What a statement gave."""

    __slots__ = ("_connection", "_cursor")

    def __init__(self, connection: PostgresConnection, cursor: psycopg.RawCursor[Any]) -> None:
        self._connection = connection
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        self._connection.settle()
        return self._cursor.rowcount

    def fetchone(self) -> Any:
        """The next row; None where there is none."""
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        """All that are left."""
        return self._cursor.fetchall()

    def fetchmany(self, size: int, /) -> list[Any]:
        """As many of those that are left."""
        return self._cursor.fetchmany(size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def close(self) -> None:
        """Ask for no more rows."""
        self._cursor.close()


class _Cursors(PostgresCursor):
    """What a statement gave for each of many values: the last one's rows, and the count of all."""

    __slots__ = ("_cursors",)

    def __init__(self, connection: PostgresConnection, cursors: Sequence[psycopg.RawCursor[Any]]) -> None:
        super().__init__(connection, cursors[-1] if cursors else connection.cursor())
        self._cursors = cursors

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        self._connection.settle()
        return sum(cursor.rowcount for cursor in self._cursors)


class PostgresConnection:
    """One connection, used by one thread at a time; see `gateway.store.engine.Connection`."""

    dialect: Dialect = POSTGRES

    def __init__(self, connection: psycopg.Connection[Any], *, statement_timeout_s: float) -> None:
        """Take over a new connection, in autocommit, and set its limits.

        Through a pooler they are set in each transaction that writes, since a setting of the session would be left to
        whoever gets the server's connection next. A process id that is not the server's own gives a pooler away.
        """
        self._connection = connection
        self._block: AbstractContextManager[psycopg.Pipeline] | None = None
        self._pipeline: psycopg.Pipeline | None = None
        self._on_their_way = 0
        self._is_open = False
        self._clock_ms: int | None = None
        self.may_be_done = False
        self.is_at_once = False
        self._cleared = 0
        self.is_committing = False
        self._limits = (str(round(statement_timeout_s * 1_000)), str(IDLE_IN_TRANSACTION_MS))
        own = connection.info.backend_pid
        row = self.execute(
            "SELECT pg_backend_pid() <> ?1, set_config('statement_timeout', ?2, pg_backend_pid() <> ?1),"
            " set_config('idle_in_transaction_session_timeout', ?3, pg_backend_pid() <> ?1)",
            (own, *self._limits),
        ).fetchone()
        self.is_pooled = bool(row[0])

    @property
    def in_transaction(self) -> bool:
        """Whether one is open, and good."""
        pgconn = self._connection.pgconn
        is_failed = (
            pgconn.pipeline_status == PipelineStatus.ABORTED or pgconn.transaction_status == TransactionStatus.INERROR
        )
        return self._is_open and not is_failed

    @property
    def is_broken(self) -> bool:
        """Whether it is of no use any more."""
        return self._connection.closed

    def execute(self, sql: str, values: Values = ()) -> PostgresCursor:
        """Run one statement; it may raise what an earlier one did wrong."""
        if sql == self.dialect.snapshot:
            self._enter()
            self._is_open = True
        cursor = PostgresCursor(self, self._execute(sql, values))
        if sql == "COMMIT" and self._is_open:
            self._is_open = False
            self._leave()
        return cursor

    def executemany(self, sql: str, values: Iterable[Values]) -> PostgresCursor:
        """Run one statement for each of the values."""
        return _Cursors(self, [self._execute(sql, each) for each in values])

    def cursor(self) -> psycopg.RawCursor[Any]:
        """One that has asked nothing yet."""
        return cast("psycopg.RawCursor[Any]", self._connection.cursor())

    def settle(self) -> None:
        """Wait until all that was asked is done; the first error of it is raised here."""
        if self._pipeline is not None:
            self._on_their_way = 0
            self._pipeline.sync()

    # ---- transactions -----------------------------------------------------------------------------------------------

    def begin(self, *, is_durable: bool, alone: Sequence[str], is_long: bool = False) -> None:
        """Begin a transaction that writes; nothing is sent yet.

        Who waited for a lock must read what its last holder wrote, whatever the database's default isolation is.

        Args:
            is_durable: the commit waits for the server's disk.
            alone: names of what no other transaction may hold at the same time.
            is_long: a statement may take any time.
        """
        self._enter()
        self._is_open = True
        self._execute("BEGIN ISOLATION LEVEL READ COMMITTED", ())
        wanted, values = [], []
        for name, value in self._settings(is_durable=is_durable, is_long=is_long):
            wanted.append(f"set_config('{name}', ?, true)")
            values.append(value)
        for name in sorted(set(alone)):  # always in the same order, so that none waits for another in a circle
            wanted.append("pg_advisory_xact_lock(hashtextextended(?, 0))")
            values.append(name)
        if wanted:
            self._execute(f"SELECT {', '.join(wanted)}", values)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Send what is asked in the block at once, and have all answers at its end; for what only reads."""
        self._enter()
        yield
        self._leave()

    def commit(self) -> None:
        """Send what is left, and commit.

        Raises:
            psycopg.Error: also where a statement had failed and nobody looked: then nothing was committed.
        """
        self.is_committing = True
        ended = self._execute("COMMIT", ())
        self._leave()
        self._is_open = self.is_committing = False
        if ended.statusmessage != "COMMIT":
            raise psycopg.errors.InFailedSqlTransaction("an error of a statement was passed over")

    def clear(self) -> None:
        """Take back whatever a failure left open."""
        self._is_open = self.is_committing = False
        with contextlib.suppress(psycopg.Error):  # it was raised before, or the connection is broken
            self._leave()
        if self.is_broken:
            return
        is_idle = self._connection.pgconn.transaction_status == TransactionStatus.IDLE
        self._cleared += 1
        # What was to be prepared behind the error was not. psycopg forgets it with either of these, but looks only at
        # the answer to a statement that it has not seen before.
        ending = "DEALLOCATE ALL" if is_idle else "ROLLBACK"
        if not is_idle or self._connection.prepare_threshold is not None:
            self._connection.execute(f"{ending} -- {self._cleared}", prepare=False)

    def script(self, text: str) -> None:
        """Run several statements, which hold no values and take any time."""
        self._leave()
        self._connection.execute("SET LOCAL statement_timeout = 0")
        self._connection.execute(text.encode())
        self._enter()

    def copy_in(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Send rows by `COPY … FROM STDIN`, which no pipeline can, in the transaction that is open."""
        self._leave()
        with self.cursor().copy(sql.encode()) as copying:
            for row in rows:
                copying.write_row(row)
        self._enter()

    def outside(self, *statements: str) -> None:
        """Run statements that cannot be part of a transaction, however long they take."""
        limit = "0" if not self.is_pooled else None  # there is none of ours behind a pooler
        try:
            if limit is not None:
                self._connection.execute("SET statement_timeout = 0")
            for one in statements:
                self._connection.execute(one.encode())
        finally:
            if limit is not None and not self.is_broken:
                self.execute("SELECT set_config('statement_timeout', ?, false)", (self._limits[0],))

    def set_clock(self, now_ms: int) -> None:
        """Let `now_ms()` be this, and stand still, in this session."""
        if now_ms != self._clock_ms:
            self.execute("SELECT set_config('ethos.now_ms', ?, false)", (str(now_ms),))
            self._clock_ms = now_ms

    def close(self) -> None:
        """Close it; idempotent."""
        self._connection.close()

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _settings(self, *, is_durable: bool, is_long: bool) -> Iterator[tuple[str, str]]:
        if not is_durable:
            yield "synchronous_commit", "off"
        if is_long:
            yield "statement_timeout", "0"
            yield "idle_in_transaction_session_timeout", "0"
        elif self.is_pooled:
            yield "statement_timeout", self._limits[0]
            yield "idle_in_transaction_session_timeout", self._limits[1]

    def _execute(self, sql: str, values: Values) -> psycopg.RawCursor[Any]:
        text, names = numbered(sql)
        given = [values[name] for name in names] if isinstance(values, Mapping) else values
        size = len(text)
        for place, value in enumerate(given):
            if isinstance(value, str):
                size += len(value)
                if "\0" in value:  # which no text of PostgreSQL can hold
                    given = [*given]
                    given[place] = value.replace("\0", "\ufffd")
            elif isinstance(value, bytes):
                size += len(value)
        cursor = self.cursor()
        if self._pipeline is None:
            return cursor.execute(text.encode(), given)
        if size > MOST_AT_ONCE:
            self._leave()
            cursor.execute(text.encode(), given)
            self._enter()
            return cursor
        self._on_their_way += size
        if self._on_their_way > MOST_AT_ONCE:
            self.settle()
            self._on_their_way = size
        return cursor.execute(text.encode(), given)

    def _enter(self) -> None:
        self._block = self._connection.pipeline()
        self._pipeline = self._block.__enter__()
        self._on_their_way = 0

    def _leave(self) -> None:
        block, self._block, self._pipeline = self._block, None, None
        if block is not None:
            block.__exit__(None, None, None)


def connect(url: str, *, timeout_s: float, statement_timeout_s: float, is_preparing: bool) -> PostgresConnection:
    """Open a connection; usable from one thread at a time.

    Args:
        url: as libpq takes it.
        timeout_s: for each of its hosts.
        statement_timeout_s: for each statement.
        is_preparing: the server keeps the plans of statements that come often.

    Raises:
        psycopg.Error: it cannot be reached, or refuses us.
    """
    connection: psycopg.Connection[Any] = BatchingConnection.connect(
        url,
        autocommit=True,
        prepare_threshold=2 if is_preparing else None,
        context=_Context(),
        row_factory=cast("BaseRowFactory[Any]", _named_rows),
        cursor_factory=psycopg.RawCursor,
        connect_timeout=max(2, round(timeout_s)),  # libpq takes less for 2
        client_encoding="UTF8",
        fallback_application_name="ethos",
        tcp_user_timeout=5_000,
        keepalives_idle=2,
        keepalives_interval=1,
        keepalives_count=3,
    )
    try:
        return PostgresConnection(connection, statement_timeout_s=statement_timeout_s)
    except BaseException:
        connection.close()
        raise
