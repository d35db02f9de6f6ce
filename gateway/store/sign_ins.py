"""The operator's sign-ins in SQLite; see `gateway.people.sign_ins.SignInStore`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from gateway.people.sign_ins import SignIn
from gateway.store.database import Database, statement
from gateway.store.payloads import from_ms, storable, to_ms

_ADD = "INSERT INTO sign_ins (id, hash, browser, created_at, last_seen_at) VALUES (?, ?, ?, ?, ?)"
_SEEN = "UPDATE sign_ins SET last_seen_at = ?1 WHERE id = ?2 AND last_seen_at < ?1"


class SqliteSignIns:
    """One row for each browser that is signed in."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, sign_in: SignIn) -> None:
        times = (to_ms(sign_in.created_at), to_ms(sign_in.last_seen_at))
        await self._database.write(statement(_ADD, (sign_in.id, sign_in.hash, storable(sign_in.browser), *times)))

    async def sign_in(self, sign_in_id: str) -> SignIn | None:
        row = await self._database.row("SELECT * FROM sign_ins WHERE id = ?", (sign_in_id,))
        return None if row is None else _sign_in(row)

    async def sign_ins(self) -> Sequence[SignIn]:
        rows = await self._database.rows("SELECT * FROM sign_ins ORDER BY last_seen_at DESC, id")
        return [_sign_in(row) for row in rows]

    async def note_seen(self, sign_in_id: str, at: datetime) -> None:
        await self._database.write(statement(_SEEN, (to_ms(at), sign_in_id)), is_durable=False)

    async def end(self, sign_in_id: str) -> bool:
        return await self._database.write(statement("DELETE FROM sign_ins WHERE id = ?", (sign_in_id,))) == 1

    async def end_begun_before(self, at: datetime) -> None:
        await self._database.write(statement("DELETE FROM sign_ins WHERE created_at < ?", (to_ms(at),)))


def _sign_in(row: sqlite3.Row) -> SignIn:
    return SignIn(
        id=row["id"],
        hash=row["hash"],
        browser=row["browser"],
        created_at=from_ms(row["created_at"]),
        last_seen_at=from_ms(row["last_seen_at"]),
    )
