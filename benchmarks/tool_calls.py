"""What a call of a tool costs beside the tool: the journal, and our client of the Model Context Protocol.

    python -m benchmarks.tool_calls [--rounds 20]

The journal: turns of 24 calls that do nothing, by turns of a tool that only looks and of one that is journalled around,
on a file system in memory, where an fsync costs nothing. The client: calls of one server of standard input and output,
by turns over ours (the owner of the connection and the transport) and over the SDK's own.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic import BaseModel

from benchmarks.asking import ScriptedOffice, office
from gateway.runtime.logs import configure_logs
from gateway.tools.contract import Arguments, Tool, ToolContext, ToolServices
from tests.gateway.mcp.conftest import SCRIPT, Room

PLUGIN_API = 1
CALLS = 24
TEXT = {"text": "tea"}
MEMORY = Path("/dev/shm")  # noqa: S108 (a file system in memory; the directory in it is made by tempfile)


class Config(BaseModel):
    """Nothing."""


def tools(_config: Config, _services: ToolServices) -> Sequence[Tool]:
    """One that only looks, and one that is journalled; neither does anything."""

    async def call(_arguments: Arguments, _context: ToolContext) -> str:
        return "It is done."

    looks = Tool(name="look", description="Looks.", arguments=Arguments, call=call, effect="read")
    return looks, Tool(name="keep", description="Keeps.", arguments=Arguments, call=call, effect="own")


async def journal(rounds: int) -> tuple[float, float]:
    """Milliseconds for a call of each."""
    model = ScriptedOffice()
    times: dict[str, list[float]] = {"look": [], "keep": []}
    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        async with office(Path(home), model, "a yes to each", {"package": "benchmarks.tool_calls"}) as (_, channel):
            for number in range(rounds + 1):
                for tool, found in times.items():
                    text = f"{number} {tool}"
                    model.steps[text] = [(tool, {})] * CALLS
                    began_at = time.perf_counter()
                    await channel.ask(text, conversation=text)
                    found.append((time.perf_counter() - began_at) / CALLS)
    looks, keeps = (statistics.median(found[1:]) * 1_000 for found in times.values())
    return looks, keeps


async def client(rounds: int) -> tuple[float, float]:
    """Milliseconds for a call over the SDK's own client and transport, and over ours."""
    command = StdioServerParameters(command=sys.executable, args=[SCRIPT])
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        config = {"command": [sys.executable, SCRIPT]}
        async with Client(stdio_client(command), mode="legacy") as bare, Room(Path(home)).servers(s=config) as servers:
            server = await servers.connect()
            for _ in range(50 * rounds):
                began_at = time.perf_counter()
                await bare.call_tool("post", TEXT)
                between = time.perf_counter()
                await server.call("post", TEXT, timeout_s=60, is_repeatable=False)
                theirs.append(between - began_at)
                ours.append(time.perf_counter() - between)
    return statistics.median(theirs) * 1_000, statistics.median(ours) * 1_000


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(f"{'':>30} {'without':>8} {'with':>8} {'adds ms':>8} {'ratio':>6}")
    for name, measured in (("the journal, beyond its fsyncs", journal), ("our MCP client over the SDK", client)):
        without, having = await measured(rounds)
        print(f"{name:>30} {without:>8.2f} {having:>8.2f} {having - without:>8.2f} {having / without:>6.2f}")


if __name__ == "__main__":
    configure_logs("error")
    asyncio.run(main())
