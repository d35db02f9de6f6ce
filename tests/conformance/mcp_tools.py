"""What every catalogue of the tools of servers must do: a name for ever, and nothing accepted that was not shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.mcp.catalogue import CataloguedTool, CatalogueStore, Definition
from gateway.store.mcp_tools import SqlMcpTools
from tests.conformance.stores import House

READ = Definition(name="read", description="Reads.", schema='{"type": "object"}', is_read_only=True)
WRITE = Definition(name="write", description="Writes \N{SNOWMAN}.", schema='{"type": "object"}', is_destructive=False)


def catalogue(house: House) -> CatalogueStore:
    store: Any = house.store
    return SqlMcpTools(store.engine.of("mcp_tools"))


async def all_of(store: CatalogueStore) -> dict[str, CataloguedTool]:
    return {entry.tool: entry for entry in await store.tools()}


class McpToolSuite:
    """The suite."""

    async def test_what_a_server_says_is_kept_as_it_says_it(self, house: House) -> None:
        store = catalogue(house)
        await store.list_again("s", [WRITE, READ], "legacy")
        await store.list_again("a", [READ], "legacy")
        assert await store.tools() == [
            CataloguedTool(server="a", tool="a__read", definition=READ),
            CataloguedTool(server="s", tool="s__read", definition=READ),
            CataloguedTool(server="s", tool="s__write", definition=WRITE),
        ]

    async def test_a_tool_is_accepted_as_it_was_shown_and_a_change_takes_that_back(self, house: House) -> None:
        store = catalogue(house)
        await store.list_again("s", [READ, WRITE], "legacy")
        assert await store.accept("s", [("read", READ.pin), ("write", "another")]) == 1
        found = await all_of(store)
        assert (found["s__read"].is_accepted, found["s__write"].is_accepted) == (True, False)
        changed = replace(READ, description="Reads, and sends.")
        await store.list_again("s", [changed], "legacy")
        found = await all_of(store)
        assert (found["s__read"].is_accepted, found["s__read"].is_changed) == (False, True)
        assert (found["s__read"].accepted, found["s__read"].definition) == (READ, changed)
        await store.list_again("s", [READ], "legacy")
        assert (await all_of(store))["s__read"].is_accepted, "it is again what was accepted"

    async def test_a_tool_that_is_gone_keeps_its_name(self, house: House) -> None:
        store = catalogue(house)
        upper, dotted = replace(READ, name="Get"), replace(READ, name="get")
        await store.list_again("s", [upper], "legacy")
        await store.list_again("s", [dotted], "legacy")
        found = await all_of(store)
        assert not found["s__get"].is_there
        [other] = [entry for entry in found.values() if entry.is_there]
        assert other.tool.startswith("s__get_")
        await store.list_again("s", [dotted, upper], "legacy")
        assert {entry.definition.name: entry.tool for entry in await store.tools()} == {
            "Get": "s__get",
            "get": other.tool,
        }

    async def test_the_era_of_a_server_is_remembered_until_it_is_forgotten(self, house: House) -> None:
        store = catalogue(house)
        assert await store.eras() == {}
        await store.list_again("s", [READ], "legacy")
        await store.list_again("a", [], "legacy")
        await store.list_again("s", [READ], "2026-07-28")
        assert await store.eras() == {"a": "legacy", "s": "2026-07-28"}
        await store.forget("s")
        assert await store.eras() == {"a": "legacy"}

    async def test_a_server_is_forgotten_alone(self, house: House) -> None:
        store = catalogue(house)
        await store.list_again("s", [READ, WRITE], "legacy")
        await store.list_again("a", [READ], "legacy")
        assert await store.forget("s") == 2
        assert await store.forget("s") == 0
        assert list(await all_of(store)) == ["a__read"]
