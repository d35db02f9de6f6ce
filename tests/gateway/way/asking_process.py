"""A gateway in which a server asks the person something, killed on the way; in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from gateway.runtime import failpoints
from tests.gateway.way.conftest import House
from tests.gateway.way.test_approvals import owned
from tests.gateway.way.test_mcp import accepted
from tests.scripted_model import ScriptedModel, call

STEPS = ([call("s__pay", '{"to": "ada"}', id="p1")], "It is done.")


def run(home: Path, servers: dict[str, Any], failpoint: str) -> None:
    """Ask for a payment, answer what the server asks, and die where the failpoint is, or after the question."""
    asyncio.run(_run(home, servers, failpoint))


async def _run(home: Path, servers: dict[str, Any], failpoint: str) -> None:
    model = ScriptedModel(*STEPS, is_replaying=True)
    async with owned(House(home), model, mcp=servers) as (gateway, channel):
        await accepted(gateway)
        failpoints.arm(failpoint)
        await channel.ask("pay ada")
        if not failpoint:
            os.kill(os.getpid(), signal.SIGKILL)
        await channel.ask("hunter2")


def run_baking(home: Path, servers: dict[str, Any], notes: Path) -> None:
    """Die while the server wants to be called again later."""
    asyncio.run(_run_baking(home, servers, notes))


async def _run_baking(home: Path, servers: dict[str, Any], notes: Path) -> None:
    baking = call("s__bake", '{"rounds": 1000}', id="b1")
    async with owned(House(home), ScriptedModel([baking], is_replaying=True), mcp=servers) as (gateway, channel):
        await accepted(gateway)
        await channel.deliver(channel.message("bake"))
        while notes.read_text().count("bake") < 3:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
