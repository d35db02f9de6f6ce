"""The tools of servers, and the eras of their protocol: see `gateway.mcp.catalogue.CatalogueStore`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pydantic import TypeAdapter

from gateway.mcp.catalogue import CataloguedTool, Definition, Era, own_name
from gateway.store.engine import Connection, Engine, Row
from gateway.store.payloads import storable
from gateway.store.rows import put, value_of

_DEFINITION = TypeAdapter(Definition)
_ALL = "SELECT * FROM mcp_tools ORDER BY server, name"
_GONE = "UPDATE mcp_tools SET is_there = ? WHERE server = ?"
_NAMES = "SELECT name, tool, accepted FROM mcp_tools WHERE server = ?"
_ACCEPT = "UPDATE mcp_tools SET accepted = definition WHERE server = ? AND name = ? AND pin = ?"


class SqlMcpTools:
    """One row for each tool that a server ever had."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def tools(self) -> Sequence[CataloguedTool]:
        return [_tool(row) for row in await self._engine.ask(lambda connection: connection.execute(_ALL).fetchall)]

    async def eras(self) -> Mapping[str, Era]:
        return {row["server"]: row["era"] for row in await self._engine.rows("SELECT server, era FROM mcp_eras")}

    async def list_again(self, server: str, found: Sequence[Definition], era: Era) -> None:
        def work(connection: Connection) -> None:
            known = {row["name"]: row for row in connection.execute(_NAMES, (server,)).fetchall()}
            taken = {row["tool"] for row in known.values()}
            put(connection, "mcp_eras", {"server": server, "era": era}, key="server")
            connection.execute(_GONE, (False, server))
            for one in found:
                name = storable(one.name)
                before = known.get(name)
                tool = own_name(server, one.name, taken=taken) if before is None else before["tool"]
                taken.add(tool)
                row = {
                    "server": server,
                    "name": name,
                    "tool": tool,
                    "definition": storable(_DEFINITION.dump_json(one).decode()),
                    "pin": one.pin,
                    "accepted": None if before is None else before["accepted"],
                    "is_there": True,
                }
                put(connection, "mcp_tools", row, key="server, name")

        await self._engine.write(work)

    async def accept(self, server: str, pins: Collection[tuple[str, str]]) -> int:
        def work(connection: Connection) -> int:
            return sum(connection.execute(_ACCEPT, (server, name, pin)).rowcount for name, pin in pins)

        return await self._engine.write(work)

    async def forget(self, server: str) -> int:
        def work(connection: Connection) -> int:
            connection.execute("DELETE FROM mcp_eras WHERE server = ?", (server,))
            return connection.execute("DELETE FROM mcp_tools WHERE server = ?", (server,)).rowcount

        return await self._engine.write(work)


def _tool(row: Row) -> CataloguedTool:
    accepted = None if row["accepted"] is None else _DEFINITION.validate_json(row["accepted"])
    return value_of(CataloguedTool, row, definition=_DEFINITION.validate_json(row["definition"]), accepted=accepted)
