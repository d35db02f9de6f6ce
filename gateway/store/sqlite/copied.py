"""An SQLite database as one end of a copy; see `gateway.store.tables.End`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from gateway.errors import StoreUnavailable
from gateway.store.engine import Connection
from gateway.store.sqlite.engine import SqliteConnection, SqliteEngine
from gateway.store.sqlite.search import SearchIndex
from gateway.store.tables import OWN, Line, Parent, Table, in_order, quoted

_TABLES = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%'"
_BEHIND = "SELECT 1 FROM search_progress WHERE until < (SELECT max(id) FROM messages)"
_LAST = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?"


class SqliteEnd:
    """One file."""

    is_shared = False

    def __init__(self, engine: SqliteEngine) -> None:
        self.engine = engine

    @property
    def place(self) -> str:
        """The data directory."""
        return str(self.engine.path.parent)

    def users(self, connection: Connection) -> Sequence[str]:  # noqa: ARG002 (the lock of the directory is held)
        """Nobody."""
        return ()

    def tables(self, connection: Connection) -> Sequence[Table]:
        """All tables but SQLite's own and those of the full-text index."""
        names = [name for (name,) in connection.execute(_TABLES).fetchall() if name not in OWN]
        return in_order([_table(connection, name) for name in names])

    def lines(self, connection: Connection, table: Table) -> Iterator[Line]:
        """Rows, read one by one."""
        cursor = cast("SqliteConnection", connection).cursor()
        cursor.row_factory = None
        return cursor.execute(table.selected)

    def put(self, connection: Connection, table: Table, lines: Sequence[Line]) -> None:
        """Insert rows."""
        columns, marks = ", ".join(map(quoted, table.columns)), ", ".join("?" * len(table.columns))
        connection.executemany(f"INSERT INTO {quoted(table.name)} ({columns}) VALUES ({marks})", lines)  # noqa: S608 (names of ours)

    def clear(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Delete all rows; the full-text index is emptied at once, and not row by row."""
        connection.execute("INSERT INTO search (search) VALUES ('delete-all')")
        connection.execute("UPDATE search_progress SET until = 0")
        for table in reversed(tables):
            connection.execute(f"DELETE FROM {quoted(table.name)}")  # noqa: S608 (names of ours)
        connection.execute("DELETE FROM sqlite_sequence")

    def last_number(self, connection: Connection, table: Table) -> int:
        """What AUTOINCREMENT remembers, or the highest that is there."""
        column, name = quoted(table.numbered or ""), quoted(table.name)
        (highest,) = connection.execute(f"SELECT coalesce(max({column}), 0) FROM {name}").fetchone()  # noqa: S608 (names of ours)
        (given_out,) = connection.execute(_LAST, (table.name,)).fetchone()
        return max(int(highest), int(given_out))

    def set_last_number(self, connection: Connection, table: Table, number: int) -> None:
        """Tell AUTOINCREMENT; a table without it goes on from its highest row."""
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, number))

    async def index(self) -> None:
        """The full-text index, in batches, each with its place."""
        await SearchIndex(self.engine).catch_up()
        if await self.engine.row(_BEHIND) is not None:  # it has gone to the log why
            raise StoreUnavailable(f"{self.engine.path} has no room for its index; make room, and call this again")


def _table(connection: Connection, name: str) -> Table:
    found = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
    key = [row["name"] for row in sorted(found, key=lambda row: int(row["pk"])) if row["pk"]]
    types = {row["name"]: row["type"] for row in found}
    parents = connection.execute('SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (name,)).fetchall()
    return Table(
        name=name,
        columns=tuple(sorted(types)),
        key=tuple(key),
        flags=frozenset(),
        parents=tuple(Parent(column=row[0], table=row[1], of=row[2]) for row in parents),
        numbered=key[0] if len(key) == 1 and types[key[0]] == "INTEGER" else None,
    )
