"""The answers of writes that may be repeated; see `gateway.web.api.idempotency.RequestStore`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Literal

from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, statement
from gateway.store.rows import insert_new, marks_for, value_of

KEPT_MS = 24 * 3600 * 1000
_FORGOTTEN_AT_ONCE = 200

_KNOWN = "SELECT * FROM idempotent_requests WHERE caller = ? AND key = ?"
_TAKE_OVER = """
    UPDATE idempotent_requests SET owner = ? WHERE caller = ? AND key = ? AND status IS NULL AND owner NOT IN ({})
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
        alive: asks which processes live besides this one.
    """

    def __init__(
        self, engine: Engine, *, owner: str, alive: Callable[[], Awaitable[Collection[str]]] | None = None
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._alive = alive

    async def begin(self, caller: str, key: str, request_hash: bytes) -> RequestState:
        now_ms = wall_ms()
        alive = {self._owner, *(() if self._alive is None else await self._alive())}
        row = {"caller": caller, "key": key, "request_hash": request_hash, "owner": self._owner, "created_at": now_ms}

        def work(connection: Connection) -> RequestState:
            connection.execute(_FORGET, (now_ms - KEPT_MS, _FORGOTTEN_AT_ONCE))
            if insert_new(connection, "idempotent_requests", row):
                return "new"
            known = connection.execute(_KNOWN, (caller, key)).fetchone()
            if known["request_hash"] != request_hash:
                return "other request"
            if known["status"] is not None:
                return value_of(StoredAnswer, known)
            taking = _TAKE_OVER.format(marks_for(alive))
            taken = connection.execute(taking, (self._owner, caller, key, *alive)).rowcount
            return "new" if taken else "running"

        return await self._engine.write(work)

    async def end(self, caller: str, key: str, answer: StoredAnswer | None) -> None:
        if answer is None:
            sql = "DELETE FROM idempotent_requests WHERE caller = ? AND key = ? AND owner = ? AND status IS NULL"
            await self._engine.write(statement(sql, (caller, key, self._owner)), is_durable=False)
            return
        row = (answer.status, answer.headers, answer.body, caller, key, self._owner)
        await self._engine.write(statement(_END, row))
