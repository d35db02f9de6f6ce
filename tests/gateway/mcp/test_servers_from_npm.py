"""Servers in Node that others wrote, of the era of 2025-11-25: shut in, killed in calls, and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.mcp.tokens import Account
from gateway.sandbox.tiers import Landlock, Tier, bubblewrap
from tests.gateway.mcp.conftest import Room, Servers
from tests.servers import Process, accepts, free_port
from tests.servers.npm import MISSING, PROGRAMS, program

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Server:
    """One of them, and calls of it; `{open}` is a directory that it may write to.

    Attributes:
        does: a call that is done, and would show if it was done twice.
        looks: one that shows what was done.
        shown: by that.
    """

    does: Call
    looks: Call
    shown: str
    env: dict[str, str] = field(default_factory=dict)


ADA = {"entities": [{"name": "Ada", "entityType": "person", "observations": ["drinks tea"]}]}
SERVERS = {
    "everything": Server(does=("get_sum", {"a": 2, "b": 3}), looks=("echo", {"message": "tea"}), shown="Echo: tea"),
    "filesystem": Server(
        does=("write_file", {"path": "{open}/notes.txt", "content": "green tea"}),
        looks=("read_text_file", {"path": "{open}/notes.txt"}),
        shown="green tea",
    ),
    "memory": Server(
        does=("create_entities", ADA),
        looks=("search_nodes", {"query": "tea"}),
        shown='"drinks tea"',
        env={"MEMORY_FILE_PATH": "{open}/memory.jsonl"},
    ),
}


def processes(room: Room) -> Iterator[int]:
    """Of the server: what stands in front of it has the data directory among its arguments, too."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(room.home).encode() in (place / "cmdline").read_bytes():
                yield int(place.name)


async def begun(servers: Servers, call: Call) -> asyncio.Task[Any]:
    """A call that has been sent and has no answer."""
    calling = asyncio.create_task(servers.call(f"s__{call[0]}", **call[1]))
    connection = await servers._servers[Account("s")].connected()
    async with asyncio.timeout(20):
        while not connection.running:
            await asyncio.sleep(0.01)
    return calling


@pytest.mark.parametrize(
    ("tier", "protocol"),
    [(None, "auto"), (bubblewrap(), "auto"), (Landlock(), "legacy")],
    ids=["no sandbox", "bubblewrap", "landlock"],
)
@pytest.mark.parametrize("name", SERVERS)
async def test_it_works_shut_in_and_is_found_again_after_a_kill_in_a_call(
    room: Room, name: str, tier: Tier | None, protocol: str
) -> None:
    (place := room.home / "open").mkdir()
    server = SERVERS[name]
    does, looks = (
        (tool, json.loads(json.dumps(values).replace("{open}", str(place))))
        for tool, values in (server.does, server.looks)
    )
    config = {
        "command": [*program(f"server-{name}"), *(["stdio"] if name == "everything" else []), str(place)],
        "env": {key: value.replace("{open}", str(place)) for key, value in server.env.items()},
        "sandbox": {"read": [str(PROGRAMS)], "write": ["open"], "network": "open" if tier is None else "none"},
        "protocol": protocol,
    }
    async with room.servers(s=config, tier=tier) as servers:
        connection = await (await servers.connect()).connected()
        assert connection.era == "legacy"
        assert not servers.view("s").standing.left_out
        assert (await servers.call(f"s__{does[0]}", **does[1])).outcome == "done"
        assert server.shown in (await servers.call(f"s__{looks[0]}", **looks[1])).text
        for process in processes(room):
            os.kill(process, signal.SIGSTOP)
        calling = await begun(servers, does)
        os.killpg(json.loads((room.home / "run" / "s.group").read_text())["group"], signal.SIGKILL)
        assert (await calling).outcome == "uncertain"
        assert server.shown in (await servers.call(f"s__{looks[0]}", **looks[1])).text
    assert not [*processes(room)]


def received(log: Path) -> int:
    """How many messages the server says it was sent."""
    return log.read_text().count("Received MCP POST request")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Process, str]]:
    """server-everything over HTTP, and its address."""
    port = free_port()
    command = ["env", f"PORT={port}", *program("server-everything"), "streamableHttp"]
    process = Process(command, root=tmp_path, is_ready=lambda: accepts(port))
    process.start()
    yield process, f"http://127.0.0.1:{port}/mcp"
    process.stop()


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_over_http_it_is_killed_in_a_call_restarted_and_found_again(
    room: Room, site: tuple[Process, str], protocol: str
) -> None:
    process, url = site
    log = room.home / "log"
    config = {"url": url, "protocol": protocol, "effects": {"echo": "read"}}
    async with room.servers(s=config) as servers:
        connection = await (await servers.connect()).connected()
        assert connection.era == "legacy"
        assert (await servers.call("s__get_sum", a=2, b=3)).text == "The sum of 2 and 3 is 5."
        assert '"temperature"' in (await servers.call("s__get_structured_content", location="Chicago")).text
        before = received(log)
        calling = asyncio.create_task(servers.call("s__trigger_long_running_operation", duration=600, steps=1))
        async with asyncio.timeout(20):
            while received(log) == before:
                await asyncio.sleep(0.01)
        process.stop()
        assert (await calling).outcome == "uncertain"
        away = await servers.call("s__get_sum", a=2, b=3)
        assert (away.outcome, "this was not done" in away.text) == ("failed", True)
        process.start()
        await servers.test("s")
        assert (await servers.call("s__echo", message="tea")).text == "Echo: tea"
        process.stop()
        process.start()
        assert (await servers.call("s__echo", message="tea")).text == "Echo: tea", "a call that looks is made again"
        process.stop()
        process.start()
        assert "was restarted; call it again" in (await servers.call("s__get_sum", a=2, b=3)).text
        assert (await servers.call("s__get_sum", a=2, b=3)).text == "The sum of 2 and 3 is 5."
