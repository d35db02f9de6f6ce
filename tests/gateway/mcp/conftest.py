"""Servers with a catalogue in a database of their own, and calls of their tools as a turn makes them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config.mcp import McpConfig
from gateway.mcp.server import McpServer, State, Times
from gateway.mcp.servers import McpServers
from gateway.mcp.tokens import Account
from gateway.protocols import MemoryScope
from gateway.runtime.logs import hiding, secrets_in
from gateway.sandbox.tiers import Tier
from gateway.store.stores import open_store
from gateway.tools.contract import Called, ToolContext
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from tests.mcp_servers import misbehaving

SCRIPT = misbehaving.__file__
HERE = str(Path(SCRIPT).parent)
QUICK = Times(connect=10.0, first_rest=0.05, longest_rest=0.2)
CONTEXT = ToolContext(
    scope=MemoryScope(personality_id="assistant", user_id="u_ada", session_id="s_1", turn_id="t_1"),
    role="owner",
    memory=None,
)


def command(mode: str = "", **more: Any) -> dict[str, Any]:
    """The misbehaving server."""
    return {"command": [sys.executable, SCRIPT, mode], **more}


class Servers(McpServers):
    """The same, with what tests ask of it."""

    async def connect(self, name: str = "s") -> McpServer:
        """Connected, and all of its tools accepted."""
        await self.test(name)
        await self.accept(name)
        return self._servers[Account(name)]

    async def call(self, tool: str, /, **arguments: Any) -> Called:
        """As a turn does it."""
        return await Toolbox(self.tools).call(ToolCall(id="c1", name=tool, arguments=json.dumps(arguments)), CONTEXT)

    async def until(self, state: State, name: str = "s") -> None:
        """Wait for a state of a server."""
        async with asyncio.timeout(20):
            while self.view(name).standing.state != state:
                await asyncio.sleep(0.01)


class Room:
    """A data directory in which servers can be run one time after another."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @asynccontextmanager
    async def servers(
        self, *, times: Times = QUICK, tier: Tier | None = None, is_quiet: bool = False, **servers: Any
    ) -> AsyncIterator[Servers]:
        """Running servers, which end with the block."""
        config = McpConfig.model_validate({"servers": servers})
        store = open_store(self.home / "ethos.sqlite")

        async def found() -> Tier | None:
            return tier

        made = Servers(
            config,
            store.mcp_tools,
            home=self.home,
            tier=found,
            hide=hiding(secrets_in(config)),
            is_quiet=lambda: is_quiet,
            times=times,
        )
        await made.open()
        running = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await store.close()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
