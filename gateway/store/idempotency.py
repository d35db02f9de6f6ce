"""The answers of writes that may be repeated; see `gateway.web.api.idempotency.RequestStore`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, statement
from gateway.store.rows import insert_new, value_of
from gateway.store.workers import IS_ALIVE

KEPT_MS = 24 * 3600 * 1000
_FORGOTTEN_AT_ONCE = 200

_KNOWN = "SELECT * FROM idempotent_requests WHERE caller = ? AND key = ?"
_TAKE_OVER = """
    UPDATE idempotent_requests SET owner = ?1 WHERE caller = ?2 AND key = ?3 AND status IS NULL AND owner <> ?1
    AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = idempotent_requests.owner AND {is_alive})
"""
_FORGET = """
    DELETE FROM idempotent_requests WHERE (caller, key) IN
        (SELECT caller, key FROM idempotent_requests WHERE created_at < ? ORDER BY created_at LIMIT ?)
"""
_END = "UPDATE idempotent_requests SET status = ?, headers = ?, body = ? WHERE caller = ? AND key = ? AND owner = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """An answer as it was given; `headers` in the caller's own notation."""

    status: int
    headers: str
    body: bytes


RequestState = Literal["new", "running", "other request"] | StoredAnswer


class SqlIdempotency:
    """Remembers for a day what was answered to whom.

    Args:
        owner: this process. What a dead process began and never answered is done again: each write of the API is
            harmless when it is done twice.
    """

    def __init__(self, engine: Engine, *, owner: str) -> None:
        self._engine = engine
        self._owner = owner

    async def begin(self, caller: str, key: str, request_hash: bytes) -> RequestState:
        now_ms = wall_ms()
        row = {"caller": caller, "key": key, "request_hash": request_hash, "owner": self._owner, "created_at": now_ms}

        def work(connection: Connection) -> RequestState:
            _forget(connection, now_ms)
            if insert_new(connection, "idempotent_requests", row):
                return "new"
            known = connection.execute(_KNOWN, (caller, key)).fetchone()
            if known["request_hash"] != request_hash:
                return "other request"
            return "running" if known["status"] is None else value_of(StoredAnswer, known)

        state = await self._engine.write(work)
        return "new" if state == "running" and await self._takes_over(caller, key) else state

    async def _takes_over(self, caller: str, key: str) -> bool:
        """Whether its owner is dead, and no other process was first."""
        taking = statement(_TAKE_OVER.format(is_alive=IS_ALIVE), (self._owner, caller, key))
        return await self._engine.write(taking) == 1

    async def forget_old(self) -> None:
        """Remove what is older than a day, also where nobody asks any more."""
        while await self._engine.write(partial(_forget, now_ms=wall_ms()), is_durable=False) == _FORGOTTEN_AT_ONCE:
            pass

    async def end(self, caller: str, key: str, answer: StoredAnswer | None) -> None:
        if answer is None:
            sql = "DELETE FROM idempotent_requests WHERE caller = ? AND key = ? AND owner = ? AND status IS NULL"
            await self._engine.write(statement(sql, (caller, key, self._owner)), is_durable=False)
            return
        row = (answer.status, answer.headers, answer.body, caller, key, self._owner)
        await self._engine.write(statement(_END, row))


def _forget(connection: Connection, now_ms: int) -> int:
    return connection.execute(_FORGET, (now_ms - KEPT_MS, _FORGOTTEN_AT_ONCE)).rowcount
