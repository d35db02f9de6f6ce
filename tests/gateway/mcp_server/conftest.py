"""A gateway that serves MCP, and clients of the protocol's own SDK, by HTTP and through `ethos mcp serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CallToolResult, TextContent

from gateway.app.gateway import Gateway
from gateway.services.caller import operator
from tests.gateway.way.conftest import House

ERAS = ("legacy", "2026-07-28")
SERVES = {"serve": True}
OPERATOR = operator("test")
WAIT_S = 60


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "home")


async def key_of(gateway: Gateway, *scopes: str, user: str | None = None) -> str:
    return (await gateway.web.api.services.keys.create(OPERATOR, "a key", scopes, user)).key


def token_of(gateway: Gateway) -> str:
    return (gateway.home / "web-token").read_text().strip()


@asynccontextmanager
async def by_http(gateway: Gateway, key: str | None, era: str, **headers: str) -> AsyncIterator[Client]:
    """A client of the web server."""
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    async with create_mcp_http_client(headers=headers) as http:
        transport = streamable_http_client(f"{gateway.web.url}mcp", http_client=http)
        async with Client(transport, mode=era) as client:
            yield client


@asynccontextmanager
async def by_stdio(home: Path, era: str, *options: str) -> AsyncIterator[Client]:
    """A desktop program that has started `ethos mcp serve`."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gateway.cli", "mcp", "serve", *options],
        env={**os.environ, "ETHOS_HOME": str(home)},
    )
    async with Client(stdio_client(command), mode=era) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def value(client: Client, tool: str, **arguments: Any) -> Any:
    """What a tool gives, where it can."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """What it says, where it cannot."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)
