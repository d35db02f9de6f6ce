"""Servers of the Model Context Protocol, and their tools."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field

from gateway.sdk.models.schema import ApiModel, RequestBody

ServerState = Literal["idle", "connecting", "up", "resting"]
Effect = Literal["read", "own", "fetch", "act"]
Acceptance = Literal["accepted", "new", "changed"]


class McpTool(ApiModel):
    """One tool of a server."""

    name: str = Field(description="Name that the agent calls it by.", examples=["notes__read_file"])
    server_name: str = Field(description="The server's own name of it.", examples=["read_file"])
    description: str = Field(description="What the server says of it.")
    arguments: str = Field(description="JSON Schema of its arguments, as JSON.")
    effect: Effect = Field(description="What it may do to the world.")
    state: Acceptance = Field(description="`accepted`, or withheld: `new`, or `changed` since it was accepted.")
    difference: str = Field(description="What has changed since it was accepted, as a unified diff; empty if nothing.")
    pin: str = Field(description="Hash of the tool as it is now.")


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
    pin: str = Field(description="Hash of all its tools as they are now.")
    signed_in: tuple[str, ...] = Field(
        description="Ids of the users who are signed in to it; one empty id where all people share an account."
    )


class McpSandbox(ApiModel):
    """What the program of a server may touch."""

    model_config = ConfigDict(extra="forbid")

    write: tuple[str, ...] = Field(default=(), description="Files and directories that it may change.")
    read: tuple[str, ...] = Field(default=(), description="Further ones that it may read.")
    network: Literal["open", "none"] = Field(default="open", description="Whether it may use the network.")


class NewMcpServer(RequestBody):
    """A server for `mcp.servers`: a `command` or a `url`. What is left out has its default."""

    name: str = Field(pattern="^[a-z0-9_]{1,32}$", description="Its name.", examples=["notes"])
    command: tuple[str, ...] = Field(default=(), description="The program and its arguments.")
    url: str | None = Field(default=None, description="Address of a server that speaks streamable HTTP.")
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="Sent with each request to `url`. `${NAME}` is a variable of the gateway; another secret is kept "
        "in a file of its own.",
    )
    env: dict[str, str] = Field(default_factory=dict, description="Variables of the program; secrets as in `headers`.")
    sandbox: McpSandbox = Field(default_factory=McpSandbox, description="What the program may touch.")
    effects: Literal["hints"] | dict[str, Effect] = Field(
        default_factory=dict, description="Class of tools by patterns of their names; `hints` believes the server."
    )
    trusted: bool = Field(default=False, description="What its tools return is not words of others.")
    instructions: bool = Field(
        default=False, description="The model is shown what the server says of itself, once that is accepted."
    )
    tools: tuple[str, ...] | None = Field(default=None, description="Patterns of the tools that are wanted; null: all.")
    start: Literal["on_need", "eager"] = Field(default="on_need", description="When its program is started.")
    protocol: Literal["auto", "legacy", "2026-07-28"] = Field(default="auto", description="Era of the protocol.")
    approver: Literal["owner", "asker"] = Field(default="owner", description="Who may say yes to a call.")
    timeout_s: float = Field(default=60, gt=0, le=600, description="Seconds for one call.")


class McpServerChange(ApiModel):
    """What became of a change of `mcp.servers`."""

    server: str = Field(description="Its name.")
    is_in_use: bool = Field(description="The gateway works with it now; false: its next start does.")
    notes: tuple[str, ...] = Field(description="What is to be known or done besides, for people.")


class SignIn(RequestBody):
    """Who signs in."""

    user: str | None = Field(
        default=None, description="Id or account of a person, where each has an account of their own; else null."
    )


class SignOut(RequestBody):
    """Who is signed out."""

    user: str | None = Field(
        default=None, description="Id or account of a person, where each has an account of their own; else null."
    )


class SignedOut(ApiModel):
    """What became of it."""

    server: str = Field(description="Its name.")
    is_revoked: bool = Field(
        description="Its authorization server has said that it takes the tokens no more; else they end by their age."
    )


class SignInLink(ApiModel):
    """How to sign in to a server."""

    url: str = Field(description="Address to open in a browser; a secret.")
    expires_at: datetime = Field(description="Until when it works.")


class AcceptTools(RequestBody):
    """Which tools to accept."""

    tool: str | None = Field(default=None, description="One tool, by either of its names; null: all that are withheld.")
    pin: str | None = Field(
        default=None,
        description="`pin` that was seen, of the tool or, without `tool`, of the server. If it is another by now, "
        "nothing is accepted, and the answer is 409. Null: whatever there is now.",
    )


class AcceptedTools(ApiModel):
    """What was accepted."""

    tools: tuple[str, ...] = Field(description="Names of tools that the agent has from now on.")
