"""Our client, as the protocol's conformance program starts it: the address of its server comes last.

python -m tests.gateway.mcp.conformance_client URL
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.gateway.mcp.conftest import Room

ARGUMENTS = {"s__add_numbers": {"a": 2, "b": 3}}


async def main(url: str) -> None:
    """Connect, and call each tool once."""
    with tempfile.TemporaryDirectory() as home:
        async with Room(Path(home)).servers(s={"url": url}) as servers:
            await servers.connect()
            for tool in servers.tools:
                called = await servers.call(tool.name, **ARGUMENTS.get(tool.name, {}))
                assert called.outcome == "done", called.text


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
