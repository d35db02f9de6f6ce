"""Our client, as the protocol's conformance program starts it: the address of its server comes last.

python -m tests.gateway.mcp.conformance_client URL
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from gateway.tools.contract import Called
from gateway.tools.forms import AS_PROPOSED
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from tests.gateway.mcp.conftest import CONTEXT, Room, Servers

ARGUMENTS = {"s__add_numbers": {"a": 2, "b": 3}}


async def answered(servers: Servers, tool: str) -> Called:
    """The outcome of a call in a direct chat, where a person takes whatever its server proposes."""
    made = ToolCall(id="c1", name=tool, arguments=json.dumps(ARGUMENTS.get(tool, {})))
    context = replace(CONTEXT, can_be_asked=True)
    called = await Toolbox(servers.tools).call(made, context)
    while called.wanted is not None:
        given = called.wanted.given([point.read(AS_PROPOSED) for point in called.wanted.points])
        called = await Toolbox(servers.tools).call(made, replace(context, given=given))
    return called


async def main(url: str) -> None:
    """Connect, and call each tool once."""
    with tempfile.TemporaryDirectory() as home:
        async with Room(Path(home)).servers(s={"url": url}) as servers:
            await servers.connect()
            for tool in servers.tools:
                called = await answered(servers, tool.name)
                assert called.outcome == "done", called.text


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
