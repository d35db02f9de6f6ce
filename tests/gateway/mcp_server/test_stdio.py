"""`ethos mcp serve`: a desktop program over standard input and output, by the gateway that runs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import MCPError

from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel

from .conftest import ERAS, SERVES, WAIT_S, by_stdio, refusal, value


@pytest.mark.parametrize("era", ERAS)
async def test_a_desktop_program_is_the_operator(house: House, era: str) -> None:
    told: list[str] = []

    async def progress(_done: float, _total: float | None, message: str | None) -> None:
        told.append(message or "")
        hang.released.set()

    hang = Hang()
    async with house.served(ScriptedModel(["Hello ", hang, "☕"]), mcp=SERVES) as gateway:
        async with by_stdio(house.home, era) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"chat", "send_message", "memory_read"} <= tools
            answer = await client.call_tool("chat", {"text": "Grüße ☕"}, progress_callback=progress)
            said = answer.structured_content
            assert (said["text"], told) == ("Hello ☕", ["writes"])
            [session] = (await value(client, "sessions_list"))["sessions"]
            assert session["id"] == said["session"]
            [content] = (await client.read_resource(f"ethos://sessions/{said['session']}")).contents
            assert "Grüße ☕" in content.model_dump()["text"]
            with pytest.raises(MCPError, match="no resource"):
                await client.read_resource("ethos://tee/grün")
        await settled(gateway)


@pytest.mark.parametrize("era", ERAS)
async def test_for_one_person_it_sees_that_person_only(house: House, era: str) -> None:
    async with house.served(ScriptedModel("Hello"), mcp=SERVES) as gateway:
        ada = await gateway.identities.resolve("mail:ada@example.org", "Ada")
        ben = await gateway.identities.resolve("mail:ben@example.org", "Ben")
        async with by_stdio(house.home, era, "--user", "mail:ada@example.org") as client:
            assert "one person only" in await refusal(client, "memory_read", store="user", user=ben)
            said = await value(client, "chat", text="Hi")
            [session] = (await value(client, "sessions_list"))["sessions"]
            assert (session["id"], session["user"]) == (said["session"], ada)


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_chat_is_stopped(house: House, era: str) -> None:
    hang = Hang()
    model = ScriptedModel(["So far", hang])
    async with house.served(model, mcp=SERVES) as gateway, by_stdio(house.home, era) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "chat", {"text": "Hi"})
            await asyncio.wait_for(hang.started.wait(), WAIT_S)
            group.cancel_scope.cancel()
        async with asyncio.timeout(WAIT_S):  # the model is never released: only a stop ends the turn
            await gateway.dispatcher.idle()
        assert len((await value(client, "sessions_list"))["sessions"]) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_it_lives_through_a_restart_of_the_gateway(house: House, era: str) -> None:
    async with house.served(ScriptedModel("one"), mcp=SERVES):
        clients = by_stdio(house.home, era)
        client = await clients.__aenter__()
        first = await value(client, "chat", text="Hi")
    with pytest.raises(MCPError, match="no gateway runs"):
        await client.call_tool("sessions_list", {})
    async with house.served(ScriptedModel("two"), mcp=SERVES):
        assert (await value(client, "chat", text="Go on", session=first["session"]))["text"] == "two"
        await clients.__aexit__(None, None, None)


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_the_end_of_the_gateway_broke_off_is_there_when_it_is_asked_for_again(
    house: House, era: str
) -> None:
    hang = Hang()
    wanted = {"text": "Hi", "idempotency_key": "1"}
    async with house.served(ScriptedModel([hang]), mcp=SERVES, shutdown_s=0):
        clients = by_stdio(house.home, era)
        client = await clients.__aenter__()
        asked = asyncio.create_task(client.call_tool("chat", wanted))
        await asyncio.wait_for(hang.started.wait(), WAIT_S)
    with pytest.raises(MCPError):
        await asked
    async with house.served(ScriptedModel("late"), mcp=SERVES):
        assert (await value(client, "chat", **wanted))["text"] == "late"
        await clients.__aexit__(None, None, None)


async def serve(home: Path, *options: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """The command by itself."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "gateway.cli", "mcp", "serve", *options],
        env={**os.environ, "ETHOS_HOME": str(home)},
        input=said,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


async def test_without_a_gateway_that_serves_it_says_what_to_do(house: House, tmp_path: Path) -> None:
    ended = await serve(tmp_path / "home")
    assert ended.returncode != 0
    assert "no gateway runs" in ended.stderr
    async with house.served():
        ended = await serve(house.home)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "`mcp.serve: true`" in ended.stderr
    async with house.served(mcp=SERVES):
        ended = await serve(house.home, "--user", "mail:nobody@example.org")
        assert "there is no user mail:nobody@example.org" in ended.stderr


async def test_a_line_that_is_no_message_is_told_and_the_command_ends_with_its_input(house: House) -> None:
    """Its output has messages and nothing else."""
    async with house.served(mcp=SERVES):
        ended = await serve(house.home, said='tea\n\n[1]\n{"id": 1, "method": ["ping"]}\n')
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [json.loads(line)["error"]["code"] for line in ended.stdout.splitlines()] == [-32700, -32700, -32700]
