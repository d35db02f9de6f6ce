"""The agent runs programs in the workspace of a person, shut in; without a sandbox it has no such tool."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from gateway.sandbox import probing
from gateway.sandbox.tiers import Tier
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel, call

ON = {"files": True, "python": True, "shell": True}


def python(code: str, number: int = 1) -> object:
    return call("run_python", json.dumps({"code": code}), id=f"p{number}")


def shell(command: str, number: int = 1) -> object:
    return call("run_shell", json.dumps({"command": command}), id=f"s{number}")


def told(model: ScriptedModel, number: int) -> str:
    return model.requests[number].messages[-1].text


async def test_a_program_works_on_the_files_of_its_person(house: House) -> None:
    write = call("write_file", '{"name": "numbers.txt", "text": "3\\n4\\n"}', id="w1")
    total = python("print(sum(map(int, open('numbers.txt'))), file=open('sum.txt', 'w'))")
    model = ScriptedModel([write], [total], [shell("cat sum.txt; echo done >&2; exit 3")], "Seven.")
    async with house.gateway(model, tools=ON) as (gateway, channel):
        assert await channel.ask("add them up") == "Seven."
        assert told(model, 2) == "It printed nothing."
        assert told(model, 3) == "7\ndone\n\n[It ended with the code 3.]"
        await settled(gateway)
        assert [row.effect for _, row in await gateway.store.tool_log.calls()] == ["own", "own", "own"]


async def test_a_program_sees_nothing_else_and_its_output_is_no_instruction(house: House) -> None:
    look = shell("cat ../../../config.yaml ../../../web-token /etc/passwd; ls ../..; env; touch mine")
    again = shell("ls", 2)
    model = ScriptedModel([look], [again], "Nothing.")
    async with house.gateway(model, tools=ON) as (gateway, channel):
        (gateway.home / "web-token").write_text("canary")
        await channel.ask("look around")
        assert "canary" not in told(model, 1)
        assert "root:" not in told(model, 1)
        assert "ETHOS" not in told(model, 1)
        assert told(model, 2) == "mine\n"
        await settled(gateway)


async def test_where_the_network_is_open_a_run_waits_for_a_yes(house: House) -> None:
    model = ScriptedModel([python("print(1)")], "Soon.")
    async with house.gateway(model, tools=ON, sandbox={"network": True}) as (gateway, channel):
        await channel.ask("run it")
        assert told(model, 1).startswith("This was not done. It waits for the person's yes")
        await settled(gateway)


async def test_without_a_sandbox_the_tools_are_not_offered_and_the_log_says_what_to_do(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fault(_tier: Tier) -> str:
        return "it was switched off"

    monkeypatch.setattr(probing, "bubblewrap", lambda: None)
    monkeypatch.setattr(probing, "fault_of", fault)
    model = ScriptedModel([python("print(1)")], "I cannot.")
    with capture_logs() as logged:
        async with house.gateway(model, tools=ON) as (gateway, channel):
            await channel.ask("run it")
            assert "there is no tool 'run_python'" in told(model, 1)
            await settled(gateway)
    [line] = [line for line in logged if line["event"] == "no_sandbox"]
    assert "install it with `apt install bubblewrap`" in line["remedy"]


async def test_without_programs_nothing_is_tried(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "find_sandbox", None)
    async with house.gateway(ScriptedModel("Hello."), tools={"files": True}) as (gateway, channel):
        assert await channel.ask("hello") == "Hello."
        assert gateway.sandbox is None
