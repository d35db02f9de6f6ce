"""What signing in to servers gave: see `gateway.mcp.tokens.TokenStore`."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from gateway.store.engine import Engine, statement
from gateway.store.rows import marks_for, put

_ONE = "SELECT sealed FROM mcp_tokens WHERE server = ? AND user_id = ?"
_DROP = "DELETE FROM mcp_tokens WHERE server = ? AND user_id = ? AND sealed = ?"


class SqlMcpTokens:
    """One row for each account that is signed in."""

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

    async def forget_server(self, server: str) -> int:
        return await self._engine.write(statement("DELETE FROM mcp_tokens WHERE server = ?", (server,)))

    async def forget_people(self, user_ids: Collection[str]) -> None:
        sql = f"DELETE FROM mcp_tokens WHERE user_id IN ({marks_for(user_ids)})"  # noqa: S608 (question marks)
        await self._engine.write(statement(sql, tuple(user_ids)))
