"""A tool of a server as a tool of the agent: its class, its arguments, and what is made of its result."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.config.mcp import McpServerConfig
from gateway.mcp.catalogue import CataloguedTool, Definition
from gateway.mcp.server import McpServer
from gateway.mcp.tools import effect_of, tool_of
from gateway.sandbox.workspace import Workspace
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from tests.gateway.mcp.conftest import CONTEXT, Room, command


def defined(name: str = "post", **hints: bool | None) -> Definition:
    return Definition(name=name, description="", schema='{"type": "object"}', **hints)


def configured(**settings: Any) -> McpServerConfig:
    return McpServerConfig.model_validate({"url": "http://127.0.0.1/mcp", **settings})


@pytest.mark.parametrize(
    ("effects", "hints", "effect"),
    [
        ({}, {}, "act"),
        ({}, {"is_read_only": True, "is_open_world": False}, "act"),
        ({"get_*": "read"}, {}, "act"),
        ({"po*": "own", "*": "read"}, {}, "own"),
        ({"get_*": "read", "*": "fetch"}, {}, "fetch"),
        ("hints", {}, "act"),
        ("hints", {"is_read_only": False}, "act"),
        ("hints", {"is_read_only": True}, "fetch"),
        ("hints", {"is_read_only": True, "is_open_world": True}, "fetch"),
        ("hints", {"is_read_only": True, "is_open_world": False}, "read"),
    ],
)
def test_the_class_is_the_operators_or_by_hints(effects: Any, hints: dict[str, bool], effect: str) -> None:
    assert effect_of(defined(**hints), configured(effects=effects)) == effect


@pytest.mark.parametrize(
    ("settings", "hints", "is_destructive", "shows_others", "approver"),
    [
        ({}, {}, True, True, "owner"),
        ({}, {"is_destructive": True}, True, True, "owner"),
        ({}, {"is_destructive": False}, False, True, "owner"),
        ({"effects": {"*": "read"}}, {}, False, True, "owner"),
        ({"trusted": True, "approver": "asker"}, {}, True, False, "asker"),
    ],
)
async def test_a_tool_is_destructive_and_the_words_of_others_unless_said_otherwise(
    settings: dict[str, Any], hints: dict[str, bool], is_destructive: bool, shows_others: bool, approver: str
) -> None:
    async def listed(_name: str, _listing: object) -> None:
        return None

    server = McpServer("s", link=lambda _standing: pytest.fail("not connected here"), on_listing=listed)
    entry = CataloguedTool(server="s", tool="s__post", definition=defined(**hints))
    tool = tool_of(entry, configured(**settings), server)
    assert (tool.is_destructive, tool.shows_others, tool.approver) == (is_destructive, shows_others, approver)
    assert tool.spec.description == "A tool of the server s."


async def test_arguments_are_held_against_the_schema_field_by_field(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        for given, problem in (({}, "the whole: 'text' is a required property."), ({"text": 5}, "text: 5 is not of")):
            called = await servers.call("s__post", **given)
            assert called.outcome == "refused"
            assert problem in called.text


async def test_results_are_text_and_other_things_are_named(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        picture = await servers.call("s__picture")
        assert picture.text == (
            "[A picture, image/png, 4 bytes]\n"
            "[A link: the plan]\n"
            "[The file notes.txt:]\nBuy tea.\n"
            "[The file all.zip, of no known kind, 4 bytes]\n"
            "[The picture 1 is not shown.]\n"
            "[The file all.zip is not kept: there are no files here.]"
        )
        assert picture.sources == ("what s__picture returned",)
        assert (await servers.call("s__structure")).text == '{"degrees": 21}'


async def test_a_file_in_a_result_is_kept_in_the_workspace_as_one_of_others(room: Room, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    async with room.servers(s=command()) as servers:
        await servers.connect()
        call = ToolCall(id="c1", name="s__picture", arguments="{}")
        called = await Toolbox(servers.tools).call(call, replace(CONTEXT, workspace=workspace))
    [file] = workspace.files()
    assert f"[The file all.zip is in {file.name}.]" in called.text
    assert file.name.startswith("results/")
    assert workspace.read(file.name) == (b"\x89PNG", False), "its words are not the person's"


async def test_a_result_that_does_not_fit_its_own_schema_is_done(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        called = await servers.call("s__liar")
        assert (called.outcome, called.text) == ("done", "four")


@pytest.mark.parametrize(
    ("tool", "outcome", "text"),
    [
        ("fail", "failed", "Error: The disk is full."),
        ("refuse", "failed", "Error: its server refused it: not like this"),
        ("internal", "uncertain", "its server answered with the error -32603"),
        ("garbled", "uncertain", "its server answered in a form that cannot be read (ValidationError)"),
    ],
)
async def test_an_error_says_whether_it_was_done(room: Room, tool: str, outcome: str, text: str) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        called = await servers.call(f"s__{tool}")
        assert called.outcome == outcome
        assert text in called.text
        assert bool(called.sources) == (outcome == "failed"), "words of the server taint the turn"


async def test_a_turn_that_is_stopped_ends_its_call_alone(room: Room) -> None:
    async with room.servers(s=command()) as servers:
        await servers.connect()
        hanging = asyncio.create_task(servers.call("s__hang"))
        assert (await servers.call("s__post", text="tea")).text == "tea"
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert (await servers.call("s__post", text="tea")).text == "tea"
        assert servers.view("s").standing.state == "up"
