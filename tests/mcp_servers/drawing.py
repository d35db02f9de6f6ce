"""A server made with the SDK, whose tool returns a picture: the file that it is started with."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("drawing")


@server.tool()
def draw() -> list[str | Image]:
    """Draws."""
    return ["Here it is.", Image(path=sys.argv[1])]


if __name__ == "__main__":
    server.run("stdio")
