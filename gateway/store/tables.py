"""All tables of a database, for what goes over the whole of it: a copy, a check, a digest.

Which tables and columns there are is asked of the database. A row has one form here, whatever engine it lies in: its
columns in the order of the alphabet, and a flag as 0 or 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, Protocol

from gateway.store.engine import Connection, Engine

OWN = frozenset(["copy_progress", "copy_state", "leases", "schema", "schema_version", "search_progress", "workers"])
"""Tables that belong to one database and not to what is kept in it."""
FACTS = frozenset([
    "approved_changes", "archive", "archive_reads", "consolidation_log", "edges", "owners", "records", "search",
    "signatures", "trace_document_history", "trace_documents", "traces", "uncompared", "unembeddable", "uses",
])  # fmt: skip
"""Tables of the trace memory, which on one machine is a file of its own."""
DERIVED = frozenset([("messages", "words")])
"""Columns that are made of other columns."""

Line = tuple[Any, ...]
"""The values of one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A column whose values are those of another table's column."""

    column: str
    table: str
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        columns: in the order of the alphabet, without those that are derived.
        key: the columns of the primary key, in its order.
        flags: those that the engine has as booleans.
        numbered: the column whose values the engine gives out; None where there is none.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    flags: frozenset[str]
    parents: tuple[Parent, ...]
    numbered: str | None

    @property
    def is_of_one_row(self) -> bool:
        """A row of it may be there from the beginning, and then says nothing about what is kept."""
        return self.key == ("only_row",)

    @property
    def selected(self) -> str:
        """The statement that gives all rows in the order of the key."""
        columns, key = (", ".join(map(quoted, names)) for names in (self.columns, self.key))
        return f"SELECT {columns} FROM {quoted(self.name)} ORDER BY {key}"  # noqa: S608 (names of ours)


class End(Protocol):
    """A database as a copy sees it."""

    @property
    def engine(self) -> Engine:
        """What runs the work on it."""

    @property
    def place(self) -> str:
        """Where it is, for people; without a password."""

    @property
    def is_shared(self) -> bool:
        """Programs on other machines may use it, so that no lock of a directory keeps them away."""

    def users(self, connection: Connection) -> Sequence[str]:
        """The names of the workers that were alive just now; of one that is not shared there are none."""

    def tables(self, connection: Connection) -> Sequence[Table]:
        """All tables but those of `OWN`, parents before their children."""

    def lines(self, connection: Connection, table: Table) -> Iterator[Line]:
        """All rows in the order of the key, without holding many of them; for work in a snapshot."""

    def put(self, connection: Connection, table: Table, lines: Sequence[Line]) -> None:
        """Insert rows, with what is derived from them."""

    def clear(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Delete all rows, and what is derived from them."""

    def last_number(self, connection: Connection, table: Table) -> int:
        """The highest number that was ever given out for the column `numbered`; 0 for none."""

    def set_last_number(self, connection: Connection, table: Table, number: int) -> None:
        """Let the next number be higher than this."""

    async def index(self) -> None:
        """Make what is derived from rows and was not made with them."""


@dataclass(slots=True)
class Digest:
    """A digest of the first rows of a table, in the order of the key; the same in every engine.

    It is a chain of SHA-256, so it can be kept and gone on with. `ascii` writes a row without any doubt about where a
    value ends and what it is, and without a look at Python's own table of characters. PostgreSQL keeps no NUL in a
    text, so U+FFFD takes its place.
    """

    amount: int = 0
    value: bytes = bytes(32)

    def add(self, line: Line) -> tuple[Line, int]:
        """Take in the next row; that row without a NUL, and how many characters it has about."""
        text = ascii(line)
        if "\\x00" in text:
            line = tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in line)
            text = ascii(line)
        self.value = hashlib.sha256(self.value + text.encode("ascii")).digest()
        self.amount += 1
        return line, len(text)


def digest_of(end: End, connection: Connection, table: Table) -> Digest:
    """Of all rows of a table; for work in a snapshot."""
    digest = Digest()
    for line in end.lines(connection, table):
        digest.add(line)
    return digest


def orphans_of(connection: Connection, table: Table) -> Iterator[str]:
    """One line for people for each column with rows that have no parent."""
    for parent in table.parents:
        name, column, other, of = map(quoted, (table.name, parent.column, parent.table, parent.of))
        sql = f"""
            SELECT count(*) FROM {name} WHERE {column} IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM {other} WHERE {other}.{of} = {name}.{column})
        """  # noqa: S608 (names of ours)
        (amount,) = connection.execute(sql).fetchone()
        if amount:
            yield f"{amount} of {table.name} have no row in {parent.table}"


def count_of(connection: Connection, table: Table) -> int:
    """How many rows there are."""
    (amount,) = connection.execute(f"SELECT count(*) FROM {quoted(table.name)}").fetchone()  # noqa: S608 (ours)
    return int(amount)


def in_order(tables: Sequence[Table]) -> Sequence[Table]:
    """Parents before their children, else by name."""
    by_name = {table.name: table for table in sorted(tables, key=lambda table: table.name)}
    above = {
        name: {parent.table for parent in table.parents if parent.table != name} for name, table in by_name.items()
    }
    return [by_name[name] for name in TopologicalSorter(above).static_order()]


def quoted(name: str) -> str:
    """A name as a statement takes it, whatever words the engine has for itself."""
    return f'"{name}"'
