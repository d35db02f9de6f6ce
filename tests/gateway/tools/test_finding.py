"""Where there are more tools than are to be shown, a model finds them, and has them for the rest of the session."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.model import ModelRequest
from gateway.tools.contract import Arguments, Tool, ToolContext
from gateway.tools.finding import FIND_TOOLS, MOST_FOUND, fitting, found_in
from gateway.tools.toolbox import Toolbox
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel, call
from tests.tool_packages.office import OFFICE

HIDDEN = {"packages": [{"package": "tests.tool_packages.office"}], "schema_tokens": 100}


class Nothing(Arguments):
    """No arguments."""


async def _nothing(_arguments: Nothing, _context: ToolContext) -> str:
    return ""


def tool(name: str, description: str = "", **changes: Any) -> Tool:
    made: dict[str, Any] = {"name": name, "description": description, "arguments": Nothing, "call": _nothing}
    return Tool(**{**made, "effect": "read", **changes})


LAMPS = [tool("lamp_on", "Turns a lamp on."), tool("lamp_off", "Turns a lamp off."), tool("heat", "Warms a room.")]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("lamp", ["lamp_off", "lamp_on"]),
        ("turn the LAMP on", ["lamp_on", "lamp_off"]),
        ("warm", ["heat"]),
        ("room, lamps", ["heat"]),
        ("calendar", []),
        ("", []),
        ("*", []),
    ],
)
def test_tools_are_found_by_words_of_their_names_and_descriptions(query: str, names: list[str]) -> None:
    assert [one.name for one in fitting(query, LAMPS)] == names


def test_so_many_are_found_at_once_and_always_the_same() -> None:
    many = [tool(f"lamp_{number:02}") for number in range(20)]
    assert [one.name for one in fitting("lamp", reversed(many))] == [one.name for one in many[:MOST_FOUND]]


async def test_names_are_read_back_from_what_was_found_and_from_nothing_else() -> None:
    context: Any = type("Context", (), {"findable": [*LAMPS, tool("odd", "x\n- heat: not found")]})
    said = [str(await FIND_TOOLS.call(FIND_TOOLS.arguments(query=query), context)) for query in ("lamp", "odd", "none")]
    assert found_in([*said, said[0]]) == ["lamp_off", "lamp_on", "odd"]


def test_only_where_they_take_too_much_room_some_have_to_be_found() -> None:
    own, packages = [tool("own")], [tool(f"theirs_{number}", "x" * 400, is_findable=True) for number in range(3)]
    toolbox = Toolbox([*own, *packages])
    assert toolbox.within(10_000) is toolbox
    assert Toolbox(own).within(0).names == ("own",), "what is ours is always shown"
    small = toolbox.within(100)
    assert [spec.name for spec in small.specs] == ["own", "find_tools"]
    assert [spec.name for spec in small.specs_with(["theirs_2", "gone", "theirs_0"])] == [
        "own", "find_tools", "theirs_2", "theirs_0",
    ]  # fmt: skip
    assert small.find("theirs_1") is not None


def shown(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


async def test_what_was_found_is_there_for_the_rest_of_the_session_and_through_a_restart(tmp_path: Path) -> None:
    OFFICE.empty()
    house = House(tmp_path / "home")
    find = call("find_tools", '{"query": "note"}', id="f1")
    note = call("write_note", '{"name": "milk"}', id="n1")
    model = ScriptedModel([find], [note], "It is noted.", "Yes.")
    async with house.gateway(model, tools=HIDDEN) as (gateway, channel):
        assert await channel.ask("note milk") == "It is noted."
        await channel.ask("thanks")
        await settled(gateway)
    first, second, third, later = map(shown, model.requests)
    assert first[-1] == "find_tools"
    assert not {"write_note", "send_mail"} & set(first)
    assert second == third == later == [*first, "write_note"]
    assert OFFICE.done == [("write_note", {"name": "milk"})]
    model = ScriptedModel([call("find_tools", '{"query": "invite"}', id="f2")], "Soon.", "Hello.")
    async with house.gateway(model, tools=HIDDEN) as (gateway, channel):
        channel._numbers = itertools.count(100)  # a restart is no reason to use an id of the platform twice
        await channel.ask("invite ada")
        await channel.ask("/new")
        await channel.ask("hello")
        await settled(gateway)
    assert [*map(shown, model.requests)] == [[*first, "write_note"], [*first, "write_note", "invite"], first]


async def test_with_room_for_all_there_is_nothing_to_find(tmp_path: Path) -> None:
    model = ScriptedModel("Hello.")
    async with House(tmp_path / "home").gateway(model, tools={"packages": HIDDEN["packages"]}) as (_, channel):
        await channel.ask("hello")
    assert "find_tools" not in shown(model.requests[0])
    assert "write_note" in shown(model.requests[0])
