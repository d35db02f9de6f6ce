"""The Inspector of the protocol's own project, by its command line, in the place of a desktop program."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.way.conftest import House
from tests.scripted_model import ScriptedModel
from tests.servers.npm import MISSING, program

from .conftest import SERVES, WAIT_S, key_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]


async def inspect(home: Path, *arguments: str) -> tuple[int, str]:
    """Its exit code, and what it printed; it keeps nothing outside of a directory of the test's."""
    command = [*program("inspector", "clients/launcher/build/index.js"), "--cli", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "HOME": str(home), "ETHOS_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT_S):
        said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def answer(home: Path, *arguments: str) -> Any:
    code, said = await inspect(home, *arguments)
    assert code == 0, said
    return json.loads(said)


async def look_through(home: Path, *server: str) -> None:
    """Lists, calls and reads."""
    tools = await answer(home, *server, "--method", "tools/list")
    assert {"chat", "memory_read", "sessions_list"} <= {tool["name"] for tool in tools["tools"]}
    called = await answer(home, *server, "--method", "tools/call", "--tool-name", "chat", "--tool-arg", "text=Hi")
    assert called["structuredContent"]["text"] == "Hello Ada"
    resources = await answer(home, *server, "--method", "resources/list")
    [uri] = [one["uri"] for one in resources["resources"] if one["uri"].startswith("ethos://sessions/")]
    read = await answer(home, *server, "--method", "resources/read", "--uri", uri)
    assert "Hello Ada" in read["contents"][0]["text"]


async def test_it_finds_its_way_over_http_with_a_key_and_not_without_one(house: House) -> None:
    async with house.served(ScriptedModel("Hello Ada"), mcp=SERVES) as gateway:
        key = await key_of(gateway, "chat:read", "chat:write", "sessions:read", "memory:read")
        server = (f"{gateway.web.url}mcp", "--transport", "http")
        await look_through(house.home, *server, "--header", f"Authorization: Bearer {key}")
        code, said = await inspect(house.home, *server, "--method", "tools/list")
        assert code != 0
        assert "auth_required" in said


async def test_it_finds_its_way_over_standard_input_and_output(house: House) -> None:
    async with house.served(ScriptedModel("Hello Ada"), mcp=SERVES):
        serve = (sys.executable, "-m", "gateway.cli", "mcp", "serve")
        await look_through(
            house.home, *serve, "-e", f"ETHOS_HOME={house.home}", "-e", f"PYTHONPATH={':'.join(sys.path)}"
        )
