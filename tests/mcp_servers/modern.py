"""A server of the era of 2026-07-28, made with the SDK: its list of tools grows, and it tells who has subscribed."""

from __future__ import annotations

import os
import sys

from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.runner import ServerRunner

server = MCPServer("modern", cache_hints={"tools/list": CacheHint(ttl_ms=1 if "short" in sys.argv else 0)})


@server.tool()
def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool()
async def grow(context: Context) -> str:
    """Has one more tool from now on."""
    server.add_tool(fresh)
    await context.notify_tools_changed()
    return "grown"


def fresh() -> str:
    """New."""
    return "fresh"


if __name__ == "__main__":
    if "only" in sys.argv:
        ServerRunner._negotiate_initialize = lambda *_: os._exit(6)  # type: ignore[method-assign]
    server.run("stdio")
