"""The seam between the stores and their database: SQLite for one machine, PostgreSQL for any number of workers.

A store hands `work` to its engine: a function of a connection, which asks the database and changes nothing else,
because it may be run again. Its SQL is one text for both engines; what truly differs has a name in `dialect.py`. Rules:

- `?` and `?1` are places of values, and there is no `??`. A value that is asked for NULL as well is compared with
  `IS NOT DISTINCT FROM`.
- No `rowid`, `iif`, `ifnull`, `total`, `json_extract`, `INSERT OR …`, two-argument `max` and `min`, no bare column
  beside an aggregate, no table as the right side of `IN`, no `LIMIT -1`; each sub-select in FROM has a name.
- A flag is a boolean: `NOT is_told`, never `is_told = 0`; Python gives True and False.
- A time that is waited for is compared with `now_ms()`, which both engines have. What people read is `wall_ms()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from gateway.store.dialect import Dialect

T = TypeVar("T")
Values = Sequence[Any] | Mapping[str, Any]


class Row(Protocol):
    """One row: its columns by name and by place; `dict(row)` gives all by name."""

    def __getitem__(self, key: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...

    def keys(self) -> Iterable[str]:
        """The names of the columns."""


class Cursor(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""

    def fetchone(self) -> Any:
        """The next row; None where there is none."""

    def fetchall(self) -> list[Any]:
        """All that are left."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """As many of those that are left."""

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> object:
        """Ask for no more rows."""


class Connection(Protocol):
    """One connection, used by one thread at a time."""

    @property
    def dialect(self) -> Dialect:
        """What this engine words in its own way."""

    @property
    def may_be_done(self) -> bool:
        """Whether an earlier run of this work may have been committed: the connection broke in its COMMIT."""

    @property
    def is_at_once(self) -> bool:
        """Whether nothing may be read before the commit; see `Engine.write_at_once`."""

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""

    def execute(self, sql: str, values: Any = ..., /) -> Cursor:
        """Run one statement."""

    def executemany(self, sql: str, values: Iterable[Any], /) -> Cursor:
        """Run one statement for each of the values."""


Work = Callable[[Connection], T]
Asking = Callable[[Connection], Callable[[], T]]
"""Runs statements, and gives what takes their rows and makes the answer of them."""


class Engine(Protocol):
    """Runs the work of the stores, each in one transaction.

    Every method may raise StoreUnavailable: the database cannot be used now; nothing was committed.
    """

    @property
    def dialect(self) -> Dialect:
        """What this engine words in its own way."""

    @property
    def foreign_commits(self) -> int:
        """Grows when another process may have committed something."""

    @property
    def is_held(self) -> bool:
        """A write would have to wait long, and that is as it should be: the database is being copied."""

    def of(self, store: str) -> Engine:
        """The same for one store, whose writes do not run at the same time as one another; see `write`."""

    async def write(
        self,
        work: Work[T],
        *,
        is_durable: bool = True,
        is_urgent: bool = True,
        is_of_crowd: bool = False,
        is_repeatable: bool = True,
        alone: Sequence[str] | None = None,
    ) -> T:
        """Run `work` in a transaction and return its result once that is committed.

        Args:
            work: takes back what it did when it raises.
            is_durable: False lets the commit survive a killed process but perhaps not a power cut. A later durable
                commit makes it durable too.
            is_urgent: False lets it wait a moment, to share a commit.
            is_of_crowd: it may be one of thousands that come at once, and lets others pass.
            is_repeatable: `work` may run a second time, after all that it did was rolled back.
            alone: names; works that share one never run at the same time, in no process. None for the store's own
                name; `()` where the locks of the rows that it changes are enough.
        """

    async def write_at_once(
        self,
        work: Asking[T],
        *,
        is_durable: bool = True,
        is_of_crowd: bool = False,
        alone: Sequence[str] = (),
    ) -> T:
        """Run `work` in a transaction that needs one round trip to a server, and return what its answer then gives.

        Args:
            work: where `connection.is_at_once`, it reads results only in the function that it returns, which is called
                behind the commit and asks nothing more. What must hold for the commit it asks by `require`; where that
                does not hold, it is run again without `is_at_once`. Then it reads, decides and raises as for `write`.
            is_durable, is_of_crowd, alone: as `write` has them.
        """

    async def read(self, work: Work[T]) -> T:
        """Run `work`, which only reads."""

    async def ask(self, asking: Asking[T]) -> T:
        """Read something short in two steps: `asking` runs the statements, and what it returns takes their rows.

        On a server all that is asked at the same moment shares a round trip, and comes when all of it is there.
        """

    async def write_along(self, asking: Asking[T]) -> T:
        """Write something small that is written again and again, in two steps as `ask`. It may be done twice.

        On a server all such writes of one moment are one durable transaction, and what is asked then goes with them.
        """

    async def rows(self, sql: str, values: Values = ()) -> list[Any]:
        """All rows of one query."""

    async def row(self, sql: str, values: Values = ()) -> Any:
        """The first row of one query, None for none."""

    async def write_long(self, work: Work[T], *, alone: Sequence[str] | None = None) -> T:
        """The same for work that takes long, and of which nobody is to see a half: `is_held` meanwhile."""

    async def compact(self) -> None:
        """Take what was deleted out of the files of the database."""

    async def faults(self) -> Sequence[str]:
        """What is wrong with the structure of the database, nothing when it is sound; may read all of it."""

    async def problem(self) -> str | None:
        """Why nothing can be written now, for people; None where all is well. After a failure that is tried out."""

    async def close(self) -> None:
        """Finish what was asked, then close. Idempotent."""


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Everything read in the block is of one moment; for work that reads. It also costs less on SQLite."""
    connection.execute(connection.dialect.snapshot)
    try:
        yield
    finally:
        if connection.in_transaction:  # an error may have ended it
            connection.execute("COMMIT")


def require(connection: Connection, sql: str, values: Sequence[Any] = ()) -> None:
    """Where everything is asked at once: let it be committed only where a query finds a row, which it may lock.

    Otherwise the server takes all back, and the work is run again step by step.
    """
    connection.execute(
        f"WITH found AS MATERIALIZED ({sql}) SELECT refuse() WHERE NOT EXISTS (SELECT FROM found)",  # noqa: S608 (a query of ours)
        values,
    )


def at_once(sql: str, values: Sequence[Any] = ()) -> Asking[int]:
    """As `statement`, for `write_at_once`."""

    def work(connection: Connection) -> Callable[[], int]:
        cursor = connection.execute(sql, values)
        return lambda: cursor.rowcount

    return work


def statement(sql: str, values: Sequence[Any] = ()) -> Work[int]:
    """Work that runs one statement and gives the number of rows that it changed.

    The cursor stays in the thread that made it: letting go of one elsewhere would disturb the writer.
    """

    def work(connection: Connection) -> int:
        return connection.execute(sql, values).rowcount

    return work
