"""What adapters must not forget: see `gateway.protocols.AdapterNotes`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gateway.pipeline.storable import storable_id
from gateway.runtime.failpoints import reach
from gateway.store.engine import Connection, Engine, Work
from gateway.store.leases import hold_epoch
from gateway.store.payloads import storable
from gateway.store.rows import put

_REMOVE = "DELETE FROM adapter_notes WHERE channel = ? AND key = ?"
_GET = "SELECT text FROM adapter_notes WHERE channel = ? AND key = ?"
_KEYS = "SELECT key FROM adapter_notes WHERE channel = ?1 AND substr(key, 1, length(?2)) = ?2 ORDER BY key"


class SqlNotes:
    """The notes of one channel. Keys hold ids of platforms, and so take the form that those are stored in."""

    def __init__(self, engine: Engine, channel: str, epoch: Callable[[], int] = int) -> None:
        """`epoch` gives that of the lease under which the channel is held; 0 where there is only one worker."""
        self._engine = engine
        self._channel = channel
        self._epoch = epoch

    async def get(self, key: str) -> str | None:
        row = await self._engine.row(_GET, (self._channel, storable_id(key)))
        return None if row is None else str(row["text"])

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        row = {"channel": self._channel, "key": storable_id(key), "text": storable(text)}
        await self._write(partial(put, table="adapter_notes", columns=row, key="channel, key"), is_durable=is_durable)
        reach("notes.kept")

    async def remove(self, key: str) -> None:
        values = (self._channel, storable_id(key))
        await self._write(lambda connection: connection.execute(_REMOVE, values), is_durable=False)

    async def _write(self, ask: Work[object], *, is_durable: bool) -> None:
        """Raises ClaimLost where another worker holds the channel by now."""
        epoch = self._epoch()

        def work(connection: Connection) -> Callable[[], None]:
            if epoch:
                hold_epoch(connection, f"channel:{self._channel}", epoch)
            ask(connection)
            return lambda: None

        await self._engine.write_at_once(work, is_durable=is_durable)

    async def keys(self, prefix: str = "") -> Sequence[str]:
        rows = await self._engine.rows(_KEYS, (self._channel, storable_id(prefix)))
        return [str(row["key"]) for row in rows]
