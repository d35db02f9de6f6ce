"""The operator's sign-ins; see `gateway.people.sign_ins.SignInStore`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from gateway.people.sign_ins import SignIn
from gateway.store.engine import Engine, statement
from gateway.store.payloads import to_ms
from gateway.store.rows import columns_of, insert, value_of

_SEEN = "UPDATE sign_ins SET last_seen_at = ?1 WHERE id = ?2 AND last_seen_at < ?1"


class SqlSignIns:
    """One row for each browser that is signed in."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, sign_in: SignIn) -> None:
        await self._engine.write(partial(insert, table="sign_ins", columns=columns_of(sign_in)))

    async def sign_in(self, sign_in_id: str) -> SignIn | None:
        row = await self._engine.row("SELECT * FROM sign_ins WHERE id = ?", (sign_in_id,))
        return None if row is None else value_of(SignIn, row)

    async def sign_ins(self) -> Sequence[SignIn]:
        rows = await self._engine.rows("SELECT * FROM sign_ins ORDER BY last_seen_at DESC, id")
        return [value_of(SignIn, row) for row in rows]

    async def note_seen(self, sign_in_id: str, at: datetime) -> None:
        await self._engine.write(statement(_SEEN, (to_ms(at), sign_in_id)), is_durable=False)

    async def end(self, sign_in_id: str) -> bool:
        return await self._engine.write(statement("DELETE FROM sign_ins WHERE id = ?", (sign_in_id,))) == 1

    async def end_begun_before(self, at: datetime) -> None:
        await self._engine.write(statement("DELETE FROM sign_ins WHERE created_at < ?", (to_ms(at),)))
