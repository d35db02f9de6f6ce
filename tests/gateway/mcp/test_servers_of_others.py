"""Servers that others wrote: mcp-server-time, -git and -fetch, killed in calls and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.gateway.mcp.conftest import Room, Servers
from tests.servers import free_port


def command(name: str) -> list[str]:
    return [sys.executable, "-m", f"mcp_server_{name}"]


def kill(room: Room, name: str) -> None:
    group = json.loads((room.home / "run" / f"{name}.group").read_text())["group"]
    os.killpg(group, signal.SIGKILL)


async def survives(room: Room, servers: Servers, name: str) -> None:
    """Its process is killed; the next calls find it again."""
    kill(room, name)
    await servers.until("idle", name)


@pytest.mark.parametrize("protocol", ["auto", "legacy", "2026-07-28"])
async def test_the_time(room: Room, protocol: str) -> None:
    server = {"command": command("time"), "effects": {"get_*": "read"}, "protocol": protocol}
    async with room.servers(time=server) as servers:
        await servers.connect("time")
        assert [tool.name for tool in servers.tools] == ["time__convert_time", "time__get_current_time"]
        told = await servers.call("time__get_current_time", timezone="Europe/Berlin")
        assert json.loads(told.text)["timezone"] == "Europe/Berlin"
        await survives(room, servers, "time")
        again = await servers.call(
            "time__convert_time", source_timezone="Asia/Tokyo", time="12:00", target_timezone="UTC"
        )
        assert "03:00" in again.text
        assert (await servers.call("time__get_current_time", timezone="Nowhere")).outcome == "failed"


async def test_a_repository(room: Room) -> None:
    repository = room.home / "repository"
    subprocess.run(["git", "init", "-q", "-b", "main", repository], check=True)
    (repository / "tea.txt").write_text("green\n")
    async with room.servers(git={"command": command("git"), "effects": "hints"}) as servers:
        await servers.connect("git")
        status = await servers.call("git__git_status", repo_path=str(repository))
        assert "tea.txt" in status.text
        assert (await servers.call("git__git_add", repo_path=str(repository), files=["tea.txt"])).outcome == "done"
        await survives(room, servers, "git")
        assert "new file" in (await servers.call("git__git_status", repo_path=str(repository))).text
        effects = {tool.name: tool.effect for tool in servers.tools}
        assert (effects["git__git_status"], effects["git__git_reset"]) == ("read", "act")


@pytest.fixture
async def page() -> AsyncIterator[tuple[str, asyncio.Event, asyncio.Event]]:
    """The address of a page that waits, an event that it was asked for, and one that lets it answer."""
    asked, released = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        asked.set()
        await released.wait()
        return web.Response(text="<html><body><p>Green tea.</p></body></html>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}/tea", asked, released
    finally:
        released.set()
        await runner.cleanup()


async def test_a_page_and_a_kill_in_the_middle_of_a_call(
    room: Room, page: tuple[str, asyncio.Event, asyncio.Event]
) -> None:
    address, asked, released = page
    command_line = [*command("fetch"), "--allow-private-ips"]
    async with room.servers(fetch={"command": command_line}) as servers:
        await servers.connect("fetch")
        fetching = asyncio.create_task(servers.call("fetch__fetch", url=address, raw=True))
        async with asyncio.timeout(20):
            await asked.wait()
        kill(room, "fetch")
        assert (await fetching).outcome == "uncertain"
        released.set()
        told = await servers.call("fetch__fetch", url=address, raw=True)
        assert (told.outcome, "Green tea." in told.text) == ("done", True)
