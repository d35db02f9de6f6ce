"""Keys of the HTTP API; see `gateway.people.api_keys.ApiKeyStore`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from gateway.people.api_keys import ApiKey
from gateway.store.engine import Engine, Row, statement
from gateway.store.payloads import to_ms
from gateway.store.rows import columns_of, insert, value_of

_USE = "UPDATE api_keys SET last_used_at = ?1 WHERE id = ?2 AND coalesce(last_used_at, 0) < ?1"
_REVOKE = "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"


class SqlApiKeys:
    """One row for each key; a revoked one stays, so that its name in a history means something."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, key: ApiKey) -> None:
        row = {**columns_of(key), "scopes": " ".join(key.scopes)}
        await self._engine.write(partial(insert, table="api_keys", columns=row))

    async def key(self, key_id: str) -> ApiKey | None:
        row = await self._engine.row("SELECT * FROM api_keys WHERE id = ?", (key_id,))
        return None if row is None else _key(row)

    async def keys(self) -> Sequence[ApiKey]:
        rows = await self._engine.rows("SELECT * FROM api_keys ORDER BY created_at DESC, id")
        return [_key(row) for row in rows]

    async def note_use(self, key_id: str, at: datetime) -> None:
        await self._engine.write(statement(_USE, (to_ms(at), key_id)), is_durable=False)

    async def revoke(self, key_id: str, at: datetime) -> bool:
        return await self._engine.write(statement(_REVOKE, (to_ms(at), key_id))) == 1


def _key(row: Row) -> ApiKey:
    return value_of(ApiKey, row, scopes=tuple(row["scopes"].split()))
