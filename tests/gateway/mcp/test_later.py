"""A server of 2026-07-28 that wants to be called again later: with its state, until it ends or the time is over."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.mcp.conftest import Room
from tests.mcp_servers import asking


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def server(notes: Path, **more: Any) -> dict[str, Any]:
    return {"command": [sys.executable, asking.__file__, str(notes)], **more}


def rounds(notes: Path) -> list[str]:
    return notes.read_text().splitlines()


async def test_the_call_is_made_again_with_the_state_until_it_ends(room: Room, notes: Path) -> None:
    async with room.servers(s=server(notes)) as servers:
        await servers.connect()
        baked = await servers.call("s__bake", rounds=2)
        assert (baked.outcome, baked.text) == ("done", "baked after 3")
        assert rounds(notes) == ["bake 1", "bake 2", "bake 3"]


async def test_once_its_time_is_over_it_is_uncertain_and_not_asked_any_more(room: Room, notes: Path) -> None:
    async with room.servers(s=server(notes, timeout_s=1)) as servers:
        await servers.connect()
        began_s = time.monotonic()
        late = await servers.call("s__bake", rounds=1_000)
        assert 0.5 < time.monotonic() - began_s < 2.0
        assert late.outcome == "uncertain"
        assert "its server had begun with it, and did not end it within 1 s; it may go on" in late.text
        assert rounds(notes) == [f"bake {number}" for number in range(1, len(rounds(notes)) + 1)], "never without state"
        assert len(rounds(notes)) < 8
        assert (await servers.call("s__bake", rounds=0)).text == "baked after 1"


@pytest.mark.parametrize("then", ["dies", "refuses"])
async def test_what_fails_after_the_server_has_begun_is_uncertain(room: Room, notes: Path, then: str) -> None:
    async with room.servers(s=server(notes)) as servers:
        await servers.connect()
        lost = await servers.call("s__bake", rounds=1, then=then)
        assert lost.outcome == "uncertain"
        assert "its server had begun with it, and then did not say what became of it" in lost.text
        assert rounds(notes) == ["bake 1", "bake 2"]


async def test_a_cancelled_call_waits_no_longer(room: Room, notes: Path) -> None:
    async with room.servers(s=server(notes)) as servers:
        await servers.connect()
        calling = asyncio.create_task(servers.call("s__bake", rounds=1_000))
        async with asyncio.timeout(20):
            while len(rounds(notes)) < 3:
                await asyncio.sleep(0.01)
        calling.cancel()
        began_s = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert time.monotonic() - began_s < 0.2
        assert len(rounds(notes)) == 3


async def test_a_server_that_is_taken_away_ends_the_wait(room: Room, notes: Path) -> None:
    async with room.servers(s=server(notes)) as servers:
        connected = await servers.connect()
        calling = asyncio.create_task(servers.call("s__bake", rounds=1_000))
        async with asyncio.timeout(20):
            while len(rounds(notes)) < 4:
                await asyncio.sleep(0.01)
        (await connected.connected()).ended.set()
        async with asyncio.timeout(1.5):
            assert (await calling).outcome == "uncertain"
        await servers.until("idle")
