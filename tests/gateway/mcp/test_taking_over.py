"""Servers are added, changed and removed while the others run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.config.mcp import McpConfig
from gateway.mcp.tokens import Account
from gateway.tools.contract import ToolUnavailable
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from tests.gateway.mcp.conftest import CONTEXT, Room, Servers, command, is_running


def config(**servers: Any) -> McpConfig:
    return McpConfig.model_validate({"servers": servers})


async def child(servers: Servers, name: str) -> int:
    """The process of a child of a server."""
    return int((await servers.call(f"{name}__child")).text)


async def test_the_first_server_of_a_gateway_is_begun_and_others_stay_as_they_are(room: Room) -> None:
    async with room.servers() as servers:
        await servers.take_over(config(a=command()))
        await servers.until("up", "a")
        await servers.accept("a")
        process = await child(servers, "a")
        await servers.take_over(config(a=command(), b=command()))
        await servers.until("up", "b")
        assert servers.names == ["a", "b"]
        assert await servers.accept("b", "echo") == ["b__echo"]
        assert is_running(process), "nothing happened to the other"
        assert (await servers.call("a__post", text="tea")).text == "tea"


async def test_a_server_that_is_removed_ends_with_all_that_it_started(room: Room) -> None:
    async with room.servers(a=command(), b=command()) as servers:
        await servers.connect("a")
        await servers.connect("b")
        process = await child(servers, "a")
        hanging = asyncio.create_task(servers.call("a__hang"))
        while not servers._servers[Account("a")]._connection.running:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        await servers.take_over(config(b=command()))
        assert (await hanging).outcome == "uncertain"
        assert not is_running(process)
        assert servers.names == ["b"]
        assert {tool.name.partition("__")[0] for tool in servers.tools} == {"b"}
        assert (await servers.call("b__post", text="tea")).text == "tea"


async def test_what_its_tools_may_do_changes_without_a_new_connection(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        connected = await servers.connect()
        before = await connected.connected()
        await servers.take_over(config(s=command(effects={"echo": "read"}, tools=["echo", "post"], trusted=True)))
        assert [(tool.name, tool.effect) for tool in servers.tools] == [("s__echo", "read"), ("s__post", "act")]
        assert not servers.tools[0].shows_others
        assert await connected.connected() is before


async def test_another_command_is_another_connection(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        process = await child(servers, "s")
        await servers.take_over(config(s=command("odd", start="eager")))
        assert not is_running(process)
        await servers.until("up")
        assert any(tool.definition.name == "without_schema" for tool in servers.view("s").tools)


async def test_a_turn_that_still_has_a_tool_of_a_server_that_went_is_told_at_once(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        server, box = await servers.connect(), Toolbox(servers.tools)
        await servers.take_over(config())
        async with asyncio.timeout(5):
            called = await box.call(ToolCall(id="c1", name="s__post", arguments='{"text": "tea"}'), CONTEXT)
            assert "this was not done: the server s is not reachable now: it was taken out" in called.text
            with pytest.raises(ToolUnavailable, match="it was taken out of the configuration"):
                await server.tried()
