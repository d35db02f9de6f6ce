"""The protocol's own conformance program against the gateway. It knows the eras up to 2025-11-25."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.files.unix_socket import SOCKET_NAME, short_path
from tests.gateway.way.conftest import House
from tests.servers.npm import MISSING, conformance

from .conftest import SERVES

SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "resources-list",
    "dns-rebinding-protection",
)
"""Those that are run. All others want something that the gateway does not have, as `LEFT_OUT` says."""
LEFT_OUT = {
    "a tool of the program's own test server": (
        "tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
        "tools-call-mixed-content", "tools-call-with-logging", "tools-call-error", "tools-call-with-progress",
        "tools-call-sampling", "tools-call-elicitation", "json-schema-2020-12", "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums", "server-sse-polling",
    ),
    "a resource of the program's own test server": (
        "resources-read-text", "resources-read-binary", "resources-templates-read",
    ),
    "a part of the protocol that is not offered": (
        "logging-set-level", "completion-complete", "resources-subscribe", "resources-unsubscribe", "prompts-list",
        "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
    ),
}  # fmt: skip


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


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
async def test_each_scenario_of_the_program_is_run_or_has_a_reason() -> None:
    _, said = await conformance("list")
    of_servers = said.partition("Client scenarios")[0]
    known = [*SCENARIOS, *(name for names in LEFT_OUT.values() for name in names)]
    assert sorted(re.findall(r"^  - (\S+)", of_servers, re.MULTILINE)) == sorted(known)


@pytest.mark.slow
@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
async def test_the_conformance_program_finds_no_fault(house: House) -> None:
    async with as_operator(house.home) as port, house.served(mcp=SERVES):
        for scenario in SCENARIOS:
            arguments = ("server", "--url", f"http://127.0.0.1:{port}/mcp", "--scenario", scenario)
            code, said = await conformance(*arguments)
            assert code == 0, f"{scenario}:\n{said}"
            assert "0 failed" in said
