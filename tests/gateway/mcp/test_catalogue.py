"""What a server says of its tools: what of it reaches the model, under which name, and what waits for a yes."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from gateway.mcp.catalogue import CataloguedTool, Definition, own_name
from gateway.mcp.servers import NoSuchTool, ToolsChanged
from tests.gateway.mcp.conftest import Room, Servers, command
from tests.mcp_servers import modern


def offered(servers: Servers) -> list[str]:
    return [tool.name for tool in servers.tools]


def description(servers: Servers, name: str) -> str:
    [found] = [tool.description for tool in servers.tools if tool.name == name]
    return found


async def test_nothing_is_offered_before_somebody_has_accepted_it(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.test("s")
        assert offered(servers) == []
        assert await servers.accept("s", "s__echo") == ["s__echo"]
        assert await servers.accept("s", "post") == ["s__post"]
        assert offered(servers) == ["s__echo", "s__post"]
        await servers.accept("s")
        assert len(offered(servers)) == 17
        assert await servers.accept("s") == []
        with pytest.raises(NoSuchTool, match="the server s has no tool 'nope'; there are: change, child, "):
            await servers.accept("s", "nope")


async def test_the_model_sees_the_tools_of_a_server_that_sleeps(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
    async with room.servers(s=command()) as servers:
        assert len(offered(servers)) == 17
        assert servers.view("s").standing.state == "idle"
        assert (await servers.call("s__post", text="tea")).text == "tea"


async def test_an_eager_server_is_started_at_once(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
    async with room.servers(s=command(start="eager")) as servers:
        await servers.until("up")


async def test_changed_and_new_tools_are_withheld_and_read_at_the_end_of_the_turn(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        await servers.call("s__change")
        for _ in range(30):
            assert (await servers.call("s__post", text="tea")).text == "tea"
        assert "s__echo" in offered(servers), "the turn goes on with what it began with"
        servers.turn_ended()
        while "s__echo" in offered(servers):
            await servers.call("s__post", text="tea")
        assert "s__fresh" not in offered(servers)
        [changed] = [entry for entry in servers.view("s").tools if entry.tool == "s__echo"]
        assert changed.is_changed
        assert not changed.is_accepted
        assert await servers.accept("s") == ["s__echo", "s__fresh"]
        assert description(servers, "s__echo") == "Says it twice."


async def test_while_no_turn_runs_a_changed_list_is_read_at_once(room: Room) -> None:
    async with room.servers(s=command(), is_quiet=True) as servers:
        await servers.connect()
        await servers.call("s__change")
        while "s__echo" in offered(servers):
            await servers.call("s__post", text="tea")


@pytest.mark.parametrize("protocol", ["auto", "2026-07-28"])
async def test_a_server_of_the_new_era_tells_who_has_subscribed(room: Room, protocol: str) -> None:
    server = {"command": [sys.executable, modern.__file__], "protocol": protocol}
    async with room.servers(s=server, is_quiet=True) as servers:
        connected = await servers.connect()
        connection = await connected.connected()
        assert connection.era == "2026-07-28"
        assert connection.tells_changes
        assert (await servers.call("s__echo", text="tea")).text == "tea"
        assert (await servers.call("s__grow")).text == "grown"
        while len(servers.view("s").tools) == 2:
            await servers.call("s__echo", text="tea")
        assert await servers.accept("s") == ["s__fresh"]
        assert (await servers.call("s__fresh")).text == "fresh"


async def test_a_list_that_is_good_for_a_while_is_read_again_after_it(room: Room) -> None:
    async with room.servers(s={"command": [sys.executable, modern.__file__, "short"]}) as servers:
        server = await servers.connect()
        before = server._stale_from
        assert before is not None
        while server._stale_from == before:
            await servers.call("s__echo", text="tea")
            servers.turn_ended()


async def test_one_bad_tool_does_not_cost_the_others(room: Room) -> None:
    async with room.servers(s=command("odd")) as servers:
        await servers.connect()
        assert dict(servers.view("s").standing.left_out) == {
            "(without a name)": "it has no name",
            "of_list": "its schema is not one of an object",
            "no_schema_at_all": "its schema is not one of an object",
            "far": "its schema refers to 'http://192.0.2.1/s.json', which is not in it",
            "wrong": "its schema is not valid: 'colour' is not valid under any of the given schemas",
        }
        assert {"s__without_schema", "s__odd_hints", "s__echo"} <= set(offered(servers))
        assert (await servers.call("s__without_schema")).outcome == "done"


@pytest.mark.parametrize(("mode", "tools"), [("many", 200), ("pages", 20)])
async def test_a_list_without_an_end_is_cut_off(room: Room, mode: str, tools: int) -> None:
    async with room.servers(s=command(mode)) as servers:
        await servers.connect()
        assert len(offered(servers)) == tools
        assert servers.view("s").standing.left_out == {
            "(more)": "it has more than 200 tools, or more than 20 pages of them"
        }


async def test_two_servers_with_the_same_tools_have_different_names(room: Room) -> None:
    async with room.servers(a=command(), b=command(tools=["ec*", "post"])) as servers:
        await servers.connect("a")
        await servers.connect("b")
        names = offered(servers)
        assert {"a__echo", "b__echo", "b__post"} <= set(names)
        assert len(names) == len(set(names)) == 17 + 2


def test_a_name_is_ours_short_and_unique() -> None:
    assert own_name("home", "HassTurnOn") == "home__hassturnon"
    assert own_name("home", "a.b/c d") == "home__a_b_c_d"
    assert own_name("home", "A", taken={"home__a"}).startswith("home__a_")
    long = own_name("home", "x" * 100)
    assert len(long) == 64
    assert long != own_name("home", "x" * 101)


async def test_a_catalogue_belongs_to_its_server(room: Room) -> None:
    async with room.servers(gone=command()) as servers:
        await servers.connect("gone")
    async with room.servers(s=command()) as servers:
        assert offered(servers) == []


async def test_what_changed_since_it_was_seen_is_not_accepted(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        seen = {entry.tool: entry.definition.pin for entry in servers.view("s").tools}
        all_seen = servers.view("s").pin
        await servers.call("s__change")
        servers.turn_ended()
        while "s__echo" in offered(servers):
            await servers.call("s__post", text="tea")
        with pytest.raises(ToolsChanged, match="the tool s__echo changed since you looked, and nothing was accepted"):
            await servers.accept("s", "s__echo", pin=seen["s__echo"])
        with pytest.raises(ToolsChanged, match="the tools of s changed since you looked"):
            await servers.accept("s", pin=all_seen)
        assert not {"s__echo", "s__fresh"} & set(offered(servers))
        [now] = [entry for entry in servers.view("s").tools if entry.tool == "s__echo"]
        assert "-Says it again.\n+Says it twice." in now.difference
        assert await servers.accept("s", "s__echo", pin=now.definition.pin) == ["s__echo"]
        assert await servers.accept("s", pin=servers.view("s").pin) == ["s__fresh"]


def test_a_difference_says_in_words_what_is_another_by_now() -> None:
    old = Definition(name="read", description="Reads.\nQuickly.", schema='{"type": "object"}', is_read_only=True)
    new = replace(
        old, description="Reads.\nAnd sends.", schema='{"type": "object", "required": ["to"]}', is_read_only=None
    )
    entry = CataloguedTool(server="s", tool="s__read", definition=new, accepted=old)
    assert entry.difference.splitlines() == [
        "@@ -1,11 +1,14 @@",
        " name: read",
        "-only reads: yes",
        "+only reads: not said",
        " destroys: not said",
        " reaches outside: not said",
        " description:",
        " Reads.",
        "-Quickly.",
        "+And sends.",
        " arguments:",
        " {",
        '+  "required": [',
        '+    "to"',
        "+  ],",
        '   "type": "object"',
        " }",
    ]
    assert replace(entry, accepted=new).difference == replace(entry, accepted=None).difference == ""
