"""Copies the facts of the trace memory along with a store: they are a file on one machine, and tables on a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gateway.errors import StoreError
from gateway.runtime.failpoints import reach
from gateway.store.copying import SourceChanged, Told, read_again
from gateway.store.engine import Connection, snapshot
from gateway.store.sqlite.copied import SqliteEnd
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.schema import migrate, migrations
from gateway.store.tables import Digest, End, Line, Table, digest_of
from gateway.traces.lexemes import vector
from gateway.traces.search_words import register_functions
from gateway.traces.trace_store import TRACES_NAME

if TYPE_CHECKING:
    from gateway.store.postgres.connection import PostgresConnection  # psycopg is an extra

_AT_ONCE = 500
_ANY = ("SELECT 1 FROM owners LIMIT 1", "SELECT 1 FROM trace_documents LIMIT 1")
_DERIVED = frozenset(["search", "signatures"])  # made of the traces
_ANALYZE = "ANALYZE owners, traces, search, signatures"  # else its first plans are made for empty tables
_WORDS = "COPY search (number, owner, size, words) FROM STDIN"


async def copy_facts(source: Path | str, target: Path | str, told: Told) -> None:
    """Put the facts of the source in the place of those of the target, and compare both; nothing where there are none.

    Called again after it was broken off, it goes on behind the rows that are there. Where these are not the source's
    first ones, it begins from the start.

    Args:
        source, target: each a data directory, or the address of a server.
        told: called from any thread.

    Raises:
        StoreError: one of the two cannot be used now, or they differ in the end.
    """
    async with _facts_of(source, makes=False) as one:
        if one is None or not any([await one.engine.row(sql) for sql in _ANY]):
            return
        async with _facts_of(target, makes=True) as other:
            if other is None:
                return
            loop = asyncio.get_running_loop()
            copy = partial(_copy, one=one, other=other, loop=loop, told=told)
            try:
                read = await one.engine.read(partial(copy, done=await other.engine.read(partial(_digests, end=other))))
            except SourceChanged:
                await other.engine.write_long(partial(_clear, end=other))
                read = await one.engine.read(partial(copy, done={}))
            if other.is_shared:
                await other.engine.write(lambda connection: connection.execute(_ANALYZE).close())
            there = await other.engine.read(partial(_digests, end=other))
            if differing := sorted(name for name, digest in read.items() if there.get(name) != digest):
                raise StoreError(f"The facts of {other.place} are not those of {one.place}: {', '.join(differing)}")


@asynccontextmanager
async def _facts_of(place: Path | str, *, makes: bool) -> AsyncIterator[End | None]:
    """The tables of the facts; None where there is no file, and none is to be made."""
    end: End
    if isinstance(place, Path):
        path = place / TRACES_NAME
        if not (makes or path.exists()):
            yield None
            return
        await asyncio.to_thread(migrate, path, prepare=register_functions, steps=migrations("gateway.traces"))
        end = SqliteEnd(SqliteEngine(path, prepare=register_functions))
    else:
        from gateway.store.postgres.copied import PostgresEnd  # noqa: PLC0415 (psycopg is an extra)
        from gateway.store.postgres.engine import PostgresEngine  # noqa: PLC0415 (as above)

        end = PostgresEnd(PostgresEngine(place, connections=2), place, is_of_facts=True)
    try:
        yield end
    finally:
        await end.engine.close()


def _tables(connection: Connection, end: End) -> Sequence[Table]:
    return [table for table in end.tables(connection) if table.name not in _DERIVED]


def _clear(connection: Connection, *, end: End) -> None:
    for table in reversed(end.tables(connection)):
        connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 (names of ours)


def _digests(connection: Connection, *, end: End) -> Mapping[str, Digest]:
    with snapshot(connection):
        return {table.name: digest_of(end, connection, table) for table in _tables(connection, end)}


def _copy(
    connection: Connection,
    *,
    one: End,
    other: End,
    loop: asyncio.AbstractEventLoop,
    told: Told,
    done: Mapping[str, Digest],
) -> Mapping[str, Digest]:
    """Copy all rows of one moment but those that are done; what was read.

    Raises:
        SourceChanged: what is done is not what the source has now.
    """

    def write(work: Callable[[Connection], object]) -> None:
        asyncio.run_coroutine_threadsafe(other.engine.write(work), loop).result()

    digests = {}
    at_target: dict[str, Table] = {}
    write(lambda target: at_target.update({table.name: table for table in _tables(target, other)}))
    with snapshot(connection):
        for table in _tables(connection, one):
            lines = iter(one.lines(connection, table))
            digest = digests[table.name] = read_again(table, lines, done.get(table.name, Digest()))
            while some := [digest.add(line)[0] for line in islice(lines, _AT_ONCE)]:
                write(partial(_put, end=other, table=at_target[table.name], lines=some))
                reach("copy.facts")
                told(table.name, digest.amount)
            if at_target[table.name].numbered is not None:
                last = one.last_number(connection, at_target[table.name])
                write(partial(other.set_last_number, table=at_target[table.name], number=last))
    return digests


def _put(connection: Connection, *, end: End, table: Table, lines: Sequence[Line]) -> None:
    end.put(connection, table, lines)
    if table.name != "traces":
        return
    rows = [dict(zip(table.columns, line, strict=True)) for line in lines]
    # Triggers have filled it. Its rows are copied later.
    connection.execute("DELETE FROM uncompared WHERE number >= ?", (rows[0]["number"],))
    if end.is_shared:
        found = ((row["number"], row["owner"], *reversed(vector(row))) for row in rows)  # size, then words
        cast("PostgresConnection", connection).copy_in(_WORDS, found)
