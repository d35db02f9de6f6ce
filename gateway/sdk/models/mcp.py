"""Servers of the Model Context Protocol, and their tools."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from gateway.sdk.models.schema import ApiModel, RequestBody

ServerState = Literal["idle", "connecting", "up", "resting"]
Acceptance = Literal["accepted", "new", "changed"]


class McpTool(ApiModel):
    """One tool of a server."""

    name: str = Field(description="Name that the agent calls it by.", examples=["notes__read_file"])
    server_name: str = Field(description="The server's own name of it.", examples=["read_file"])
    description: str = Field(description="What the server says of it.")
    arguments: str = Field(description="JSON Schema of its arguments, as JSON.")
    effect: Literal["read", "own", "fetch", "act"] = Field(description="What it may do to the world.")
    state: Acceptance = Field(description="`accepted`, or withheld: `new`, or `changed` since it was accepted.")


class McpServer(ApiModel):
    """One server of `mcp.servers`."""

    name: str = Field(description="Its name.", examples=["notes"])
    place: str = Field(description="Its program, or its address.")
    state: ServerState = Field(
        description="`up`, `idle` until it is needed, `connecting`, or `resting` after a failure, until the next try."
    )
    since: datetime = Field(description="Since when it is so.")
    error: str | None = Field(description="Why it is not up, and what to do.")
    said: tuple[str, ...] = Field(description="The last lines of its standard error.")
    left_out: tuple[str, ...] = Field(description="Tools that cannot be used, and why.")
    tools: tuple[McpTool, ...] = Field(description="The tools that it has.")


class AcceptTools(RequestBody):
    """Which tools to accept."""

    tool: str | None = Field(default=None, description="One tool, by either of its names; null: all that are withheld.")


class AcceptedTools(ApiModel):
    """What was accepted."""

    tools: tuple[str, ...] = Field(description="Names of tools that the agent has from now on.")
