"""The tombstones of a database that many workers share: see `gateway.domain.tombstones.Tombstones`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.domain.tombstones import Tombstone
from gateway.store.engine import Connection, Engine, Row
from gateway.store.rows import columns_of, insert, value_of

_ALL = "SELECT * FROM tombstones ORDER BY erased_at, id"
DUE = "SELECT * FROM tombstones WHERE NOT EXISTS (SELECT 1 FROM erasures WHERE erasures.id = tombstones.id)"
"""The erasures that are decided and not done yet; mostly none."""


class SqlTombstones:
    """One row for each; none is ever deleted."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def all(self) -> Sequence[Tombstone]:
        rows = await self._engine.ask(lambda connection: connection.execute(_ALL).fetchall)
        return [tombstone_of(row) for row in rows]

    async def add(self, tombstones: Iterable[Tombstone]) -> None:
        rows = [{**columns_of(each), "digests": " ".join(each.digests)} for each in tombstones]

        def work(connection: Connection) -> None:
            for row in rows:
                insert(connection, "tombstones", row, "ON CONFLICT (id) DO NOTHING")

        await self._engine.write(work, alone=())


def tombstone_of(row: Row) -> Tombstone:
    """As its row has it."""
    return value_of(Tombstone, row, digests=tuple(row["digests"].split()))
