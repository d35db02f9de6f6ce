"""Signing in to servers, and what it gave: see `gateway.mcp.sign_ins.SignInStore`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from gateway.mcp.tokens import Account
from gateway.store.engine import Connection, Engine, statement
from gateway.store.rows import marks_for, put

_ONE = "SELECT sealed FROM mcp_tokens WHERE server = ? AND user_id = ?"
_DROP = "DELETE FROM mcp_tokens WHERE server = ? AND user_id = ? AND sealed = ?"
_BEGIN = "INSERT INTO mcp_sign_ins (state, server, user_id, sealed, until_at) VALUES (?, ?, ?, ?, now_ms() + ?)"
_OTHERS = "DELETE FROM mcp_sign_ins WHERE until_at <= now_ms() OR (server = ? AND user_id = ?)"
_BEGUN = "SELECT sealed FROM mcp_sign_ins WHERE state = ? AND until_at > now_ms()"
_END = "DELETE FROM mcp_sign_ins WHERE state = ? AND until_at > now_ms()"


class SqlMcpTokens:
    """One row for each account that is signed in, and one for each that is about to be."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def sealed(self, server: str, user_id: str) -> str | None:
        row = await self._engine.row(_ONE, (server, user_id))
        return None if row is None else str(row["sealed"])

    async def keep(self, server: str, user_id: str, sealed: str) -> None:
        row = {"server": server, "user_id": user_id, "sealed": sealed}
        await self._engine.write(partial(put, table="mcp_tokens", columns=row, key="server, user_id"))

    async def drop(self, server: str, user_id: str, sealed: str) -> None:
        await self._engine.write(statement(_DROP, (server, user_id, sealed)))

    async def servers(self) -> frozenset[str]:
        rows = await self._engine.rows("SELECT DISTINCT server FROM mcp_tokens")
        return frozenset(row["server"] for row in rows)

    async def signed_in(self) -> Sequence[Account]:
        rows = await self._engine.rows("SELECT server, user_id FROM mcp_tokens ORDER BY server, user_id")
        return [Account(row["server"], row["user_id"]) for row in rows]

    async def forget_server(self, server: str) -> int:
        def work(connection: Connection) -> int:
            connection.execute("DELETE FROM mcp_sign_ins WHERE server = ?", (server,))
            return connection.execute("DELETE FROM mcp_tokens WHERE server = ?", (server,)).rowcount

        return await self._engine.write(work)

    async def forget_people(self, user_ids: Collection[str]) -> None:
        def work(connection: Connection) -> None:
            for table in ("mcp_tokens", "mcp_sign_ins"):
                sql = f"DELETE FROM {table} WHERE user_id IN ({marks_for(user_ids)})"  # noqa: S608 (names of ours)
                connection.execute(sql, tuple(user_ids))

        await self._engine.write(work)

    async def begin(self, state: str, server: str, user_id: str, sealed: str, *, lifetime_s: float) -> None:
        def work(connection: Connection) -> None:
            connection.execute(_OTHERS, (server, user_id))
            connection.execute(_BEGIN, (state, server, user_id, sealed, round(lifetime_s * 1000)))

        await self._engine.write(work)

    async def begun(self, state: str) -> str | None:
        row = await self._engine.row(_BEGUN, (state,))
        return None if row is None else str(row["sealed"])

    async def end(self, state: str) -> bool:
        return await self._engine.write(statement(_END, (state,))) == 1
