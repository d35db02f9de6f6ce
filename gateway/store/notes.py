"""What adapters must not forget: see `gateway.protocols.AdapterNotes`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gateway.pipeline.storable import storable_id
from gateway.runtime.failpoints import reach
from gateway.store.engine import Engine, statement
from gateway.store.payloads import storable
from gateway.store.rows import put

_REMOVE = "DELETE FROM adapter_notes WHERE channel = ? AND key = ?"
_GET = "SELECT text FROM adapter_notes WHERE channel = ? AND key = ?"
_KEYS = "SELECT key FROM adapter_notes WHERE channel = ? AND substr(key, 1, ?) = ? ORDER BY key"


class SqlNotes:
    """The notes of one channel. Keys hold ids of platforms, and so take the form that those are stored in."""

    def __init__(self, engine: Engine, channel: str) -> None:
        self._engine = engine
        self._channel = channel

    async def get(self, key: str) -> str | None:
        row = await self._engine.row(_GET, (self._channel, storable_id(key)))
        return None if row is None else str(row["text"])

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        row = {"channel": self._channel, "key": storable_id(key), "text": storable(text)}
        work = partial(put, table="adapter_notes", columns=row, key="channel, key")
        await self._engine.write(work, is_durable=is_durable, alone=())
        reach("notes.kept")

    async def remove(self, key: str) -> None:
        await self._engine.write(statement(_REMOVE, (self._channel, storable_id(key))), is_durable=False, alone=())

    async def keys(self, prefix: str = "") -> Sequence[str]:
        prefix = storable_id(prefix)
        values = (self._channel, len(prefix), prefix)
        return [str(row["key"]) for row in await self._engine.rows(_KEYS, values)]
