"""What a call of a tool costs beside the tool: the journal, and our client of the Model Context Protocol.

    python -m benchmarks.tool_calls [--rounds 20]

The journal: turns of 24 calls that do nothing, by turns of a tool that only looks and of one that is journalled around,
on a file system in memory, where an fsync costs nothing. The client: calls of one server of standard input and output,
by turns over ours (the owner of the connection and the transport) and over the SDK's own. Processor time is this
process's, with all of its threads: on a busy machine the clock also counts the work of others.
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


Watch = tuple[float, float]
"""Milliseconds by the clock, and of the processor."""


def now() -> Watch:
    return time.perf_counter() * 1_000, time.process_time() * 1_000


def since(began: Watch, calls: int = 1) -> Watch:
    clock, processor = now()
    return (clock - began[0]) / calls, (processor - began[1]) / calls


def median(found: Sequence[Watch]) -> Watch:
    return statistics.median(each[0] for each in found), statistics.median(each[1] for each in found)


async def journal(rounds: int) -> tuple[Watch, Watch]:
    """For a call of each."""
    model = ScriptedOffice()
    times: dict[str, list[Watch]] = {"look": [], "keep": []}
    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        async with office(Path(home), model, "a yes to each", {"package": "benchmarks.tool_calls"}) as (_, channel):
            for number in range(rounds + 1):
                for tool, found in times.items():
                    text = f"{number} {tool}"
                    model.steps[text] = [(tool, {})] * CALLS
                    began = now()
                    await channel.ask(text, conversation=text)
                    found.append(since(began, CALLS))
    looks, keeps = (median(found[1:]) for found in times.values())
    return looks, keeps


async def client(rounds: int) -> tuple[Watch, Watch]:
    """For a call over the SDK's own client and transport, and over ours."""
    command = StdioServerParameters(command=sys.executable, args=[SCRIPT])
    ours: list[Watch] = []
    theirs: list[Watch] = []
    with tempfile.TemporaryDirectory() as home:
        config = {"command": [sys.executable, SCRIPT]}
        async with Client(stdio_client(command), mode="legacy") as bare, Room(Path(home)).servers(s=config) as servers:
            server = await servers.connect()
            for _ in range(50 * rounds):
                began = now()
                await bare.call_tool("post", TEXT)
                theirs.append(since(began))
                began = now()
                await server.call("post", TEXT, timeout_s=60, is_repeatable=False)
                ours.append(since(began))
    return median(theirs), median(ours)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(f"{'ms for a call':>31} {'without':>8} {'with':>8} {'adds':>6} {'processor':>10}")
    for name, measured in (("the journal, beyond its fsyncs", journal), ("our MCP client, beyond the SDK", client)):
        without, having = await measured(rounds)
        adds, of_processor = having[0] - without[0], having[1] - without[1]
        print(f"{name:>31} {without[0]:>8.2f} {having[0]:>8.2f} {adds:>6.2f} {of_processor:>10.2f}")


if __name__ == "__main__":
    configure_logs("error")
    asyncio.run(main())
