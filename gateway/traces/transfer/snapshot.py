"""A trace store as it is at one moment, read row by row on a connection of its own. Hidden traces are not in it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.store.engine import Connection
from gateway.store.sqlite.engine import connect
from gateway.traces.rows import NODE, SELECT, from_row, node_of
from gateway.traces.search_words import register_functions
from gateway.traces.trace import Owner
from gateway.traces.transfer.bounds import Bounds, owner_clause
from gateway.traces.transfer.import_records import UNNAMED, CarriedEdge, CarriedRecord, CarriedTrace, RecordKind

SECTIONS: Mapping[RecordKind, str] = {
    "node": "nodes",
    "document": "documents",
    "conversation": "conversations",
    "message": "messages",
}
"""What the kinds of records are called in a file."""

_PAGE = 500
_TRACES = f"""
    SELECT of.*, archive.verbatim, archive.archived_at FROM (
        {SELECT} WHERE {{owners}} AND deleted_at IS NULL AND traces.number > ? ORDER BY traces.number LIMIT {_PAGE}
    ) AS of
    LEFT JOIN archive ON archive.trace = of.id ORDER BY of.number
"""  # noqa: S608 (constants)
_COUNT = "SELECT count(*) FROM traces WHERE {owners} AND deleted_at IS NULL"
_SEEN = "SELECT 1 FROM traces WHERE id = ? AND deleted_at IS NULL AND {owners}"
_RECORDS = """
    SELECT records.id, records.body, owners.kind AS owner_kind, owners.id AS owner_id
    FROM records JOIN owners ON owners.number = records.owner WHERE records.kind = ? AND {owners}
    ORDER BY records.id, owner
"""
_OWNER = "SELECT kind, id FROM owners WHERE number = ?"
_OPENING = "SELECT substr(content, 1, 200) FROM traces WHERE id = ?"


class Snapshot:
    """One moment of a trace store, within bounds."""

    def __init__(self, connection: Connection, bounds: Bounds) -> None:
        """Call `snapshot_of` instead."""
        self._connection = connection
        self._numbers = bounds.numbers(connection)
        self._may_see = set(self._numbers)

    def count(self) -> int:
        """How many traces there are."""
        sql = _COUNT.format(owners=owner_clause(self._numbers))
        return int(self._connection.execute(sql).fetchone()[0])

    def traces(self) -> Iterator[CarriedTrace]:
        """All traces, in the order in which they were made."""
        # The plus keeps SQLite from the index of the owner: it would have to sort all rows again, in memory.
        sql = _TRACES.format(owners=owner_clause(self._numbers, "+owner"))
        last = 0
        while rows := self._connection.execute(sql, (last,)).fetchall():
            for row in rows:
                yield CarriedTrace(trace=from_row(row), verbatim=row["verbatim"], archived_at_ms=row["archived_at"])
            last = rows[-1]["number"]

    def edges(self) -> Iterator[CarriedEdge]:
        """All edges between things that may be seen, at whatever they begin."""
        return self._edges("SELECT * FROM edges ORDER BY source, target, kind")

    def edges_of(self, trace_id: str) -> Iterator[CarriedEdge]:
        """The edges that begin at a trace."""
        return self._edges("SELECT * FROM edges WHERE source = ? ORDER BY target, kind", trace_id)

    def edges_of_nodes(self) -> Iterator[CarriedEdge]:
        """The edges that begin at no trace."""
        sql = f"SELECT * FROM edges WHERE source >= '{NODE}' AND source < 'node;' ORDER BY source, target, kind"  # noqa: S608 (constants)
        return self._edges(sql)

    def records(self, kind: RecordKind) -> Iterator[CarriedRecord]:
        """All records of a kind."""
        sql = _RECORDS.format(owners=owner_clause(self._numbers, "records.owner"))
        for row in self._connection.execute(sql, (kind,)):
            owner = Owner(row["owner_kind"], row["owner_id"])
            place = f"{SECTIONS[kind]} {row['id']}"
            yield CarriedRecord(place=place, kind=kind, id=row["id"], body=json.loads(row["body"]), owner=owner)

    def opening(self, trace_id: str) -> str:
        """How a trace begins; for people."""
        row = self._connection.execute(_OPENING, (trace_id,)).fetchone()
        return "" if row is None else " ".join(str(row[0]).split())

    def _edges(self, sql: str, *values: str) -> Iterator[CarriedEdge]:
        for row in self._connection.execute(sql, values):
            nodes = [node_of(row["source"]), node_of(row["target"])]
            if not (self._sees(row["source"], nodes[0]) and self._sees(row["target"], nodes[1])):
                continue
            owners = {node[0] for node in nodes if node is not None}
            source = row["source"] if nodes[0] is None else nodes[0][1]
            yield CarriedEdge(
                place=f"edge {source}",
                source=source,
                target=row["target"] if nodes[1] is None else nodes[1][1],
                kind=row["kind"],
                weight=row["weight"],
                metadata=json.loads(row["metadata"]),
                created_at_ms=row["created_at"],
                owner=self._owner(min(owners)) if owners else UNNAMED,
            )

    def _sees(self, end: str, node: tuple[int, str] | None) -> bool:
        if node is not None:
            return node[0] in self._may_see
        sql = _SEEN.format(owners=owner_clause(self._numbers))
        return self._connection.execute(sql, (end,)).fetchone() is not None

    def _owner(self, number: int) -> Owner:
        row = self._connection.execute(_OWNER, (number,)).fetchone()
        return Owner(row["kind"], row["id"])


@contextlib.contextmanager
def snapshot_of(path: Path, bounds: Bounds) -> Iterator[Snapshot]:
    """Open a trace store's file for reading; whatever is written meanwhile is not seen.

    Raises:
        StoreUnavailable: it cannot be read.
    """
    with contextlib.closing(connect(path, prepare=register_functions)) as connection:
        connection.execute("BEGIN")
        yield Snapshot(connection, bounds)
