"""A database of PostgreSQL as one end of a copy; see `gateway.store.tables.End`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, cast

import psycopg

from gateway.store.copy_state import refuse_moved
from gateway.store.engine import Connection
from gateway.store.postgres.connection import PostgresConnection
from gateway.store.postgres.engine import PostgresEngine, Server
from gateway.store.postgres.search import vector
from gateway.store.tables import DERIVED, FACTS, OWN, Line, Parent, Table, in_order, quoted

# So many rows are in memory at once, besides a batch.
_FETCHED = 100
# Longer than a worker is ever silent.
_SILENT_MS = 30_000
_ALIVE = "SELECT name FROM workers WHERE beat_at > now_ms() - ? ORDER BY name"
_SAID = ("user", "assistant")
# Tables of an extension are nobody's; those of the memory (`memory.provider: postgres`) may stand beside ours.
_COLUMNS = """
    SELECT relname AS name, attname, atttypid = 'boolean'::regtype AS is_flag, attidentity <> '' AS is_numbered,
        array_position(indkey::smallint[], attnum) AS place
    FROM pg_class
    JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
    LEFT JOIN pg_index ON indrelid = pg_class.oid AND indisprimary
    WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace AND relname NOT LIKE 'ethos\\_%'
        AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')
    ORDER BY relname
"""
_PARENTS = """
    SELECT child.relname AS name, own.attname AS own, parent.relname AS parent, other.attname AS other
    FROM pg_constraint
    JOIN pg_class AS child ON child.oid = conrelid
    JOIN pg_class AS parent ON parent.oid = confrelid
    JOIN pg_attribute AS own ON own.attrelid = conrelid AND own.attnum = conkey[1]
    JOIN pg_attribute AS other ON other.attrelid = confrelid AND other.attnum = confkey[1]
    WHERE contype = 'f' AND child.relnamespace = current_schema()::regnamespace
"""
_LAST = "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence(?, ?)::regclass), 0)"
_SET_LAST = "SELECT setval(pg_get_serial_sequence(?, ?)::regclass, greatest(?3, 1), ?3 > 0)"


class PostgresEnd:
    """One database."""

    is_shared = True

    def __init__(self, engine: PostgresEngine, url: str, *, is_of_facts: bool = False) -> None:
        """`url` is the one that the engine has; `is_of_facts`: the trace memory's tables alone, else the others."""
        self.engine = engine
        self._is_of_facts = is_of_facts
        self.place = Server(url).shown

    def users(self, connection: Connection) -> Sequence[str]:
        """Workers that said within half a minute that they are there."""
        [(has_workers,)] = connection.execute("SELECT to_regclass('workers') IS NOT NULL").fetchall()
        return [name for (name,) in connection.execute(_ALIVE, (_SILENT_MS,)).fetchall()] if has_workers else []

    def tables(self, connection: Connection) -> Sequence[Table]:
        """All tables of ours, or those of the facts."""
        parents: dict[str, list[Parent]] = {}
        for row in connection.execute(_PARENTS).fetchall():
            parent = Parent(column=row["own"], table=row["parent"], of=row["other"])
            parents.setdefault(row["name"], []).append(parent)
        rows = connection.execute(_COLUMNS).fetchall()
        by_name = {
            name: [*found]
            for name, found in groupby(rows, lambda row: row["name"])
            if name not in OWN and (name in FACTS) == self._is_of_facts
        }
        return in_order([_table(name, found, parents.get(name, [])) for name, found in by_name.items()])

    def lines(self, connection: Connection, table: Table) -> Iterator[Line]:
        """Rows by way of a cursor at the server."""
        cursor = quoted(f"copied {table.name}")
        flags = [place for place, name in enumerate(table.columns) if name in table.flags]
        connection.execute(f"DECLARE {cursor} NO SCROLL CURSOR FOR {table.selected}")
        while rows := connection.execute(f"FETCH FORWARD {_FETCHED} FROM {cursor}").fetchall():
            for row in rows:
                values: list[Any] = [*row]
                for place in flags:
                    values[place] = None if values[place] is None else int(values[place])
                yield tuple(values)
        connection.execute(f"CLOSE {cursor}")

    def put(self, connection: Connection, table: Table, lines: Sequence[Line]) -> None:
        """Insert rows by COPY; a message with its words."""
        flags = [place for place, name in enumerate(table.columns) if name in table.flags]
        rows: Iterable[Sequence[Any]] = (_with_flags(line, flags) for line in lines)
        columns = table.columns
        if table.name == "messages":
            role, text, user_id = map(columns.index, ("role", "text", "user_id"))
            rows = ([*row, vector(row[text], row[user_id]) if row[role] in _SAID else None] for row in rows)
            columns += ("words",)
        sql = f"COPY {quoted(table.name)} ({', '.join(map(quoted, columns))}) FROM STDIN"
        cast("PostgresConnection", connection).copy_in(sql, rows)

    def clear(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Delete all rows, and begin with 1 again."""
        connection.execute(f"TRUNCATE {', '.join(quoted(table.name) for table in tables)} RESTART IDENTITY")

    def last_number(self, connection: Connection, table: Table) -> int:
        """What the sequence gave out, or the highest that is there."""
        column, name = quoted(table.numbered or ""), quoted(table.name)
        (highest,) = connection.execute(f"SELECT coalesce(max({column}), 0) FROM {name}").fetchone()  # noqa: S608 (names of ours)
        (given_out,) = connection.execute(_LAST, (name, table.numbered)).fetchone()
        return max(int(highest), int(given_out))

    def set_last_number(self, connection: Connection, table: Table, number: int) -> None:
        """Tell the sequence."""
        connection.execute(_SET_LAST, (quoted(table.name), table.numbered, number))

    async def index(self) -> None:
        """Count the rows for the server's plans; what search needs was written with each row."""
        await self.engine.compact()


def refuse_moved_database(url: str) -> None:
    """For a start; see `refuse_moved`.

    Raises:
        StoreMoved: the database went elsewhere, or has not all that is copied into it.
        StoreUnavailable: the server cannot be reached.
    """
    server = Server(url)
    try:
        with closing(server.connect(timeout_s=5.0)) as connection:
            refuse_moved(connection, server.shown)
    except psycopg.Error as error:
        raise server.translated(error) from error


def _with_flags(line: Line, flags: Sequence[int]) -> Sequence[Any]:
    if not flags:
        return line
    values: list[Any] = [*line]
    for place in flags:
        values[place] = None if values[place] is None else bool(values[place])
    return values


def _table(name: str, rows: Sequence[Any], parents: Sequence[Parent]) -> Table:
    keys = sorted((row["place"], row["attname"]) for row in rows if row["place"] is not None)
    return Table(
        name=name,
        columns=tuple(sorted(row["attname"] for row in rows if (name, row["attname"]) not in DERIVED)),
        key=tuple(column for _, column in keys),
        flags=frozenset(row["attname"] for row in rows if row["is_flag"]),
        parents=tuple(parents),
        numbered=next((row["attname"] for row in rows if row["is_numbered"]), None),
    )
